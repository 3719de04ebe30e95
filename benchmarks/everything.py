"""Every benchmark, one after another: what `make bench` runs.

    python benchmarks/everything.py [NAME …]

Each script has its usual size, a minute or two of a free machine, and says what it finds as it goes along; a script with
``--full`` has that of the documentation's tables.

A bar is an aim. One that is missed is printed with its number and the words BAR MISSED, in its place and once more at the
end, and changes no exit code: a speed depends on the machine, an error on chance. The exit code is 1 where a script fails
or takes over half an hour; the others run all the same. This holds for every script alone, too. Speeds are by processor
time, so that other programs matter little, unless a line says otherwise.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from timing import MISSED

HERE = Path(__file__).resolve().parent
LONGEST = 1800.0  # seconds after which a script counts as failed
# what is only imported, draws pictures or tables for the documentation, or wants another version of the package
OTHERS = ("compare", "everything", "optstream_data", "optstream_pictures", "optstream_tables", "sizes",
          "swellfish_pictures", "timing")  # fmt: skip


def run(script: Path) -> tuple[int, list[str]]:
    """Run a script, show its lines as they come; returns its exit code and the bars that it missed."""
    process = subprocess.Popen(
        [sys.executable, "-u", str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    end = threading.Timer(LONGEST, os.killpg, (process.pid, signal.SIGKILL))
    end.daemon = True
    end.start()
    missed = []
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            if MISSED in line:
                missed.append(" ".join(line.split()))
        return process.wait(), missed
    finally:
        end.cancel()
        if process.poll() is None:  # whoever stops us stops the script
            os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.py") if path.stem not in OTHERS)
    lines, failed = [], []
    begun = time.perf_counter()
    for number, name in enumerate(names, 1):
        print(f"== {name} ({number} of {len(names)})", flush=True)
        wall, processor = time.perf_counter(), sum(os.times()[2:4])
        code, missed = run(HERE / f"{name}.py")
        wall, processor = time.perf_counter() - wall, sum(os.times()[2:4]) - processor
        lines.append(f"{name:16} {wall:6.0f} s, {processor:6.0f} s of processor time, {len(missed)} missed")
        lines += [f"    {each}" for each in missed]
        if code:
            lines.append(f"    FAILED with {code}")
            failed.append(name)
    print(f"== {len(names)} scripts in {(time.perf_counter() - begun) / 60:.0f} minutes", *lines, sep="\n")
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
