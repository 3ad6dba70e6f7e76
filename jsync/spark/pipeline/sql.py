"""Analysis of SQL without Spark: the views that a query reads, and a schema's columns. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

_CLAUSE = (TokenType.ALIAS, TokenType.L_PAREN)
"""The tokens after `window` and a name in the clause of windows: `window w as (...)`."""


class SQLError(Exception):
    """The reason why Spark would not accept the SQL, and its line."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class TableReference(NamedTuple):
    """A name that a query reads from, and the line where it does."""

    name: str
    line: int


def reads(query: str) -> list[TableReference]:
    """Return the views that `query` reads. Raises `SQLError` unless it is one query.

    Tables with a database and files by their path are left out, because Spark finds them.
    """
    trees = [tree for tree in _parse(query) if tree is not None]
    if not trees:
        raise SQLError("there is no SQL here")
    if len(trees) > 1:
        raise SQLError("a step is one query, and these are several")
    (tree,) = trees
    # The parser also returns a bare `with` for a query that begins with FROM.
    if not isinstance(tree, exp.Query | exp.Values):
        kind = tree.key.upper()
        raise SQLError(f"a step is a query that begins with SELECT or WITH, not {kind}")
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found: dict[str, TableReference] = {}
    for table in tree.find_all(exp.Table):
        name = table.name
        if (
            table.db
            or not isinstance(table.this, exp.Identifier)
            or name.lower() in own
        ):
            continue
        line = table.this.meta.get("line", 1)
        found.setdefault(name.lower(), TableReference(name, line))
    return list(found.values())


class Passed(NamedTuple):
    """The columns that a query passes on unchanged from the one view that it reads."""

    view: str
    all_columns: bool
    """True if the query selects all columns, in addition to `columns`."""
    columns: dict[str, str | None]
    """The columns that the query names, with their names in the view. None: an expression."""


def passed(query: str) -> Passed | None:
    """Return what a query passes on, or None if it is no plain selection from one view."""
    try:
        (tree,) = _parse(query)
    except (SQLError, ValueError):
        return None
    if not isinstance(tree, exp.Select) or tree.args.get("with_"):
        return None
    source = tree.args.get("from_")
    table = None if source is None else source.this
    others = ("joins", "laterals", "pivots", "group")
    if not isinstance(table, exp.Table) or table.db or any(map(tree.args.get, others)):
        return None
    found: dict[str, str | None] = {}
    has_star = False
    for expression in tree.expressions:
        if isinstance(expression, exp.Star):
            if any(expression.args.values()):  # some of them are left out or replaced
                return None
            has_star = True
        elif (
            isinstance(expression.unalias(), exp.Column)
            and not expression.unalias().is_star
        ):
            found[expression.alias_or_name] = expression.unalias().name
        elif expression.alias_or_name:
            found[expression.alias_or_name] = None
    return Passed(table.name, has_star, found)


def types(schema: str) -> dict[str, str]:
    """Return the columns of a schema in Spark's DDL, with their types as Spark calls them.

    Raises `SQLError` if the schema is invalid.
    """
    return {
        definition.name: _spelled(definition.kind)
        for definition in _definitions(schema)
        if definition.kind is not None
    }


def _spelled(kind: exp.DataType) -> str:
    text = kind.sql("spark").lower().replace(", ", ",")
    if text.startswith(("varchar", "char")):
        return "string"
    if text == "decimal":
        return "decimal(10,0)"
    return re.sub(r"^decimal\((\d+)\)$", r"decimal(\1,0)", text)


def columns(schema: str) -> list[str]:
    """Return the names of the columns of a schema in Spark's DDL. Raises `SQLError`."""
    names = [definition.name for definition in _definitions(schema)]
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise SQLError(f"column {name!r} is there twice")
        seen.add(name.lower())
    return names


def _definitions(schema: str) -> list[exp.ColumnDef]:
    try:
        (tree,) = _parse(f"create table t (\n{schema})")
    except SQLError as problem:
        raise SQLError(str(problem), max(1, problem.line - 1)) from None
    whole = isinstance(tree, exp.Create) and not (
        tree.args.get("expression") or tree.args.get("properties")
    )
    definitions = tree.this.expressions if tree is not None and whole else []
    if not definitions:
        raise SQLError("a schema is written as 'name type, name type'")
    for definition in definitions:
        if not isinstance(definition, exp.ColumnDef) or definition.kind is None:
            raise SQLError(f"column {definition.name!r} has no type: 'name type'")
    return definitions


def _parse(text: str) -> list[exp.Expr | None]:
    try:
        dialect = Dialect.get_or_raise("spark")
        tokens = dialect.tokenize(text)
        for at, token in enumerate(tokens):
            following = tuple(other.token_type for other in tokens[at + 2 : at + 4])
            # After `group by` the parser mistakes the function for the clause.
            if token.token_type is TokenType.WINDOW and following != _CLAUSE:
                where = token.line, token.col, token.start, token.end
                tokens[at] = Token(TokenType.VAR, token.text, *where)
        return list(dialect.parser().parse(tokens, text))
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near = first.get("highlight")
        place = f" at {near!r}" if near else ""
        raise SQLError(
            f"this is not Spark SQL{place}", first.get("line") or 1
        ) from None
    except SqlglotError as error:
        raise SQLError(f"this is not Spark SQL: {error}") from None
