"""Tests of the script that reads the prose of pages and of code."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tools

SCRIPT = Path(__file__).parents[2] / "scripts" / "check-words"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = spec_from_loader("check_words", SourceFileLoader("check_words", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "code",
    [
        'def one():\n    """Return it; blocks."""\n',
        'def one():\n    """What it is."""\n',
        'def one():\n    """\n    Whether it is so.\n    """\n',
        "x = 1  # it is done; so it stays\n",
        "# It is done anew.\n",
        'cdef inline int one() noexcept:\n    """Where it begins."""\n',
    ],
)
def test_a_fault_in_code_is_found(script: Any, code: str) -> None:
    assert len([*script.inner_faults(code)]) == 1


@pytest.mark.parametrize(
    "code",
    [
        'def one():\n    """Return whether `a; b` is so."""\n',
        'def one():\n    """Run.\n\n    Example:\n        a(); b()\n    """\n',
        'cdef extern from *:\n    """\n    int a; int b;\n    """\n',
        'text = "a; b"  # type: ignore[x]\n',
    ],
)
def test_code_is_no_prose(script: Any, code: str) -> None:
    assert not [*script.inner_faults(code)]


def test_a_fault_in_a_page_has_its_line(script: Any) -> None:
    assert [line for line, _ in script.faults("One.\n\nTwo; three.\n")] == [3]


def test_a_long_test_name_is_found(script: Any) -> None:
    names = [f"test_{'_'.join('abcdefgh'[:size])}" for size in (8, 7)]
    code = "".join(f"def {name}_i() -> None: ...\n" for name in names)
    assert [line for line, _ in script.long_names(code)] == [1]


def test_a_phrase_beyond_its_budget_is_found(script: Any) -> None:
    text = "It ends at once. " * 3 + "word " * 10_000
    assert [*script.overspent("pages", text)] == [
        "pages: 3 times 'at once': at most 2.0 in 10,000 words"
    ]
    assert not [*script.overspent("pages", text + "word " * 10_000)]
