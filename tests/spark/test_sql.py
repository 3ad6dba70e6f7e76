"""Tests of writing with SQL, and of the description of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .sink_support import stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    import jsync
    from jsync.server import LocalServer


@pytest.fixture
def table(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream
) -> Iterator[str]:
    """Return a table of the stream, created as in the guide."""
    name = f"table_of_{stream.name}"
    spark.sql(
        f"create table {name} using jetstream options (stream '{stream.name}', "
        f"'nats.servers' '{server.url}', includeHeaders 'true')"
    )
    yield name
    spark.sql(f"drop table {name}")


def test_insert_writes_the_columns_that_it_names(
    spark: SparkSession, stream: jsync.Stream, table: str
) -> None:
    spark.sql(
        f"insert into {table} (subject, data) "
        f"select '{stream.name}.1', cast('one' as binary)"
    )
    spark.sql(
        f"insert into {table} (data, headers, subject) values "
        f"(cast('two' as binary), map('A', array('b')), '{stream.name}.2')"
    )
    assert stored(stream, "subject", "data", "headers") == [
        (f"{stream.name}.1", b"one", None),
        (f"{stream.name}.2", b"two", [("A", ["b"])]),
    ]
    assert spark.sql(f"select data from {table} where sequence = 2").collect() == [
        (bytearray(b"two"),)
    ]


def test_an_insert_of_server_columns_raises_with_advice(
    spark: SparkSession, stream: jsync.Stream, table: str
) -> None:
    insert = f"insert into {table} (subject, data, sequence)"
    with pytest.raises(
        Exception, match=r"column sequence: leave it out.*into t \(subject"
    ):
        spark.sql(f"{insert} select '{stream.name}.1', cast('one' as binary), 1")
    assert stored(stream, "data") == []


def test_a_table_with_passwords_in_servers_is_refused(
    spark: SparkSession,
) -> None:
    """A catalog keeps the options of a table, and DESCRIBE shows them to everybody."""
    create = "create table with_password using jetstream options"
    with pytest.raises(Exception, match="credentials in a URL"):
        spark.sql(f"{create} (stream 'A', 'nats.servers' 'nats://ann:s3cret@a')")
    assert not spark.catalog.tableExists("with_password")


def test_insert_into_a_view_takes_its_columns(
    spark: SparkSession, server: LocalServer, stream: jsync.Stream
) -> None:
    """This also works exactly once, with a column for ids, which a table does not have."""
    name = f"view_of_{stream.name}"
    options = (
        f"options (stream '{stream.name}', 'nats.servers' '{server.url}', "
        "delivery 'exactly-once')"
    )
    columns = "(subject string, data string, msg_id string)"
    spark.sql(f"create temporary view {name} {columns} using jetstream {options}")
    for _ in range(2):
        spark.sql(f"insert into {name} select '{stream.name}.1', 'one', 'id 1'")
    assert stored(stream, "subject", "data") == [(f"{stream.name}.1", b"one")]
    spark.sql(f"drop view {name}")
    spark.sql(f"create temporary view {name} using jetstream {options}")
    with pytest.raises(Exception, match=r"create temporary view v \(subject string"):
        spark.sql(
            f"insert into {name} (subject, data) select '{stream.name}.1', "
            "cast('one' as binary)"
        )
    spark.sql(f"drop view {name}")


@pytest.mark.parametrize("what", ["describe extended", "show create table"])
def test_a_description_of_a_table_has_its_options(
    spark: SparkSession, stream: jsync.Stream, table: str, what: str
) -> None:
    rows = spark.sql(f"{what} {table}").collect()
    shown = str(rows).replace("\\", "")
    assert "using jetstream options (" in shown
    assert f"'stream' '{stream.name}'" in shown
