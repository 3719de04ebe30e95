"""Servers that events come from and releases go to: their addresses, and how a connection begins.

What a location may say is decided here once, for sources and sinks. Secrets are in none of them: they come from the
environment or from files that the servers' own libraries know.
"""
