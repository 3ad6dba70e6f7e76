"""What can be told of Spark SQL without Spark: the views a query reads, a schema's columns."""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

_CLAUSE = (TokenType.ALIAS, TokenType.L_PAREN)
"""What follows `window` and a name where windows are named: `window w as (...)`."""


class SQLError(Exception):
    """Why Spark would not take it, and the line where."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class Reads(NamedTuple):
    """A name that a query reads from, and the line where it does."""

    name: str
    line: int


def reads(query: str) -> list[Reads]:
    """The views that `query` reads; raises `SQLError` unless it is one query.

    Tables with a database and files by their path are Spark's to find, and are left out.
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
    found: dict[str, Reads] = {}
    for table in tree.find_all(exp.Table):
        name = table.name
        if (
            table.db
            or not isinstance(table.this, exp.Identifier)
            or name.lower() in own
        ):
            continue
        line = table.this.meta.get("line", 1)
        found.setdefault(name.lower(), Reads(name, line))
    return list(found.values())


def columns(schema: str) -> list[str]:
    """The names of the columns of a schema in Spark's DDL; raises `SQLError`."""
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
    names = [definition.name for definition in definitions]
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise SQLError(f"column {name!r} is there twice")
        seen.add(name.lower())
    return names


def _parse(text: str) -> list[exp.Expr | None]:
    try:
        dialect = Dialect.get_or_raise("spark")
        tokens = dialect.tokenize(text)
        for at, token in enumerate(tokens):
            following = tuple(each.token_type for each in tokens[at + 2 : at + 4])
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
