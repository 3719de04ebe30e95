from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import paper_links
import pictures
import tidegate
from tidegate.cli import main
from tidegate.cli.reference import reference

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted((ROOT / "tests" / "reports").glob("*.md")),
]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)[^)]*\)")
ANCHOR = re.compile(r"\]\((?P<target>[^)#\s]*)#(?P<anchor>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(?P<words>.+?) *$", re.MULTILINE)


def name(page: Path) -> str:
    """The page as tests name it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language, each with the line that it begins on."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start("body")), found["body"])
        for found in FENCE.finditer(text)
        if found["language"] == language
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All Python blocks of a page run in their order, in one namespace."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__example__"}
    for line, body in blocks(page, "python"):
        # Empty lines in front make a traceback point at the line of the page.
        exec(compile("\n" * line + body, str(page), "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=name)
def test_console_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `$ tidegate …` of a page ends with exit code 0."""
    monkeypatch.chdir(tmp_path)
    for _, body in blocks(page, "console"):
        for command in re.findall(r"^\$ tidegate\b(.*)$", body, re.MULTILINE):
            assert main(shlex.split(command, comments=True)) == 0, command


@pytest.mark.slow  # several processes
def test_the_drill_restores_a_stream(tmp_path: Path) -> None:
    """The lines of docs/operating/backup.md, in a folder with a stream that has released something."""
    (lines,) = [body for _, body in blocks(ROOT / "docs" / "operating" / "backup.md", "bash")]
    head = 'set -e; tidegate() { "$PYTHON" -m tidegate "$@"; }\n'
    begin = (
        "tidegate datasets make campus --out . --weeks 1\n"
        'tidegate init events.csv --out tidegate.toml --unit device --categories "Library, Cafeteria" '
        "--start 2026-03-02 --count 24 --epsilon 1 --window 24 --force\n"
        "tidegate release tidegate.toml\n"
    )
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": path}
    done = subprocess.run(
        ["bash", "-c", head + begin + lines],
        cwd=tmp_path,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "lost" / "tidegate.ledger").exists()
    assert (tmp_path / "tidegate.ledger").exists()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that exists."""
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if "://" not in target and not (page.parent / target).exists()] == []


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings: small letters, hyphens for spaces, no punctuation, a number for a repetition."""
    seen: dict[str, int] = {}
    found = set()
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for words in HEADING.findall(text):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{slug}_{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_anchors_lead_somewhere(page: Path) -> None:
    """Every link with a `#` names a heading of the page that it leads to."""
    broken = []
    for target, anchor in ANCHOR.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            aim = (page.parent / target).resolve() if target else page
            broken += [f"{target}#{anchor}"] if aim.suffix == ".md" and anchor not in anchors(aim) else []
    assert broken == []


def test_every_picture_is_shown() -> None:
    """No picture is left behind by a page that changed."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = (ROOT / "docs" / "pictures").glob("**/*.png")
    assert [picture.name for picture in pictures if picture.name not in text] == []


def test_pictures_are_as_their_scripts_draw_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every picture has a script; a script, or a picture, that was changed since they were drawn together is noticed."""
    listed = {name for entry in pictures.made() for name in entry["pictures"]}
    drawn = {path.name for path in pictures.PICTURES.glob("*.png") if not path.name.startswith("service_")}
    assert listed == drawn
    assert pictures.stale() == []
    entry = pictures.made()[0]
    monkeypatch.setattr(pictures, "ROOT", tmp_path)
    (tmp_path / entry["script"]).parent.mkdir(parents=True)
    (tmp_path / entry["script"]).write_text("draw = 'something else'")
    assert pictures.digest(entry) != entry["digest"]


PROOFS = sorted((ROOT / "docs" / "proofs").glob("*.md"))


def test_every_mechanism_has_a_section() -> None:
    """A row of the index says when it wins and when not; a section of its family's page says where its proof is."""
    folder = ROOT / "docs" / "mechanisms"
    index = (folder / "index.md").read_text(encoding="utf-8")
    sections = {
        part.partition("\n")[0]: (page.name, part)
        for page in folder.glob("*.md")
        if page.name != "index.md"
        for part in page.read_text(encoding="utf-8").split("\n## ")[1:]
    }
    lacking = []
    for kind in tidegate.mechanisms.catalogue().values():
        page, text = sections.get(kind.__name__, ("", ""))
        source = f"src/{kind.__module__.replace('.', '/')}.py"
        covering = [path for path in PROOFS if source in path.read_text(encoding="utf-8")]
        # its own page names it first; others cover it for a loop that they share
        own = [path for path in covering if f"Covers: {source}" in path.read_text(encoding="utf-8")]
        proof = (own or covering)[0].name
        parts = (f"(../proofs/{proof})", "](../pictures/")
        asked = (*parts, f"::: {kind.__module__}.{kind.__name__}")
        lacking += [f"{kind.__name__}: {part}" for part in asked if part not in text]
        row = rf"^\| \[`{kind.__name__}`\]\({page}#{kind.__name__.lower()}\) \| [^|]+ \| [^|]+ \| \[proof\]"
        if not re.search(row, index, re.MULTILINE):
            lacking.append(f"docs/mechanisms/index.md: {kind.__name__}")
    assert lacking == []


def test_every_page_is_in_the_navigation() -> None:
    """A page that the site does not lead to is not read."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = (page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").glob("**/*.md"))
    assert [page for page in pages if page not in navigation and not page.startswith("proofs/")] == []


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocstrings") is None,
    reason="the site needs MkDocs: pip install 'tidegate[docs]', or run make docs",
)
def test_the_site_opens_from_disk(tmp_path: Path) -> None:
    """The site builds without a warning, loads nothing from the network, and can be searched."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>")
    pages = [page for page in tmp_path.glob("**/*.html") if page.name != "404.html"]
    assert len(pages) > 80
    assert [found for page in pages for found in loads.findall(page.read_text(encoding="utf-8"))] == []
    assert "<math" in (tmp_path / "concepts" / "privacy.html").read_text(encoding="utf-8")
    proof = (tmp_path / "proofs" / "noise_laplace.html").read_text(encoding="utf-8")
    assert "2<sup>56</sup>" in proof
    prose = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", proof, flags=re.DOTALL)
    assert not re.search(r"\w\^[-−\w{]", prose)
    index = json.loads(
        (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8").partition("=")[2]
    )
    found = {entry["location"] for entry in index["docs"] if "budgetabsorption" in entry["title"].lower()}
    assert any(place.startswith("mechanisms/w_event.html") for place in found)


# The numbered items of each paper, counted in the paper. A number is a run 1, 2, …; names are as printed.
NUMBERED: dict[str, dict[str, int | list[str]]] = {
    "w_event": {"Definition": 4, "Theorem": 7, "Lemma": 1, "Equation": 1, "Figure": 10},
    "pegasus": {
        "Definition": ["2.4", "2.6", "2.7", "2.8"],
        "Example": ["2.1", "2.2", "2.3", "2.5", "3.2", "3.5"],
        "Lemma": ["3.3"],
        "Theorem": ["3.1", "3.4", "3.6", "5.1", "5.2", "5.3"],
        "Algorithm": 4,
        "Figure": 8,
        "Table": 1,
    },
    "optstream": {
        "Definition": 3,
        "Example": 5,
        "Equation": 6,
        "Lemma": 1,
        "Theorem": 13,
        "Algorithm": 4,
        "Figure": 11,
        "Table": 2,
    },
    "perrier": {
        "Definition": 12,
        "Proposition": 2,
        "Mechanism": 1,
        "Equation": 19,
        "Figure": 13,
        "Table": ["I", "II"],
    },
    "swellfish": {
        "Definition": 16,
        "Theorem": 11,
        "Example": 1,
        "Figure": 4,
        "Table": ["I", "II", "III"],
    },
}


def rows_of(paper: str) -> list[list[str]]:
    """The cells of all tables of a paper's page, without their heads."""
    lines = (ROOT / "docs" / "papers" / f"{paper}.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in cells if row[0].strip() != "in the paper"]


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_item_of_a_paper_is_on_its_page(paper: str) -> None:
    """Each has one row, and each row a verdict."""
    asked = []
    for kind, numbers in NUMBERED[paper].items():
        runs = [str(number) for number in range(1, numbers + 1)] if isinstance(numbers, int) else numbers
        asked += [f"{kind} {number}" for number in runs]
    rows = rows_of(paper)
    found = [row[0] for row in rows if re.fullmatch(r"[A-Z][a-z]+ ([\d.]+|[IVX]+)", row[0])]
    assert sorted(found) == sorted(asked)
    assert [row[0] for row in rows if len(row) != 5 or not row[4]] == []


@pytest.mark.parametrize("paper", NUMBERED)
def test_a_papers_page_says_what_the_code_and_the_experiments_say(paper: str) -> None:
    """Classes that it names exist, and outcomes of figures are those of docs/experiments/papers.md."""
    folders = ("src", "experiments", "tests/audit/zoo")
    paths = (path for folder in folders for path in (ROOT / folder).glob("**/*.py"))
    sources = "".join(path.read_text(encoding="utf-8") for path in paths)
    experiments = (ROOT / "docs" / "experiments" / "papers.md").read_text(encoding="utf-8")
    wrong = []
    for item, _, here, _, verdict in rows_of(paper):
        classes = re.findall(r"`(?:\w+\.)?([A-Z][a-z]\w+)", here)
        wrong += [name for name in classes if not re.search(rf"^class {name}\b", sources, re.MULTILINE)]
        label = rf"^\| {paper.replace('_', '-')}, (?:[^|]*, )?{item} \|[^|]*\|[^|]*\| ([^|]+) \|[^|]*\|$"
        outcome = re.search(label, experiments, re.MULTILINE)
        wrong += [f"{item}: {outcome[1]}"] if outcome and outcome[1] != verdict else []
    assert wrong == []


@pytest.mark.parametrize("paper", NUMBERED)
def test_a_papers_rows_lead_to_the_code(paper: str) -> None:
    """Each row links to a line of the repository."""
    wrong = [
        item
        for item, _, here, _, verdict in rows_of(paper)
        if not paper_links.LINK.search(here)
        and not verdict.startswith("left out")
        and "glossary.md" not in here
    ]
    assert wrong == []


def test_the_lines_of_papers_define_what_is_named() -> None:
    """If this fails, run `python tests/paper_links.py --write`."""
    assert paper_links.stale() == []


def test_a_wrong_line_of_a_paper_is_found() -> None:
    """The negative control: the line after the definition."""
    page = ROOT / "docs" / "papers" / "w_event.md"
    link = paper_links.LINK.search(page.read_text(encoding="utf-8"))
    assert link is not None
    moved = paper_links.LINK.match(link[0].replace(f"#L{link['line']}", f"#L{int(link['line']) + 1}"))
    assert moved is not None
    assert paper_links.line_of(moved) == int(link["line"]) != int(moved["line"])


def test_the_citation_names_this_version() -> None:
    """CITATION.cff moves with every release."""
    assert f"\nversion: {tidegate.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_reference_of_commands_is_what_the_code_says() -> None:
    """If this fails, run `python -m tidegate.cli.reference docs/reference/cli.md`."""
    assert (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8") == reference()


def test_the_picture_is_small() -> None:
    """The first page loads quickly."""
    assert (ROOT / "docs" / "pictures" / "demo.png").stat().st_size < 200_000
