from __future__ import annotations

import json
import subprocess
import sys

NOISE = """
import os, sys
from tidegate.web.server_log import log, only_lines
with only_lines():
    log("before")
    os.write(2, b"thread panicked at walrus\\nnote: run with walrus\\n")
    log("after")
    print("{}", file=sys.stderr)
print('{"event": "end"}', file=sys.stderr)
os.write(2, b'{"event": "own"}')
"""


def test_libraries_write_no_lines_of_their_own() -> None:
    """What a library prints on stderr when it fails becomes a line of the log, without its words."""
    done = subprocess.run([sys.executable, "-c", NOISE], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"library.failed", "before", "after", "end", "own"} == {each.get("event") for each in lines} - {
        None
    }
    assert sum(each.get("lines", 0) for each in lines) == 2
    assert "walrus" not in done.stderr
