"""Generate the tables and the tree of docs/errors.md from the docstrings of the errors.

For a new class, add a row `| `NewError` |` to the page where you want it. `python -m
tests.docs.error_tables` then writes the other cells.
"""

from __future__ import annotations

import inspect
import re

from jsync import errors

from .markdown import ROOT

PAGE = ROOT / "docs/errors.md"
TREE = re.compile(r"(?<=```text\n)Error\n.*?(?=```)", re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \|.*$", re.MULTILINE)


def row(name: str) -> str:
    """Return the row of an error: its name, the codes of the server if any, and its docstring."""
    kind = getattr(errors, name)
    words = " ".join(inspect.cleandoc(kind.__doc__).split()).replace("|", r"\|")
    if not issubclass(kind, errors.APIError):
        return f"| `{name}` | {words} |"
    codes = errors.APIError.by_err_code.items()
    numbers = ", ".join(str(code) for code, of in sorted(codes) if of is kind)
    return f"| `{name}` | {numbers} | {words} |"


def renewed(page: str) -> str:
    """Return the page with current rows and tree."""
    page = ROW.sub(lambda found: row(found[1]), page)
    return TREE.sub(lambda _: tree(), page)


def tree() -> str:
    """Return the tree from the docstring of the module."""
    words = inspect.cleandoc(errors.__doc__ or "")
    return words[words.index("Error\n") : words.index("All of them")].rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
