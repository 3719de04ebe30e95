"""What people see while a command works, and what they are advised to do next."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tidegate.first_use import telling


def following(*words: object) -> str:
    """The command that comes next, as it can be pasted into a shell.

    Examples
    --------
    >>> following("tidegate", "check", "my stream.toml")
    "Next: tidegate check 'my stream.toml'"
    """
    return f"Next: {shlex.join(map(str, words))}"


def release_of(config: Path, *options: str) -> str:
    """The release of a configuration, as the command that comes next."""
    return following("tidegate", "release", config, *options, "--report", config.with_name("report.html"))


@contextmanager
def bar(total: float = 1.0, *, quiet: bool = False) -> Iterator[Callable[[str, float], None]]:
    """Show what is being done and how much of ``total`` is done, where somebody looks.

    Yields a function of a few words and of what is done.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda words, done: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("starting", total=total)
        yield lambda words, done: shown.update(task, description=words, completed=done)


@contextmanager
def stages(total: int, *, quiet: bool = False, lines: bool = False) -> Iterator[Callable[[str], None]]:
    """Show which of ``total`` stages is running and for how long.

    Parameters
    ----------
    total : int
        Number of stages.
    quiet : bool
        Show nothing, as with ``--json``.
    lines : bool
        Without a terminal, write a line to stderr for each stage: for what takes minutes, in a log.

    Yields
    ------
    callable
        Call it with a few words at the beginning of each stage.
    """
    begun = count()
    if lines and not quiet and not sys.stderr.isatty():
        yield lambda description: print(
            f"{next(begun) + 1}/{total} {description}", file=sys.stderr, flush=True
        )
        return
    at, words = 0, "starting"

    def begin(description: str) -> None:
        nonlocal at, words
        at, words = next(begun), description
        show(words, at)

    with bar(total, quiet=quiet) as show, telling(lambda compiling: show(compiling or words, at)):
        yield begin
