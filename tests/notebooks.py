"""Execute the notebooks of the documentation: `make notebooks` stores what comes out, tests only look whether it works.

python tests/notebooks.py                      execute all of them and store their outputs
python tests/notebooks.py --check PATH …       execute these and store nothing
"""

from __future__ import annotations

import os
import re
import resource
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
SECONDS = 300  # for one cell; on a machine of its own a whole notebook takes less than a minute


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a fresh run, in a folder of its own that is removed."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        places = {"IPYTHONDIR": folder, "JUPYTER_CONFIG_DIR": folder, "JUPYTER_RUNTIME_DIR": folder}
        os.environ.update(places, MPLBACKEND="module://matplotlib_inline.backend_inline", NO_COLOR="1")
        Path(folder, "work").mkdir()
        resources = {"metadata": {"path": str(Path(folder, "work"))}}
        NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=resources).execute()
    return notebook


def cleaned(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without what differs from machine to machine: times, versions, warnings of the kernel."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        if "outputs" in cell:
            cell.outputs = _joined(cell.outputs)
        for output in cell.get("outputs", ()):
            assert output.get("name") != "stderr", f"a cell writes to stderr: {output['text']}"
            output.pop("metadata", None)
            if output.output_type in ("display_data", "execute_result"):
                output["metadata"] = {}
                if "image/png" in output["data"]:
                    output["data"].pop("text/plain", None)  # the address of an object
    return notebook


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """What was printed in one piece, without the colours of a terminal."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        if "\x1b" in output.get("data", {}).get("text/plain", ""):  # a table for a terminal
            output = nbformat.v4.new_output("stream", name="stdout", text=output["data"]["text/plain"])
        if output.output_type == "stream":
            output["text"] = re.sub(r"\x1b\[[0-9;]*m| +$", "", output["text"], flags=re.MULTILINE)
            if found and found[-1].output_type == "stream" and found[-1]["name"] == output["name"]:
                found[-1]["text"] += output["text"]
                continue
        found.append(output)
    return found


def main(arguments: list[str]) -> None:
    """Execute what is asked for, and say what it took."""
    store = arguments[:1] != ["--check"]
    paths = [Path(each) for each in arguments if each != "--check"] or sorted(NOTEBOOKS.glob("*.ipynb"))
    for path in paths:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        notebook = cleaned(executed(path))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if store:
            nbformat.write(notebook, path)
        print(f"{path.name}: {took:.0f} s of processor time, {path.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main(sys.argv[1:])
