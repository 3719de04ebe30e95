"""What the site needs besides its pages: changes, notebooks, mathematics without scripts, and links to proofs.

Formulas become MathML while the site is built, which browsers draw by themselves: no script, no font, no network.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

COVERS = re.compile(r"^Covers: .*(?:\n[A-Z][\w ]+: .*)*", re.MULTILINE)
REPORT = re.compile(r"\]\((?:\.\./)+tests/reports/(?P<name>\w+\.md(?:#[\w-]+)?)\)")
SOURCE = re.compile(
    r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?:src|tests|experiments|benchmarks)/[^)\s]+(?: \"[\w.]+\")?\)"
)
NOTEBOOK = re.compile(r"\]\((?P<path>[^)\s:]+)\.ipynb\)")
RAISED = re.compile(r"(?<=[\w)\]|′])\^(?:\{([^{}<]*)\}|(\([^()<]*\)|[-−+±]?[^\W_]+))")
LOWERED = re.compile(r"(?<![\w/.])([^\W\d_]′?)_(?:\{([^{}<]*)\}|([^\W_]{1,4}))(?!\w)")
LITERAL = ("code", "pre", "math", "script", "style", "svg")  # where nothing is raised
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
            home = pages.parent / "tests" if entry.startswith("reports/") else pages
            return sorted(page.relative_to(home).as_posix() for page in home.glob(f"{entry}.md"))
        return entry

    config["nav"] = expanded(config["nav"])
    formulas = {"name": "math", "class": "math", "format": display_mathematics}
    config["mdx_configs"].setdefault("pymdownx.superfences", {})["custom_fences"] = [formulas]
    return config


def as_page(notebook: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown with the outputs that are stored in it, and its pictures by their names."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            shown = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
            if "image/png" in shown:
                name = f"{stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(shown["image/png"])
                parts.append(f"![What this cell draws]({name})")
            elif "text/html" in shown:
                parts.append('<div class="output">' + re.sub(r"\n\s*", " ", shown["text/html"]) + "</div>")
            else:
                text = shown.get("text/plain", "".join(output.get("text", "")))
                parts.append(f"```text\n{text.rstrip()}\n```")
    first, *others = parts
    heading, _, rest = first.partition("\n")
    download = f"[This page as a notebook]({stem}.ipynb){{: download }}"
    return "\n\n".join([heading, download, rest.strip(), *others]) + "\n", pictures


def on_files(files: Any, config: Any) -> Any:
    """CHANGELOG.md, the reports of tests/reports and every notebook become pages."""
    from mkdocs.structure.files import File

    for path in sorted((Path(config["docs_dir"]) / "notebooks").glob("*.ipynb")):
        page, pictures = as_page(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    root = Path(config["config_file_path"]).parent
    for path in sorted((root / "tests" / "reports").glob("*.md")):
        text = path.read_text(encoding="utf-8").replace("](../../docs/", "](../")
        files.append(File.generated(config, f"reports/{path.name}", content=text))
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    files.append(File.generated(config, "changes.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to notebooks and reports lead to their pages. What a proof covers stands at its end."""
    up = "../" * page.file.src_uri.count("/")
    markdown = REPORT.sub(lambda found: f"]({up}reports/{found['name']})", markdown)
    markdown = SOURCE.sub(r"\g<text>", markdown)  # sources are not part of the site
    if not page.file.src_uri.startswith("notebooks/"):
        markdown = NOTEBOOK.sub(r"](\g<path>.md)", markdown)
    found = COVERS.search(markdown)
    return markdown if found is None else f"{markdown.replace(found[0], '', 1)}\n\n---\n\n{found[0]}\n"


def on_page_content(html: str, page: Any, files: Any, **_: Any) -> str:
    """A proof that a docstring mentions by its path is a link; powers and indices are set as such."""

    def link(found: re.Match[str]) -> str:
        target = files.get_file_from_path(f"{found['page']}.md")
        if target is None:
            return found[0]
        return f'<a href="{target.page.file.url_relative_to(page.file)}">{found[0]}</a>'

    return typeset(MENTIONED.sub(link, html))


def typeset(html: str) -> str:
    """Powers and indices that are written as 2^56 and ε_P in a page stand above and below the line."""
    found, inside = [], 0
    for part in re.split(r"(<[^>]+>)", html):
        if part.startswith("<"):
            name = re.match(r"</?([a-z0-9]+)", part)
            if name and name[1] in LITERAL and not part.endswith("/>"):
                inside += -1 if part.startswith("</") else 1
        elif not inside:
            part = RAISED.sub(lambda at: f"<sup>{at[1] or at[2]}</sup>", part)
            part = LOWERED.sub(lambda at: f"{at[1]}<sub>{at[2] or at[3]}</sub>", part)
        found.append(part)
    return "".join(found)
