"""Spelling, and words that everybody reads at once: in pages, docstrings, comments, messages and notebooks."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORDS = tomllib.loads((ROOT / "tests" / "words.toml").read_text(encoding="utf-8"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *(ROOT / "tests" / "reports").glob("*.md")]
SOURCES = [
    *(ROOT / "src").glob("**/*.py"),
    *(ROOT / "benchmarks").glob("*.py"),
    *(ROOT / "docs").glob("*/*.py"),
]
NOTEBOOKS = [*(ROOT / "docs" / "notebooks").glob("*.ipynb")]
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"\{[^{}]*\}")  # what an f-string fills in is code
PROSE = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
MANNERED = re.compile(rf"\b({'|'.join(map(re.escape, WORDS['mannered']))})\b", re.IGNORECASE)
DIALECT = re.compile(rf"\b({'|'.join(map(re.escape, WORDS['dialect']))})\b", re.IGNORECASE)
FOLDERS = ("concepts", "howto", "operating", "mechanisms", "internals", "reference")
READ = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(page for folder in FOLDERS for page in (ROOT / "docs" / folder).glob("**/*.md")),
]
# the first pages that somebody reads: no sentence is longer than this
FIRST = (
    "README.md",
    "docs/index.md",
    "docs/tutorial.md",
    "docs/concepts/privacy.md",
    "docs/howto/index.md",
    "docs/install.md",
)
LONGEST = 45  # words


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """What a file says to people, with the number of the line; code in it is left out."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from enumerate(CODE.sub(lambda code: "\n" * code[0].count("\n"), text).splitlines(), 1)
    elif path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(text)["cells"], 1):
            yield number, "".join(cell["source"])
    else:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in PROSE:
                yield token.start[0], PLACE.sub("", token.string)


@pytest.mark.parametrize("kind", ["pages", "sources", "notebooks"])
def test_words_are_plain(kind: str) -> None:
    """No word of the list of mannered ones; tests/words.toml says what to write in its place."""
    files = {"pages": PAGES, "sources": SOURCES, "notebooks": NOTEBOOKS}[kind]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}: {WORDS['mannered'][word.lower()]}"
        for path in files
        for line, text in prose(path)
        for word in MANNERED.findall(text)
    ]
    assert found == []


def test_pages_use_the_words_of_the_field() -> None:
    """tests/words.toml says what to write in place of each."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}: {WORDS['dialect'][word.lower()]}"
        for path in READ
        for line, text in prose(path)
        for word in DIALECT.findall(text)
    ]
    assert found == []


def test_a_mannered_word_is_found(tmp_path: Path) -> None:
    """The negative control: one in a docstring, one in a page, none in code."""
    (tmp_path / "a.py").write_text('told = 1\n"""Nobody was told."""\n')
    (tmp_path / "a.md").write_text("`told` is a name.\nThe dearest one.\n")
    found = [MANNERED.findall(text) for name in ("a.py", "a.md") for _, text in prose(tmp_path / name)]
    assert found == [["told"], [], ["dearest"]]


def test_words_are_spelt_right() -> None:
    """codespell finds nothing; a real word that it does not know goes into tests/words.toml."""
    accepted = ",".join([*WORDS["accepted"]["words"], *WORDS["accepted"]["mistakes"]])
    command = [sys.executable, "-m", "codespell_lib", "--quiet-level", "3", "--ignore-words-list", accepted]
    skip = ["--skip", "*.js,*.png,*.ledger,*.ipynb,*.parquet,*.pyc,words.toml"]
    places = ["src", "docs", "tests", "benchmarks", "mkdocs.yml", "pyproject.toml", "Makefile"]
    places += [path.name for path in ROOT.glob("*.md")]
    done = subprocess.run([*command, *skip, *places], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", FIRST)
def test_sentences_of_the_first_pages_are_short(name: str) -> None:
    """Somebody whose first language is another one reads each of them at once."""
    text = CODE.sub("", (ROOT / name).read_text(encoding="utf-8"))
    paragraphs = re.split(r"\n\s*\n|\n(?=[-|#*])|\n\d\. ", text)
    sentences = [each for part in paragraphs if "|" not in part for each in re.split(r"(?<=[.:;?!])\s", part)]
    assert [sentence for sentence in sentences if len(sentence.split()) > LONGEST] == []
