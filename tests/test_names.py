from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import tidegate as tg
from tidegate import mechanisms
from tidegate.mechanisms import Mechanism, Uniform, catalogue

ROOT = Path(__file__).resolve().parent.parent
POLICY = tg.WEvent(epsilon="1", window=4)
POLICIES: list[type] = [tg.Event, tg.WEvent, tg.User, tg.Swellfish]
USERS_FILE = """
import tidegate as tg
from tidegate.mechanisms import Tide, Uniform

policy = tg.WEvent(epsilon="1", window=24)
mechanism = Uniform(policy, columns=3)
scale: float = mechanism.scale
Tide(policy)
tg.mechanisms.PeGaSus(tg.Event(epsilon="1"))
with tg.open(mechanism, "service.ledger") as run:
    release = run.push([1, 2, 3])
    step: int = release.step
    rows: int = sum(each.to_polars().height for each in run.releases(since=3))

Uniform(policy, colums=3)  # type: ignore[call-arg]
tg.WEvent(epsilon="1", w=24)  # type: ignore[call-arg]
tg.mechanisms.Pegasus  # type: ignore[attr-defined]
tg.Nothing  # type: ignore[attr-defined]
wrong: str = mechanism.scale  # type: ignore[assignment]
"""


@pytest.mark.slow
def test_type_checkers_see_the_real_classes(tmp_path: Path) -> None:
    """mypy --strict passes what is right and finds what is wrong: an ignored line without a mistake is an error too."""
    path = tmp_path / "users_file.py"
    path.write_text(USERS_FILE)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        check=False,
    )
    assert "Success" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_sees_the_real_classes(tmp_path: Path) -> None:
    """Errors stand in exactly those lines in which mypy expects them, without a comment that hides them."""
    lines = USERS_FILE.splitlines()
    path = tmp_path / "users_file.py"
    path.write_text("\n".join(line.partition("  # type: ignore")[0] for line in lines) + "\n")
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT / "src")], "include": [path.name]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    wrong = {each["range"]["start"]["line"] for each in found if each["severity"] == "error"}
    assert wrong == {number for number, line in enumerate(lines) if "# type: ignore" in line}, found


def test_the_catalogue_is_named_for_type_checkers() -> None:
    """Every mechanism stands in __all__ and among the imports that type checkers read, from the file it is in."""
    tree = ast.parse(Path(mechanisms.__file__ or "").read_text())
    seen = {
        (alias.name, node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == {(name, kind.__module__) for name, kind in catalogue().items()}
    assert set(mechanisms.__all__) == {*catalogue(), "Mechanism", "catalogue"}


def test_everything_can_be_imported_at_once() -> None:
    """`import *` brings every mechanism, and hides no built-in name."""
    names: dict[str, object] = {}
    exec(
        "from tidegate.mechanisms import *\nfrom tidegate import *", names
    )  # the statement is what is tested
    assert set(catalogue()) - {"Swellfish"} < set(names)
    assert "open" not in names
    for room in ("ingest", "plan", "audit", "core", "datasets"):
        assert inspect.ismodule(getattr(tg, room))


@pytest.mark.parametrize("kind", [*POLICIES, *catalogue().values()], ids=lambda kind: kind.__name__)
def test_help_documents_every_parameter(kind: type) -> None:
    """What a constructor takes is explained in its own docstring, not only named."""
    section = (kind.__doc__ or "").partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    named = [line for line in section.splitlines() if line and not line.startswith(" ")]
    explained = {name for line in named for name in line.split(", ")}
    assert {each.name for each in fields(kind) if each.init} <= explained
    assert "As for every" not in section


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        (tg.WEvent, "w", "window"),
        (tg.WEvent, "eps", "epsilon"),
        (tg.User, "max_time", "horizon"),
        (Uniform, "colums", "columns"),
        (Uniform, "dimensions", "columns"),
    ],
)
def test_a_wrong_parameter_is_answered(kind: type, wrong: str, right: str) -> None:
    """The sentence names what is meant."""
    with pytest.raises(TypeError, match=f"no parameter '{wrong}'; did you mean '{right}'"):
        kind(**{wrong: 1})


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("BD", "BudgetDistribution"), ("Pegasus", "PeGaSus"), ("Unifrom", "Uniform"), ("DFT", "Fourier")],
)
def test_a_wrong_class_is_answered(wrong: str, right: str) -> None:
    """Both doors name what is meant."""
    for door in (mechanisms, tg):
        with pytest.raises(AttributeError, match=f"did you mean .*{right}"):
            getattr(door, wrong)


def test_a_class_of_a_user_is_left_alone() -> None:
    """Subclasses may take more, and signatures say what they are."""

    class Louder(Uniform):
        def __init__(self, policy: tg.WEvent, *, loud: bool) -> None:
            super().__init__(policy)
            object.__setattr__(self, "loud", loud)

    assert isinstance(Louder(POLICY, loud=True), Mechanism)
    assert list(inspect.signature(Uniform).parameters)[:2] == ["policy", "columns"]
