"""What the site needs besides its pages: the changes, mathematics without scripts, and links to proofs.

Formulas become MathML while the site is built, which browsers draw by themselves: no script, no font, no network.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

COVERS = re.compile(r"^Covers: .*(?:\n[A-Z][\w ]+: .*)*", re.MULTILINE)
MENTIONED = re.compile(r"(?<![\w/\"])docs/(?P<page>[a-z_]+(?:/[a-z_]+)?)\.md")


def display_mathematics(source: str, *_: Any, **__: Any) -> str:
    """A formula of its own, from a fenced block of the language math."""
    return f'<div class="formula">{convert(source, display="block")}</div>'


def on_config(config: Any) -> Any:
    """The navigation's `folder/*` stands for all pages of a folder, and ```math for a formula."""
    pages = Path(config["docs_dir"])

    def expanded(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {title: expanded(below) for title, below in entry.items()}
        if isinstance(entry, list):
            return [expanded(below) for below in entry]
        if entry.endswith("/*"):
            return sorted(page.relative_to(pages).as_posix() for page in pages.glob(f"{entry}.md"))
        return entry

    config["nav"] = expanded(config["nav"])
    formulas = {"name": "math", "class": "math", "format": display_mathematics}
    config["mdx_configs"].setdefault("pymdownx.superfences", {})["custom_fences"] = [formulas]
    return config


def on_files(files: Any, config: Any) -> Any:
    """CHANGELOG.md, which stands at the root of the repository, becomes a page."""
    from mkdocs.structure.files import File

    text = (Path(config["config_file_path"]).parent / "CHANGELOG.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    files.append(File.generated(config, "changes.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What a proof covers stands at its end: readers, and the search, begin with the proof."""
    found = COVERS.search(markdown)
    return markdown if found is None else f"{markdown.replace(found[0], '', 1)}\n\n---\n\n{found[0]}\n"


def on_page_content(html: str, page: Any, files: Any, **_: Any) -> str:
    """A proof that a docstring mentions by its path is a link."""

    def link(found: re.Match[str]) -> str:
        target = files.get_file_from_path(f"{found['page']}.md")
        if target is None:
            return found[0]
        return f'<a href="{target.page.file.url_relative_to(page.file)}">{found[0]}</a>'

    return MENTIONED.sub(link, html)
