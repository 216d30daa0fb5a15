"""What SQLite and PostgreSQL say in different words: looking into JSON that is kept as text, the order of names,
and the numbers of rows."""

from typing import Any

from sqlalchemy import Boolean, Connection, Integer, String, Table, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class member_text(FunctionElement[str]):  # noqa: N801 - they are used like functions of SQL
    """The text of a member of a JSON object: the column, the name of the member."""

    type = String()
    inherit_cache = True


class member_is_true(FunctionElement[bool]):  # noqa: N801
    """Whether a member of a JSON object is true."""

    type = Boolean()
    inherit_cache = True


class member_length(FunctionElement[int]):  # noqa: N801
    """How long a list is that is a member of a JSON object; 0 when it is missing."""

    type = Integer()
    inherit_cache = True


class by_bytes(FunctionElement[str]):  # noqa: N801
    """A column in the order of its bytes, whatever the language of the database is."""

    inherit_cache = True


def _arguments(element: FunctionElement[Any], compiler: SQLCompiler, options: dict[str, Any]) -> list[str]:
    return [compiler.process(each, **options) for each in element.clauses]


@compiles(member_text, "sqlite")
def _text(element: member_text, compiler: SQLCompiler, **options: Any) -> str:
    value, name = _arguments(element, compiler, options)
    return f"json_extract({value}, '$.' || {name})"


@compiles(member_text, "postgresql")
def _text_postgres(element: member_text, compiler: SQLCompiler, **options: Any) -> str:
    value, name = _arguments(element, compiler, options)
    return f"(CAST({value} AS json) ->> {name})"


@compiles(member_is_true, "sqlite")
def _is_true(element: member_is_true, compiler: SQLCompiler, **options: Any) -> str:
    value, name = _arguments(element, compiler, options)
    return f"(coalesce(json_extract({value}, '$.' || {name}), 0) != 0)"


@compiles(member_is_true, "postgresql")
def _is_true_postgres(element: member_is_true, compiler: SQLCompiler, **options: Any) -> str:
    value, name = _arguments(element, compiler, options)
    return f"(coalesce(CAST({value} AS json) ->> {name}, 'false') = 'true')"


@compiles(member_length, "sqlite")
def _length(element: member_length, compiler: SQLCompiler, **options: Any) -> str:
    value, name = _arguments(element, compiler, options)
    return f"coalesce(json_array_length({value}, '$.' || {name}), 0)"


@compiles(member_length, "postgresql")
def _length_postgres(element: member_length, compiler: SQLCompiler, **options: Any) -> str:
    value, name = _arguments(element, compiler, options)
    return f"coalesce(json_array_length(CAST({value} AS json) -> {name}), 0)"


@compiles(by_bytes, "sqlite")
def _ordered(element: by_bytes, compiler: SQLCompiler, **options: Any) -> str:
    return _arguments(element, compiler, options)[0]  # the order that it has anyway


@compiles(by_bytes, "postgresql")
def _ordered_postgres(element: by_bytes, compiler: SQLCompiler, **options: Any) -> str:
    return f'{_arguments(element, compiler, options)[0]} COLLATE "C"'


def count_on(connection: Connection, table: Table) -> None:
    """Let the next row of a table that numbers its rows (``seq``) follow those that were copied with their
    numbers. SQLite does so by itself."""
    if connection.dialect.name == "postgresql":
        newest = f"(SELECT max(seq) FROM {table.name})"  # noqa: S608 - the name of a table of ours
        connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'seq'), {newest})"))
