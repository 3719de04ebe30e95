"""All mutants at once in one process, each behind a switch.

Tests run one after the other without any mutant, and note whose expressions they reach. After each, the process forks
for every mutant that was reached and is still alive, and the child runs the same test with its switch turned on. So
libraries are loaded and tests collected once, and no test runs for a mutant that it cannot notice.

What the package has worked out and kept before is forgotten in the child. Compiled kernels read their switches from a
piece of memory at a fixed address, of which a child has a copy of its own: machine code stays as it is when one is
turned on. It is compiled into a folder that is removed at the end.
"""

from __future__ import annotations

import builtins
import functools
import gc
import os
import re
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import pytest
import select_tests
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings
from mutate import PACKAGE, Mutant
from tests.audit import patching

SWITCH = "__tidegate_mutant__"
ROOMS = ("tests/mechanisms", "tests/core", "tests/noise")
LONGEST = 4.0  # seconds of processor time after which a test is left out
COMPILES = 40.0  # where kernels are compiled for it
RUNS_ON = 30  # seconds of processor time after which a mutant is said to run for ever
REACHED, ON = 0, 1
WAITING = "waits for ever"
WAITS = 45  # seconds of the clock after which it is said to wait for ever, if the test without it does not


@dataclass
class Alive:
    """A mutant that no test has noticed so far: how many have tried, and how long."""

    mutant: Mutant
    tests: int = 0
    seconds: float = 0.0
    functions: dict[str, int] = field(default_factory=dict)


def switched(mutants: Sequence[Mutant]) -> dict[str, str]:
    """The sources of all modules in which mutants stand, with a switch for each of them: its number in the sequence."""
    by_path: dict[str, list[tuple[Mutant, int]]] = {}
    for number, mutant in enumerate(mutants):
        by_path.setdefault(mutant.path, []).append((mutant, number))
    return {own[0][0].module: _file(path, own) for path, own in by_path.items()}


def _file(path: str, mutants: list[tuple[Mutant, int]]) -> str:
    content = (PACKAGE / path).read_bytes()
    inside = sorted(mutants, key=lambda each: (each[0].begin, -each[0].end))
    return _text(content, 0, len(content), inside).decode()


def _text(content: bytes, begin: int, end: int, inside: list[tuple[Mutant, int]]) -> bytes:
    """A part of a file, in which each outermost mutant is a choice between its two texts."""
    text, at = b"", begin
    while inside:
        (first, number), *inside = inside
        within = [each for each in inside if each[0].end <= first.end]
        inside = inside[len(within) :]
        before = _text(content, first.begin, first.end, within)
        choice = f"(({first.after}) if {SWITCH}({number}) else (".encode() + before + b"))"
        text += content[at : first.begin] + choice
        at = first.end
    return text + content[at:end]


class Session:
    """A plugin of pytest that runs the tests, and after each its mutants."""

    def __init__(
        self, mutants: Sequence[Mutant], budget: float, say: Callable[[Alive, str], None], near: bool = False
    ) -> None:
        self.alive = {mutant.key: Alive(mutant) for mutant in mutants}
        self.budget = budget
        self.say = say
        self.near = near
        self.limits = (LONGEST,)
        self.keys = [mutant.key for mutant in mutants]
        self.marks = np.zeros((2, len(mutants)), np.uint8)  # REACHED and ON, by number

    def switch(self, number: int) -> bool:
        """Whether a mutant is turned on; called wherever one stands."""
        self.marks[REACHED, number] = 1
        return bool(self.marks[ON, number])

    @property
    def reached(self) -> set[str]:
        """The mutants that the last test came by."""
        return {key for key, mark in zip(self.keys, self.marks[REACHED], strict=True) if mark}

    def pytest_collection(self) -> None:
        """An example that fails is enough: nobody needs the smallest one."""
        settings.register_profile("first", parent=settings(), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("first")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Of each function one case after the other, and the files that are near to most mutants first."""
        if self.near:
            families = {select_tests.family(each.mutant.module) for each in self.alive.values()}
            items[:] = [item for item in items if _in_families(item, families)]
        # its tests are quick, but there are many of them
        votes = {select_tests.CONFORMANCE: 0 if self.near else len(self.alive) * select_tests.NEAREST}
        for each in self.alive.values():
            for place, name in enumerate(select_tests.nearest(each.mutant.module)):
                votes[name] = votes.get(name, 0) + select_tests.NEAREST - place
        turns: dict[str, int] = {}
        ranked = []
        for number, item in enumerate(items):
            function = _function(item)
            turns[function] = turns.get(function, -1) + 1
            file = item.nodeid.partition("::")[0]
            ranked.append((turns[function], -votes.get(file, 0), number, item))
        items[:] = [item for *_, item in sorted(ranked, key=lambda each: each[:3])]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """The tests, each with the mutants that it reaches."""
        signal.signal(signal.SIGPROF, _too_long)
        lasting = [each for each in gc.get_objects() if _may_keep(each)]
        gc.freeze()  # from here on only what is new is looked at
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            if not self.alive:
                break
            passed = any(self._in_time(item, following, limit) for limit in self.limits)
            reached = [self.alive[key] for key in sorted(self.reached) if key in self.alive] if passed else []
            kept = list(_kept([*lasting, *filter(_may_keep, gc.get_objects())])) if reached else []
            for each in reached:
                if not self._try(each, item, kept):
                    break  # the test waits for ever in a child, whatever is mutated
        for each in self.alive.values():
            self.say(each, "")
        return True

    def _in_time(self, item: pytest.Item, following: pytest.Item | None, limit: float) -> bool:
        signal.setitimer(signal.ITIMER_PROF, limit)
        passed = self._passes(item, following)
        signal.setitimer(signal.ITIMER_PROF, 0)
        return passed

    def _try(self, each: Alive, item: pytest.Item, kept: list[Callable[[], object]]) -> bool:
        """One mutant against one test; it is dead if the test fails with it, and passes once more without it.

        False where the test does not end even without it.
        """
        function = _function(item)
        if each.functions.get(function, 0) >= 3:
            return True
        each.functions[function] = each.functions.get(function, 0) + 1
        what, seconds = self._child(each.mutant.key, item, kept)
        each.tests += 1
        each.seconds += seconds
        without = self._child("", item, kept)[0] if what else ""
        if what and not without:
            self._end(each, item.nodeid if what == "fails" else what)
        elif each.seconds > self.budget:
            self._end(each, "")
        return without != WAITING

    def _end(self, each: Alive, by: str) -> None:
        del self.alive[each.mutant.key]
        self.say(each, by)

    def _child(self, key: str, item: pytest.Item, kept: list[Callable[[], object]]) -> tuple[str, float]:
        """(what happened, nothing where the test passes; seconds of processor time)."""
        child = os.fork()
        if child == 0:
            code = 70
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (RUNS_ON, RUNS_ON + 10))
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(WAITS)
                for forget in kept:
                    forget()
                if key:
                    self.marks[ON, self.keys.index(key)] = 1
                code = 0 if self._passes(item, None) else 1
            finally:
                os._exit(code)
        _, status, usage = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        known = {0: "", 1: "fails", -signal.SIGXCPU: "runs for ever", -signal.SIGALRM: WAITING}
        what = known.get(code, f"ends with {code}")
        return what, usage.ru_utime + usage.ru_stime

    def _passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        """Run a test once, with its set-up."""
        self.marks[REACHED] = 0
        if hasattr(item, "_request"):
            item._initrequest()  # it may have been run before
        reports = runtestprotocol(item, log=False, nextitem=following)
        return all(report.passed for report in reports)


def _function(item: pytest.Item) -> str:
    """What cases have in common: the function; of the checks the mechanism."""
    name, _, case = item.nodeid.partition("[")
    return name + re.sub(r"-\d+", "", case) if name.endswith("::test_every_example_conforms") else name


def _in_families(item: pytest.Item, families: set[str]) -> bool:
    """Whether a test is about one mechanism of these families, or about none in particular."""
    mechanism = getattr(item, "callspec", None) and item.callspec.params.get("mechanism")
    home = type(mechanism).__module__ if mechanism is not None else ""
    return not home.startswith("tidegate.mechanisms.") or select_tests.family(home) in families


def _too_long(signal_number: int, frame: FrameType | None) -> None:
    pytest.skip("takes too long")


def _may_keep(each: object) -> bool:
    """Whether it is a function or an object of this package that keeps what it has worked out."""
    if isinstance(each, functools._lru_cache_wrapper):
        return (each.__module__ or "").startswith("tidegate")
    kind = type(each)
    return (
        str(kind.__module__).startswith("tidegate") and bool(_properties(kind)) and hasattr(each, "__dict__")
    )


def _kept(objects: Sequence[Any]) -> Iterator[Callable[[], object]]:
    """Calls that drop what they have kept."""
    for each in objects:
        if isinstance(each, functools._lru_cache_wrapper):
            yield each.cache_clear
        else:
            for name in _properties(type(each)).intersection(vars(each)):
                yield functools.partial(vars(each).pop, name)


@functools.cache
def _properties(kind: type) -> frozenset[str]:
    return frozenset(
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if isinstance(value, functools.cached_property)
    )


def _compiled(marks: np.ndarray) -> Any:
    """The switch of a session as a compiled function, which reads and writes its marks wherever they are."""
    import numba
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    address, shape = marks.ctypes.data, marks.shape

    def type_pointer(context: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], cgutils.voidptr_t)

        return types.voidptr(types.int64), generate

    pointer: Any = intrinsic(type_pointer)

    @numba.njit(nogil=True)
    def switch(number: int) -> bool:
        view = numba.carray(pointer(address), shape, np.uint8)
        view[REACHED, number] = 1
        return view[ON, number] != 0

    return switch


def serve(
    mutants: Sequence[Mutant],
    tests: Sequence[str],
    budget: float,
    kernels: bool,
    say: Callable[[Alive, str], None],
    near: bool = False,
    tier: str = "",
) -> None:
    """Run the tests with all mutants; `say` is called for each when it is known what became of it."""
    session = Session(mutants, budget, say, near)
    machine_code = tempfile.mkdtemp(prefix="tidegate-mutants-")
    if kernels:
        session.limits = (LONGEST, COMPILES)  # what has to be compiled for a test takes longer than the test
        os.environ["NUMBA_CACHE_DIR"] = machine_code
    setattr(builtins, SWITCH, _compiled(session.marks) if kernels else session.switch)
    patching.install_sources(switched(mutants))
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=1",
                 "-W", "ignore::pytest.PytestAssertRewriteWarning"]  # fmt: skip
    try:
        pytest.main([*arguments, *(("-m", tier) if tier else ()), *tests], plugins=[session])
    finally:
        shutil.rmtree(machine_code, ignore_errors=True)
