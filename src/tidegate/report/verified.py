"""What people read of a verified log."""

from __future__ import annotations

from tidegate.core.verify import Verification


def verified(found: Verification) -> str:
    """What was checked, what was found, and what cannot be checked from rows: one sentence a line, less than a screen."""
    kinds, counts = found.checked, found.counts
    if found.ok:
        lines = ["The account holds: everything that was recomputed agrees."]
    else:
        lines = [
            f"The account does NOT hold. First failure: {found.reason.rstrip('.')}.",
            f"The commits before it agree, {found.commits} in number. Nothing after it was read.",
        ]
    lines += [
        f"Commits: {found.commits}. Each hash is that of its content and of the commit before it. "
        f"The last step is {found.step}, and the head is {found.head.hex()[:16]}….",
        f"Charges: {_many(counts.steps, 'charged step')}, {_many(counts.spans, 'span')} and "
        f"{_many(kinds['events'], 'event')}. No window has spent more than its limit.",
        f"Budget: {_many(kinds['scopes'], 'scope')} in {_many(kinds['opened'] + kinds['amended'], 'description')}. "
        "In no window do the shares exceed the smallest budget in force.",
    ]
    if kinds["halted"] or kinds["restarted"]:
        lines.append(
            f"Failures: {_many(kinds['halted'], 'halt')} and {_many(kinds['restarted'], 'restart')}. "
            "Each halt charges all that was left, and nothing is charged until its windows have passed."
        )
    if kinds["amended"]:
        lines.append(
            f"Amendments: {kinds['amended']}. Each begins its scopes where the budget allows it, and not before."
        )
    lines += [
        f"Releases: {_many(counts.releases, 'commit')} with releases that have the hash in the chain; "
        f"{_many(counts.dropped, 'commit')} whose releases were dropped.",
        "Not checked: that the noise is as large as the charges say (see the proofs and the audit), and that no "
        "newer copy of this log exists (compare the head with one that was kept elsewhere).",
    ]
    if not found.private:
        lines.append("WARNING: this log was written with fixed noise, for tests. Nothing in it is protected.")
    return "\n".join(lines)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
