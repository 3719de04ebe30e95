"""Proofs stay true to their code: a page names its sources, and what they were when it was last read.

A page under ``docs/proofs`` has two lines::

    Covers: src/tidegate/mechanisms/plain/uniform.py
    Read against: 0123456789abcdef

When a covered source changes, the page is stale until somebody has read the proof against the new source and
says so: ``python -m tidegate.testing.proofs --accept uniform``. Without ``--accept`` stale pages are listed.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_COVERS = re.compile(r"^Covers: *(?P<sources>.+?) *$", re.MULTILINE)
_READ = re.compile(r"^Read against: *(?P<digest>\S*) *$", re.MULTILINE)


@dataclass(frozen=True)
class Proof:
    """One page: what it covers, and the digest it was read against.

    Attributes
    ----------
    page
        The Markdown file.
    sources
        The files that it is about, relative to the root of the repository.
    digest
        What the page says it was read against; empty where it says nothing.
    """

    page: Path
    sources: tuple[str, ...]
    digest: str

    def problem(self, root: Path) -> str | None:
        """What is wrong with the page, as one sentence, or None."""
        page = self.page.relative_to(root)
        if not self.sources:
            return f"{page} does not say what it covers; add a line `Covers: src/tidegate/…`."
        missing = [source for source in self.sources if not (root / source).is_file()]
        if missing:
            return f"{page} covers {missing[0]}, which does not exist; correct its line `Covers:`."
        if not self.digest:
            return (
                f"{page} was never accepted; write the proof, read it against {', '.join(self.sources)}, "
                f"and run `python -m tidegate.testing.proofs --accept {self.page.stem}`."
            )
        if self.digest != digest_of(self.sources, root):
            return (
                f"{page} was last read before {', '.join(self.sources)} changed; read the proof again "
                f"and run `python -m tidegate.testing.proofs --accept {self.page.stem}`."
            )
        return None


def digest_of(sources: Sequence[str], root: Path) -> str:
    """A short digest of the names and contents of the sources."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.encode() + b"\0" + (root / source).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def read_proof(page: Path) -> Proof:
    """Read the two lines of a page."""
    text = page.read_text(encoding="utf-8")
    covers, read = _COVERS.search(text), _READ.search(text)
    sources = re.split(r"[,\s]+", covers["sources"].replace("`", "")) if covers else []
    return Proof(page, tuple(filter(None, sources)), read["digest"].strip("`") if read else "")


def proofs(root: Path) -> list[Proof]:
    """All pages under ``docs/proofs``."""
    pages = sorted((root / "docs" / "proofs").glob("*.md"))
    return [read_proof(page) for page in pages if page.stem != "README"]


def accept(proof: Proof, root: Path) -> None:
    """Write down that a page was read against the sources as they are now."""
    line = f"Read against: {digest_of(proof.sources, root)}"
    text = proof.page.read_text(encoding="utf-8")
    if _READ.search(text):
        text = _READ.sub(line, text, count=1)
    else:
        text = _COVERS.sub(lambda found: f"{found[0].rstrip()}\n{line}", text, count=1)
    proof.page.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """List stale pages, or accept them; run it in the root of the repository."""
    parser = argparse.ArgumentParser(prog="python -m tidegate.testing.proofs", description=main.__doc__)
    parser.add_argument(
        "--accept", nargs="*", metavar="PAGE", help="pages that were read again; none means all"
    )
    wanted = parser.parse_args(arguments).accept
    root = Path.cwd()
    unknown = sorted({*(wanted or ())} - {proof.page.stem for proof in proofs(root)})
    if unknown:
        parser.error(f"there is no page docs/proofs/{unknown[0]}.md here; run it where docs is.")
    if wanted is not None:
        for proof in proofs(root):
            if proof.sources and (not wanted or proof.page.stem in wanted):
                accept(proof, root)
    problems = [problem for proof in proofs(root) if (problem := proof.problem(root))]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
