"""The tables and the tree of docs/errors.md, from the docstrings of the errors.

Where a class stands is the page's affair; a new one gets a row, `| `NewError` |`, by hand,
and `python -m tests.docs.error_tables` writes the rest.
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
    """Its line: the name, the server's codes if there are any, cause and cure."""
    kind = getattr(errors, name)
    words = " ".join(inspect.cleandoc(kind.__doc__).split()).replace("|", r"\|")
    if not issubclass(kind, errors.APIError):
        return f"| `{name}` | {words} |"
    codes = errors.APIError.by_err_code.items()
    numbers = ", ".join(str(code) for code, of in sorted(codes) if of is kind)
    return f"| `{name}` | {numbers} | {words} |"


def renewed(page: str) -> str:
    """The page with every row, and the tree, as they have to be."""
    page = ROW.sub(lambda found: row(found[1]), page)
    return TREE.sub(lambda _: tree(), page)


def tree() -> str:
    """The one of the docstring, as it stands there between the words around it."""
    words = inspect.cleandoc(errors.__doc__ or "")
    return words[words.index("Error\n") : words.index("All of them")].rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
