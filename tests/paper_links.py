"""Lines of the code in docs/papers: `python tests/paper_links.py` names links that are stale, `--write` corrects them.

A link leads to the line that defines a class, a function, a method or a field. Its title is the qualified name, by which
the line is found again: ``[`Account`](../../src/tidegate/core/account.py#L83 "Account")``.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "papers"
LINK = re.compile(
    r"\]\((?P<file>\.\./\.\./(?:src|experiments|tests)/[^)#\s]+\.py)#L(?P<line>\d+) \"(?P<name>[\w.]+)\"\)"
)


@cache
def definitions(path: Path) -> dict[str, int]:
    """The line of every class and function of a file, and as `Class.member` of every method and field."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.setdefault(node.name, node.lineno)
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    found[f"{node.name}.{each.name}"] = each.lineno
                elif isinstance(each, ast.AnnAssign):
                    found[f"{node.name}.{ast.unparse(each.target)}"] = each.lineno
    return found


def line_of(link: re.Match[str]) -> int | None:
    """Where the name of a link is defined; None where it is not, or where there is no such file."""
    path = (PAGES / link["file"]).resolve()
    return definitions(path).get(link["name"]) if path.is_file() else None


def stale() -> list[str]:
    """A sentence for each link whose line does not define its name."""
    return [
        f"{page.relative_to(ROOT)}: {link['name']} is not defined in line {link['line']} of {link['file'][6:]}; "
        "run `python tests/paper_links.py --write`."
        for page in sorted(PAGES.glob("*.md"))
        for link in LINK.finditer(page.read_text(encoding="utf-8"))
        if line_of(link) != int(link["line"])
    ]


def write() -> None:
    """Correct the lines of all pages."""
    for page in PAGES.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        corrected = LINK.sub(
            lambda link: f']({link["file"]}#L{line_of(link) or link["line"]} "{link["name"]}")', text
        )
        page.write_text(corrected, encoding="utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    sys.exit("\n".join(stale()) or None)
