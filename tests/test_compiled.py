"""Compiled code is never stale, and kernels stand where the cache's key sees them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tidegate import compiled, light_compiler

CALLEE = """from fake.compiled import kernel

@kernel
def inner(x):
    return x + {added}
"""
CALLER = """from fake.compiled import kernel
from fake.one.kernels import inner

@kernel
def outer(x):
    return 10 * inner(x)
"""


def run(folder: Path, expression: str, **more: str) -> str:
    """The value of an expression in a fresh process that has the fake package and a cache of its own."""
    code = f"from fake.two.kernels import outer; print({expression})"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(folder)} | more
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def callee(tmp_path: Path) -> Path:
    """A kernel of a fake package, which a kernel of another file calls."""
    package = tmp_path / "fake"
    for name in ("one", "two"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    (package / "__init__.py").touch()
    for name in ("compiled.py", "light_compiler.py", "first_use.py"):
        text = (compiled.PACKAGE / name).read_text(encoding="utf-8")
        (package / name).write_text(text.replace("from tidegate", "from fake"), encoding="utf-8")
    callee = package / "one" / "kernels.py"
    callee.write_text(CALLEE.format(added=1))
    (package / "two" / "kernels.py").write_text(CALLER)
    return callee


HITS = "sum(outer.stats.cache_hits.values())"


def test_a_changed_callee_in_another_file_is_noticed(tmp_path: Path, callee: Path) -> None:
    """A kernel that calls a kernel of another file gives the new value after the callee has changed."""
    assert run(tmp_path, f"outer(1), {HITS}") == "20 0"
    assert run(tmp_path, f"outer(1), {HITS}") == "20 1"  # the cache is used at all
    callee.write_text(CALLEE.format(added=2))
    assert run(tmp_path, f"outer(1), {HITS}") == "30 0"


@pytest.mark.parametrize(
    "environment",
    [
        {"NUMBA_CACHE_DIR": "/dev/null/cache"},  # no folder can be made there, whoever asks
        {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": "/dev/null"},
        {"NUMBA_CACHE_LOCATOR_CLASSES": "InTreeCacheLocator"},
    ],
)
def test_machine_code_is_kept_in_its_own_folder_or_nowhere(
    tmp_path: Path, callee: Path, environment: dict[str, str]
) -> None:
    """Whatever the compiler would fall back to, a changed callee is noticed and nothing lies beside the sources."""
    assert run(tmp_path, "outer(1)", **environment) == "20"
    callee.write_text(CALLEE.format(added=2))
    assert run(tmp_path, "outer(1)", **environment) == "30"
    assert not [path for path in (tmp_path / "fake").rglob("*") if path.suffix in (".nbi", ".nbc")]


def test_sources_that_were_replaced_under_a_process_leave_nothing_in_its_folder(
    tmp_path: Path, callee: Path
) -> None:
    """What it compiles after an upgrade belongs to no digest: nobody who goes back to the old sources finds it."""
    swap = f"__import__('pathlib').Path({str(callee)!r}).write_text({CALLEE.format(added=2)!r})"
    assert run(tmp_path, f"({swap}, outer(1))[1]") == "20"
    callee.write_text(CALLEE.format(added=1))
    assert run(tmp_path, f"outer(1), {HITS}") == "20 0"


def test_damaged_machine_code_is_compiled_again(tmp_path: Path, callee: Path) -> None:
    """A power cut may leave files without content."""
    run(tmp_path, "outer(1)")
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert kept
    for path in kept:
        path.write_bytes(b"")
    assert run(tmp_path, f"outer(1), {HITS}") == "20 0"
    assert run(tmp_path, f"outer(1), {HITS}") == "20 1"


def test_kernels_stand_in_kernel_files_only() -> None:
    """No source outside the files that the cache's key covers compiles anything."""
    covered = set(compiled.kernel_sources())
    compiles = re.compile(
        r"\b(njit|jit|vectorize|guvectorize|cfunc|intrinsic|overload)\b *\(|^@\w*\.?(njit|jit|kernel|lean)\b",
        re.M,
    )
    offenders = [
        path.relative_to(compiled.PACKAGE).as_posix()
        for path in compiled.PACKAGE.rglob("*.py")
        if path not in covered and compiles.search(path.read_text())
    ]
    assert offenders == []
    assert any(compiles.search(path.read_text()) for path in covered)


def test_the_digest_covers_every_kernel_source(tmp_path: Path) -> None:
    """Any change of any kernel file, in either layout, changes the cache folder's name."""
    for name in ("a/kernels.py", "b/kernels/deep.py", "compiled.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    seen = {compiled.sources_digest(tmp_path)}
    for name in ("a/kernels.py", "b/kernels/deep.py", "compiled.py"):
        (tmp_path / name).write_text("two")
        seen.add(compiled.sources_digest(tmp_path))
    assert len(seen) == 4
    (tmp_path / "a" / "other.py").write_text("not a kernel")
    assert compiled.sources_digest(tmp_path) in seen


def test_a_first_push_does_not_load_linear_algebra():
    """Numba looks for scipy.linalg when it starts; here it takes it for granted, and loads it where it is needed."""
    script = """
import sys
import numpy as np
import tidegate as tg
tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=24))).push(12)
assert "numba" in sys.modules
assert not {"scipy.linalg", "numpy.f2py", "polars", "matplotlib"} & set(sys.modules)
import numba.np.arraymath, numba.np.linalg
assert numba.np.arraymath._HAVE_BLAS
numba.np.linalg.ensure_blas()
assert "scipy.linalg" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


@pytest.mark.slow
def test_a_first_push_loads_machine_code_only():
    """What Numba knows of types and functions is not looked at before something is compiled, which works as ever."""
    script = """
import numba.core.base
import tidegate as tg
from tidegate import light_compiler
looks = []
refresh = numba.core.base.BaseContext.refresh
numba.core.base.BaseContext.refresh = lambda self: (looks.append(1), refresh(self))
mechanism = tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=24))
tg.open(mechanism).push(12)
print(len(looks))
assert light_compiler.numba.njit(lambda x: x + 1)(1) == 2 and looks
"""
    command = [sys.executable, "-c", script]
    subprocess.run(command, check=True, timeout=300)  # fills the cache, if nothing else has
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    assert done.stdout == "0\n"


def test_a_lean_kernel_counts_nothing_and_returns_no_array() -> None:
    """References to arrays are not counted in it, and one that would return an array is refused."""

    def total(arrays: tuple[np.ndarray, ...], rows: int) -> float:
        result = 0.0
        for row in range(rows):
            part = arrays[0][row]
            result += part[0] if row % 2 else arrays[1][row]
        return result

    arrays = np.arange(8.0).reshape(4, 2), np.ones(4)
    counting, lean = compiled.kernel(total), compiled.lean(total)
    for function in (counting, lean):  # the same source, but not the same machine code
        function._cache = light_compiler.caching.NullCache()  # type: ignore[attr-defined]
    assert counting(arrays, 4) == lean(arrays, 4) == 10.0
    code = [next(iter(function.inspect_llvm().values())) for function in (counting, lean)]  # type: ignore[attr-defined]
    assert ["@NRT_incref(" in text for text in code] == [True, False]

    @compiled.lean
    def row_of(matrix: np.ndarray) -> object:
        return 1, matrix[0]

    with pytest.raises(TypeError, match="row_of returns an array"):
        row_of(arrays[0])


class _Interrupted(BaseException):
    """What a handler raises."""


def test_an_interruption_waits_until_a_kernel_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a handler raises while machine code is made is raised afterwards, whichever thread has got the signal."""
    seen, handled, done = [], threading.Event(), threading.Event()

    @compiled.kernel
    def plus_one(number: int) -> int:
        return number + 1

    def interrupted(signal_number: int, frame: object) -> None:
        handled.set()
        raise _Interrupted

    def save(*arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGALRM)
        assert handled.wait(60)
        seen.append("made")

    monkeypatch.setattr(plus_one._cache, "save_overload", save)  # type: ignore[attr-defined]
    monkeypatch.setattr(plus_one._cache, "load_overload", lambda *arguments: None)  # type: ignore[attr-defined]
    other = threading.Thread(target=done.wait)  # blocks no signal, so that it gets those which others block
    other.start()
    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        with pytest.raises(_Interrupted):
            plus_one(1)
    finally:
        signal.signal(signal.SIGALRM, before)
        done.set()
        other.join()
    assert seen == ["made"]
    assert len(plus_one.signatures) == 1  # type: ignore[attr-defined]
    assert plus_one(1) == 2


def test_an_error_of_the_compiler_is_raised_where_the_kernel_was_called() -> None:
    """It is not lost in the thread that compiles."""

    @compiled.kernel
    def odd(number: int) -> object:
        return number.nothing  # type: ignore[attr-defined]

    with pytest.raises(compiled.numba.TypingError):
        odd(1)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_start_leaves_the_collector_as_it_was(frozen: bool) -> None:
    """What is imported is old at once, and what a program has set aside before stays aside."""
    script = (
        f"import gc; {'gc.freeze()' if frozen else 'pass'}; before = gc.get_freeze_count(); "
        "import tidegate.light_compiler; "
        "assert gc.isenabled() and (gc.get_freeze_count() > 0) == (before > 0); "
        "assert before or len(gc.get_objects(2)) > 50_000"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_who_listens_hears_what_is_compiled(tmp_path: Path) -> None:
    """The number of the kernel and how many are usual, then that it is done; nothing of what is on the disk."""
    code = (
        "import numpy as np\n"
        "from tidegate.core.values import copy_values\n"
        "from tidegate.first_use import telling\n"
        "heard = []\n"
        "with telling(heard.append):\n"
        "    copy_values(np.arange(3), np.empty(3, dtype=np.int64))\n"
        "print([words for words in heard if words])\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
        )
        for _ in range(2)
    ]
    assert [each.stdout for each in said] == ["['compiling, first use only (1 of 25)']\n", "[]\n"]
