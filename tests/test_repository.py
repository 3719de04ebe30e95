from __future__ import annotations

import ast
import importlib.metadata
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegate
from tidegate.compiled import kernel_sources
from tidegate.testing import proofs

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src" / "tidegate").glob("**/*.py"))

# Sample data is public and seeded; a process has a key for hashing, so that ids cannot be crafted to collide; all else
# draws from the one door.
MADE_UP = ("households", "shapes", "streams")
RANDOM_DOORS = {"noise/entropy.py", "process.py", *(f"datasets/{name}.py" for name in MADE_UP)}
RANDOM_MODULES = {"random", "secrets", "numpy.random"}
RANDOM_CALLS = {"os.urandom", "os.getrandom", "np.random", "numpy.random", "uuid.uuid4"}


def tracked() -> Iterator[tuple[str, str]]:
    """Every text file of the repository, or of an unpacked archive: its name and contents."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "ls-files", "-z"]
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        names = listing.rstrip("\0").split("\0")
    else:
        folders = ("src", "tests", "docs", "benchmarks", ".ci")
        files = [*ROOT.glob("*.*"), *(file for folder in folders for file in (ROOT / folder).glob("**/*"))]
        names = [file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts]
    for name in sorted(names):
        path = ROOT / name
        if path.is_file() and path.suffix not in {".png", ".parquet"}:
            # databases are searched as well: they could name a folder
            errors = "replace" if path.suffix == ".ledger" else "strict"
            yield name, path.read_text(encoding="utf-8", errors=errors)


def offenders(pattern: str) -> list[str]:
    """Where a pattern occurs, as file:line; this file, which has to spell the patterns, is left out."""
    return [
        f"{name}:{number}"
        for name, text in tracked()
        if name != "tests/test_repository.py"
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_no_path_of_a_machine() -> None:
    """Nothing names a folder that only one machine has."""
    assert offenders(r"(?<![\w.])/(home|root|Users|work|mnt|workspace)/\w") == []


def test_no_host_of_a_registry() -> None:
    """Nothing names the host of a package registry: installers know where to look."""
    assert (
        offenders(r"(?i)pypi\.org|pythonhosted|artifactory|nexus\.|index-url|/simple/?$|npmjs|crates\.io")
        == []
    )


def test_only_the_entropy_door_touches_randomness() -> None:
    """Random numbers come from noise/entropy.py; a few generators make public sample data."""
    found = {}
    for path in SOURCES:
        name = path.relative_to(ROOT / "src" / "tidegate").as_posix()
        used = sorted(set(_randomness(ast.parse(path.read_text(encoding="utf-8")))))
        if used and name not in RANDOM_DOORS:
            found[name] = used
    assert found == {}


def test_the_check_of_randomness_sees_every_way_in() -> None:
    """The negative control: each of these is found, and an innocent name is not."""
    guilty = ["import random", "from secrets import token_bytes", "import numpy.random as r"]
    guilty += [
        "from numpy import random",
        "np.random.default_rng()",
        "os.urandom(8)",
        "from os import urandom",
    ]
    for line in guilty:
        assert list(_randomness(ast.parse(line))), line
    assert not list(_randomness(ast.parse("from tidegate.policy.secrets import Secret\nrandom_words = 3")))


def _randomness(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in RANDOM_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
            yield from names & (RANDOM_MODULES | RANDOM_CALLS)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in RANDOM_CALLS:
            yield ast.unparse(node)


def test_kernels_stand_where_the_cache_looks() -> None:
    """Whatever compiles is among the sources whose digest names the cache of machine code."""
    compiles = re.compile(
        r"^\s*(import numba|from numba|from tidegate\.compiled import.*\b(kernel|lean)\b)", re.M
    )
    covered = set(kernel_sources())
    strays = [path for path in SOURCES if compiles.search(path.read_text()) and path not in covered]
    assert strays == []


def test_every_mechanism_has_a_proof_and_tests() -> None:
    """A page of proof covers the source of every mechanism, and a file of tests names it."""
    covered = {source for proof in proofs.proofs(ROOT) for source in proof.sources}
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "mechanisms").glob("test_*.py")]
    lacking = []
    for name, mechanism in tidegate.mechanisms.catalogue().items():
        module = mechanism.__module__.rpartition(".")[2]
        source = f"src/{mechanism.__module__.replace('.', '/')}.py"
        if source not in covered:
            lacking.append(f"{name} has no proof: write docs/proofs/{module}.md with `Covers: {source}`")
        if not any(re.search(rf"\b{name}\b", text) for text in tests):
            lacking.append(f"{name} has no tests: write tests/mechanisms/test_{module}.py")
    assert lacking == []


def test_every_proof_was_read_against_the_present_source() -> None:
    """A source that changed after its proof was read fails here until the proof is read again."""
    assert [problem for proof in proofs.proofs(ROOT) if (problem := proof.problem(ROOT))] == []


def test_a_changed_source_makes_its_proof_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Write, accept, change, notice, accept; a page that is not there is refused."""
    monkeypatch.chdir(tmp_path)
    source, page = tmp_path / "mechanism.py", tmp_path / "docs" / "proofs" / "mechanism.md"
    page.parent.mkdir(parents=True)
    source.write_text("epsilon = 1\n")
    page.write_text("# Proof\n\nCovers: `mechanism.py`\n\nText.\n")
    assert proofs.main([]) == 1
    assert "never accepted" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        proofs.main(["--accept", "another"])
    assert "no page docs/proofs/another.md" in capsys.readouterr().err
    assert proofs.main(["--accept", "mechanism"]) == 0
    assert "\nText.\n" in page.read_text()
    source.write_text("epsilon = 2\n")
    assert proofs.main([]) == 1
    assert "last read before" in capsys.readouterr().err
    assert proofs.main(["--accept"]) == 0
    assert page.read_text().count("Read against:") == 1
    source.unlink()
    assert proofs.main([]) == 1


def test_versions_agree() -> None:
    """The package, its installed metadata and the change log name the same version."""
    assert importlib.metadata.version("tidegate") == tidegate.__version__
    assert f"## [{tidegate.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_dependency_has_a_tested_upper_bound() -> None:
    """A new release of a dependency does not break an installation of an old Tidegate."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [entry for entries in project["optional-dependencies"].values() for entry in entries]
    unbounded = [
        entry
        for entry in (*project["dependencies"], *extras)
        if "tidegate[" not in entry and "<" not in entry
    ]
    assert unbounded == []
