"""The trusted core: charges as data, one account per scope, one log with one owner, one session.

Read `session.py` first. A push validates its input, checks what is charged whatever the data are, lets the mechanism
compute, checks all charges, commits, and only then returns. docs/proofs/core.md has the states and every transition.
"""
