"""Run the notebook of the documentation from its first cell to its last.

python -m tests.docs.notebook      run the notebook, and store its outputs in its file
"""

from __future__ import annotations

import os

import nbformat
from nbclient import NotebookClient

from jsync.server import LocalServer

from .markdown import ROOT

NOTEBOOK = ROOT / "docs/guides/notebook.ipynb"

SECONDS = 120
"""The time limit of a cell in seconds. Most of the time is the import of matplotlib."""


def stored() -> nbformat.NotebookNode:
    """Return the notebook with the outputs in its file."""
    notebook: nbformat.NotebookNode = nbformat.reads(NOTEBOOK.read_text(), as_version=4)
    return notebook


def executed(url: str) -> nbformat.NotebookNode:
    """Run the notebook against the server at `url`, and return it with its outputs."""
    notebook = stored()
    client = NotebookClient(notebook, timeout=SECONDS, record_timing=False)
    client.execute(env=os.environ | {"NATS_URL": url})
    return notebook


def texts(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Return the outputs of each code cell as text. A picture is the name of its type."""
    return [
        [
            output.get("text")
            or next(
                (kind for kind in output["data"] if kind.startswith("image/")),
                output["data"].get("text/plain"),
            )
            for output in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def main() -> None:
    with LocalServer() as server:
        NOTEBOOK.write_text(nbformat.writes(executed(server.url)) + "\n")


if __name__ == "__main__":
    main()
