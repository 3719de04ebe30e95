"""``tidegate doctor``: what is installed, what is missing, and whether noise and ledger work on this machine."""

from __future__ import annotations

import json
from typing import Any

import typer

from tidegate.cli.options import Machine
from tidegate.cli.progress import following, stages

EXAMPLE = "Example: tidegate doctor"
NEEDED = (
    "numpy",
    "numba",
    "scipy",
    "clarabel",
    "cryptography",
    "polars",
    "typer",
    "rich",
    "markdown-it-py",
    "matplotlib",
)
OPTIONAL = {  # part of the package: what it needs, and for what
    "accounting": (("dp-accounting",), "charges of a log recomputed by a second program"),
    "forecast": (("statsmodels",), "forecasts of released values"),
    "frames": (("pandas", "pyarrow"), "releases as pandas and Arrow tables"),
    "mqtt": (("paho-mqtt",), "events from an MQTT broker"),
    "kafka": (("confluent-kafka",), "events and releases in topics of Apache Kafka"),
    "postgres": (("psycopg",), "ledgers, events and releases in PostgreSQL"),
    "spark": (("pyspark", "pyarrow"), "events that Apache Spark reads; needs Java 17 as well"),
    "web": (("starlette", "uvicorn", "httptools", "uvloop", "zstandard"), "the service, `tidegate serve`"),
}
DRAWS = 20_000
SCALE = 10.0


def doctor(
    as_json: Machine = False,
) -> None:
    """Print versions and optional parts, and try noise and ledger for a moment.

    Exit code 1 when a needed library is missing or a trial fails.
    """
    import platform

    from tidegate.version import __version__

    needed = {name: _version(name) for name in NEEDED}
    parts = {part: _part(part) for part in OPTIONAL}
    complete = all(needed.values())
    trials: dict[str, str] = {}
    if complete:
        with stages(1, quiet=as_json) as begin:
            begin("trying noise and ledger, which are compiled the first time")
            trials = {"noise": _try(_noise), "ledger": _try(_ledger)}
    facts: dict[str, Any] = {
        "ok": complete and all(trial == "works" for trial in trials.values()),
        "tidegate": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "libraries": needed,
        "optional": parts,
        "trials": trials,
        "compiled_code": _kept_code() if complete else None,
    }
    typer.echo(json.dumps(facts, indent=2) if as_json else _words(facts))
    if not facts["ok"]:
        raise typer.Exit(1)


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _part(part: str) -> dict[str, Any]:
    libraries, purpose = OPTIONAL[part]
    missing = [name for name in libraries if _version(name) is None]
    remedy = f"pip install 'tidegate[{part}]'" if missing else None
    return {"for": purpose, "missing": missing, "remedy": remedy}


def _try(trial: Any) -> str:
    """How a trial ended: "works", or a sentence; the text of an unknown error is not shown."""
    from tidegate.errors import TidegateError

    try:
        return str(trial() or "works")
    except TidegateError as error:
        return str(error)
    except Exception as error:
        return f"failed with {type(error).__name__}; set TIDEGATE_TRACEBACK=1 and run `tidegate demo` to see where."


def _kept_code() -> str | None:
    """The folder where machine code is kept between two starts, after something was compiled; None where it is not."""
    import os

    from tidegate.compiled import cache_folder

    folder = cache_folder()
    return folder if folder is not None and os.access(folder, os.W_OK) else None


def _noise() -> str | None:
    """Draw noise and compare its mean size with what it should be, at six standard deviations (α below 1e-8)."""
    import numpy as np

    from tidegate.noise import current, expected_absolute_laplace, laplace

    drawn = np.abs(laplace(current(), "doctor", 1, SCALE, (DRAWS,)))
    expected = expected_absolute_laplace(SCALE)
    off = abs(float(drawn.mean()) - expected) / (SCALE / DRAWS**0.5)
    return None if off < 6 else "the noise has another size than it should; reinstall numpy and numba."


def _ledger() -> str | None:
    """Release in a ledger on disk, open it again, continue, and recompute it."""
    import tempfile
    from pathlib import Path

    import tidegate as tg
    from tidegate.core.verify import verify
    from tidegate.mechanisms import Uniform
    from tidegate.pipeline.logs import rows_of

    mechanism = Uniform(tg.WEvent(epsilon="1", window=3), columns=2)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "doctor.ledger"
        for step in (1, 2):
            with tg.open(mechanism, place) as session:
                session.push([0, 0], step=step)
        found = verify(rows_of(place))
    fine = found.ok and found.step == 2
    return None if fine else "the ledger of a trial does not hold; check the disk of the temporary folder."


def _words(facts: dict[str, Any]) -> str:
    lines = [f"tidegate {facts['tidegate']}, Python {facts['python']}, {facts['system']}"]
    lines += [
        f"  {name} {version}" if version else f"  {name} is missing: reinstall tidegate"
        for name, version in facts["libraries"].items()
    ]
    for part, found in facts["optional"].items():
        absent = f"missing {', '.join(found['missing'])}: {found['remedy']}" if found["missing"] else "found"
        lines.append(f"  [{part}] {found['for']}: {absent}")
    lines += [f"  {name}: {trial}" for name, trial in facts["trials"].items()]
    kept = facts["compiled_code"]
    lines.append(
        f"  compiled code is kept in {kept}"
        if kept
        else "  compiled code is not kept, so every start compiles: set NUMBA_CACHE_DIR to a folder that can be written"
    )
    well = f"All is well.\n{following('tidegate', 'demo')}"
    return "\n".join([*lines, well if facts["ok"] else "Something is wrong: see above."])
