"""`make install-check`: build the wheel and the archive, and install them where nothing else is.

Every supported Python, every extra alone, and the lowest versions that pyproject.toml allows, each in an environment of
its own. It needs `uv` and a package index; what it found goes into docs/install.md. Not in CI: it fetches a gigabyte.
With TIDEGATE_SMALL set only the wheel is tried, with libraries of the Python that runs this, and nothing is written.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "install.md"
PYTHONS = ("3.11", "3.12", "3.13")
# what proves that an extra is complete: a part of the package that imports nothing else that is optional
PARTS = {
    "bench": "import opendp",
    "docs": "import mkdocs, mkdocstrings, latex2mathml",
    "forecast": "from tidegate.queries.forecast import forecast; forecast([[float(i % 7)] for i in range(60)], 3)",
    "frames": "import pandas, pyarrow; import tidegate.frames",
    "kafka": "import confluent_kafka; import tidegate.servers.kafka",
    "mqtt": "import paho.mqtt.client; import tidegate.servers.broker",
    "spark": "import pyspark; import tidegate.spark",
    "postgres": "import psycopg; import tidegate.servers.postgres",
    "web": "import tidegate.web.service",
}
PUSH = (
    "import tidegate as tg; session = tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon='1', window=24), columns=3)); "
    "assert session.push([1, 2, 3]).values.shape == (3,)"
)
# a part of the suite that touches every library and takes a minute
SUBSET = (
    "tests/policy/test_policy.py",
    "tests/config/test_reader.py",
    "tests/ingest/test_contributions.py",
    "tests/ingest/test_combined_query.py",
    "tests/queries/test_forecast.py",
    "tests/queries/test_hierarchy.py",
    "tests/core/test_logs.py",
    "tests/cli/test_main.py",
    "tests/cli/test_release.py",
    "tests/test_frames.py",
    "tests/test_reprs.py",
)
BLOCK = re.compile(r"(?<=<!-- install-check -->\n).*?(?=<!-- end -->)", re.DOTALL)


def run(*command: str | Path, folder: Path = ROOT, path: Path | None = None) -> str:
    """What a command prints, with modules from a path; its failure ends the check with what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(path)} if path else {}
    done = subprocess.run(
        [str(each) for each in command], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def extras() -> list[str]:
    """The extras that users install; tests are for those who change the code."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found = tomllib.load(file)["project"]["optional-dependencies"]
    return sorted(found.keys() - {"test"})


def environment(folder: Path, python: str, what: str, *options: str) -> Path:
    """The interpreter of an empty environment in which something was installed."""
    run("uv", "venv", "--quiet", "--python", python, folder)
    interpreter = folder / "bin" / "python"
    run("uv", "pip", "install", "--quiet", "--python", interpreter, *options, what)
    return interpreter


def built(work: Path) -> tuple[Path, Path]:
    """The wheel and the archive."""
    return next((work / "dist").glob("*.whl")), next((work / "dist").glob("*.tar.gz"))


def sizes(wheel: Path, archive: Path) -> Iterator[tuple[str, str, str]]:
    """How large they are."""
    for path, kind in ((wheel, "wheel"), (archive, "archive of the sources")):
        yield kind, "", f"{path.stat().st_size / 1e6:.1f} MB"


def few(work: Path) -> Iterator[tuple[str, str, str]]:
    """The same of the wheel, away from its sources, with libraries that are here; without `uv` and an index."""
    run(sys.executable, "-m", "hatchling", "build", "--directory", work / "dist")
    wheel, archive = built(work)
    yield from sizes(wheel, archive)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(work / "site")
    place = run(
        sys.executable, "-c", "import tidegate; print(tidegate.__file__)", folder=work, path=work / "site"
    )
    if not place.startswith(str(work)):
        sys.exit(f"{place.strip()} was tried in place of the wheel")
    run(sys.executable, "-m", "tidegate", "--version", folder=work, path=work / "site")
    run(sys.executable, "-m", "tidegate", "doctor", folder=work, path=work / "site")
    run(sys.executable, "-c", PUSH, folder=work, path=work / "site")
    yield "wheel", f"Python {platform.python_version()}", "`tidegate doctor`, one `push`"


def rows(work: Path) -> Iterator[tuple[str, str, str]]:
    """What was installed, where, and what was tried there."""
    run("uv", "build", "--quiet", "--out-dir", work / "dist", ROOT)
    wheel, archive = built(work)
    yield from sizes(wheel, archive)
    newest = PYTHONS[0]
    for version in PYTHONS:
        if subprocess.run(
            ["uv", "python", "install", "--quiet", version], capture_output=True
        ).returncode and (
            subprocess.run(["uv", "python", "find", "--quiet", version], capture_output=True).returncode
        ):
            yield (
                "wheel and archive",
                f"Python {version}",
                "not tested: no interpreter of this version could be had",
            )
            continue
        newest = version
        for path, kind in ((wheel, "wheel"), (archive, "archive")):
            python = environment(work / f"{kind}-{version}", version, str(path))
            command = python.parent / "tidegate"
            run(command, "--version", folder=work)
            run(command, "doctor", folder=work)
            run(python, "-c", PUSH, folder=work)
            exact = run(python, "-c", "import platform; print(platform.python_version())").strip()
            yield kind, f"Python {exact}", "`tidegate doctor`, one `push`"
    for extra in extras():
        python = environment(work / f"extra-{extra}", newest, f"tidegate[{extra}] @ {wheel.as_uri()}")
        run(python, "-c", PARTS[extra], folder=work)
        yield f"`tidegate[{extra}]` alone", f"Python {newest}", "imported and used"
    yield lowest(work, wheel)


def lowest(work: Path, wheel: Path) -> tuple[str, str, str]:
    """The lowest versions that are allowed, of the package's own libraries, on the oldest Python."""
    wanted = [part for extra in extras() if extra not in ("bench", "docs") for part in ("--extra", extra)]
    run("uv", "venv", "--quiet", "--python", PYTHONS[0], work / "lowest")
    python, install = work / "lowest" / "bin" / "python", ("uv", "pip", "install", "--quiet", "--python")
    run(*install, python, "--resolution", "lowest-direct", *wanted, "-r", "pyproject.toml")
    run(*install, python, "--no-deps", wheel)
    run(*install, python, "pytest>=8,<10", "hypothesis>=6.110,<7", "pytest-xdist")
    out = run(python, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-W", "default", *SUBSET)
    passed = re.findall(r"(\d+) passed", out) or [str(out.count("."))]
    frozen = dict(
        re.findall(r"^([\w-]+)==(\S+)$", run("uv", "pip", "freeze", "--python", python), re.MULTILINE)
    )
    direct = [
        name
        for name in ("numpy", "numba", "scipy", "polars", "pandas", "typer", "matplotlib")
        if name in frozen
    ]
    versions = ", ".join(f"{name} {frozen[name]}" for name in direct)
    return "lowest versions allowed", f"Python {PYTHONS[0]}: {versions}", f"{passed[-1]} tests"


def main() -> None:
    """Check everything, print it, and write it into the page."""
    if os.environ.get("TIDEGATE_SMALL"):
        with tempfile.TemporaryDirectory() as folder:
            for row in few(Path(folder)):
                print(*row, sep=" · ", flush=True)
        return
    if not shutil.which("uv"):
        sys.exit("install-check needs uv: pip install uv")
    lines = ["| installed | where | tried |", "|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder)):
            print(*row, sep=" · ", flush=True)
            lines.append(f"| {' | '.join(row)} |")
    PAGE.write_text(BLOCK.sub("\n".join(lines) + "\n", PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
