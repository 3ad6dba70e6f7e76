"""Tests of the options of `format("jetstream")`: case does not matter, unknown ones are rejected."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from jsync.errors import ConfigError, ProxyError
from jsync.spark.connection import ConnectionOptions, get_connection
from jsync.spark.options import NATS, Options
from jsync.spark.source_options import SourceOptions, matches

from ...server.core.test_dialers import proxy

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer
    from jsync.spark.options import Purpose


def source(streaming: bool = False, **given: object) -> SourceOptions:
    named = {name: str(value) for name, value in {"stream": "A", **given}.items()}
    return SourceOptions.of(Options(named), streaming=streaming)


def connecting(**given: str) -> ConnectionOptions:
    return ConnectionOptions.of(
        Options({f"nats.{name}": value for name, value in given.items()})
    )


def test_names_are_of_any_case() -> None:
    assert source(STARTINGoffsets="5", Failondataloss="FALSE").starting.of("A") == 5
    assert not source(failondataloss="False").fail_on_loss
    assert connecting(SERVERS="nats://a, nats://b").servers == ("nats://a", "nats://b")


def test_a_count_starts_at_its_least_value() -> None:
    given = Options({"minPartitions": "2"})
    assert given.count("minPartitions", 2) == 2
    for text in ("1", "-2", "2.0", "²", "many"):
        given = Options({"minPartitions": text})
        with pytest.raises(ConfigError, match="a whole number from 2 on"):
            given.count("minPartitions", 2)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("startingOffset", "is it startingOffsets?"),
        ("strem", "is it stream?"),
        ("nats.server", "is it nats.servers?"),
        ("kafka.bootstrap.servers", "is it nats.servers?"),
        ("subscribe", "is it stream?"),
        ("path", "is it stream?"),
        ("subscribePattern", "is it streamPattern?"),
        ("startingOffsetsByTimestamp", "is it startingTimestamp?"),
        ("buckets", "is it bucket?"),
        ("lastBySubject", "is it lastPerSubject?"),
        ("nats.url", "is it nats.servers?"),
        ("nats.jwt", "nats.jwtEnv or nats.jwtFile"),
        ("token", "is it nats.tokenEnv?"),
        ("kv", "is it bucket?"),
        ("object", "is it objectStore?"),
        ("sql", "there are stream, "),
        ("nats.password", "nats.passwordEnv or nats.passwordFile"),
        ("nats.Token", "nats.tokenEnv or nats.tokenFile"),
        ("nats.credentials", "nats.credentialsEnv or nats.credentialsFile"),
    ],
)
def test_an_option_that_there_is_not_is_refused(name: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Options({name: "s3cret"})
    assert name in str(refused.value)
    assert wanted in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("purpose", "name", "wanted"),
    [
        ("read", "subject", "is for a write, and this is a read: is it subjects?"),
        ("read", "Delivery", "option delivery is for a write, .* leave it out"),
        ("read", "jobId", "is for a write"),
        ("write", "subjects", "is for a read, and this is a write: is it subject?"),
        ("write", "startingOffsets", "is for a read, .* leave it out"),
        ("monitor", "stream", "is for a read, and this is a monitor: leave it out"),
        ("read", "deliver", "no option deliver; there are stream, "),
        ("write", "subjectss", "is it subject?"),
    ],
)
def test_reads_and_writes_have_own_options(
    purpose: Purpose, name: str, wanted: str
) -> None:
    with pytest.raises(ConfigError, match=wanted):
        Options({name: "x"}, purpose)


def test_a_table_has_options_of_both() -> None:
    given = Options({"subject": "a", "subjects": "a.>", "delivery": "exactly-once"})
    assert given.text("subject") == "a"


@pytest.mark.parametrize(
    "servers",
    ["nats://ann:s3cret@a", "ann:s3cret@a", "nats://a, wss://a/ws?token=s3cret"],
)
def test_a_url_with_a_secret_is_refused(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"in plans and logs") as refused:
        Options({"nats.servers": servers})
    assert "s3cret" not in str(refused.value)


def test_a_proxy_with_a_secret_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"nats\.proxyEnv or nats\.proxyFile"
    ) as refused:
        Options({"nats.proxy": "http://ann:s3cret@a:1"})
    assert "s3cret" not in str(refused.value)


def test_a_connection_goes_through_its_proxy(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that is away fails the connection, so a proxy is not passed over."""
    place = tmp_path / "proxy"
    monkeypatch.setenv("PROXY", "http://127.0.0.1:1")
    with proxy("http", secret="ann:s3cret") as port:
        place.write_text(f"http://ann:s3cret@127.0.0.1:{port}\n")
        options = connecting(servers=server.url, proxyFile=str(place))
        assert "s3cret" not in repr(options)
        nc = get_connection(options)
        assert nc.connected_url == server.url
        nc.close()
    for given in ({"proxy": "http://127.0.0.1:1"}, {"proxyEnv": "PROXY"}):
        with pytest.raises(ProxyError):
            get_connection(connecting(servers=server.url, **given))


def test_servers_can_be_at_a_place(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "servers"
    place.write_text(f"nats://127.0.0.1:1, {server.url}\n")
    monkeypatch.setenv("SERVERS", server.url)
    for given in ({"serversFile": str(place)}, {"serversEnv": "SERVERS"}):
        options = connecting(**given)
        assert server.url not in repr(options)
        get_connection(options).close()
    with pytest.raises(ConfigError, match=r"serversEnv exclude each other"):
        connecting(servers="nats://a", serversEnv="SERVERS")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"stream": ""}, "stream is missing"),
        ({"streams": "A,B"}, "stream and streams exclude each other"),
        ({"stream": "A,A"}, "names a stream twice"),
        ({"startingOffsets": "first"}, "startingOffsets has to be earliest, latest"),
        ({"startingOffsets": "-1"}, "startingOffsets has to be earliest, latest"),
        ({"startingOffsets": "{"}, "startingOffsets has to be JSON"),
        ({"startingOffsets": '{"B": 1}'}, "startingOffsets has no entry for stream A"),
        ({"startingOffsets": '{"A": 1, "B": 1}'}, "names stream B, which is not read"),
        ({"startingOffsets": '{"A": "soon"}'}, "startingOffsets has to be earliest"),
        ({"startingOffsets": "latest"}, "a batch from latest on would be empty"),
        ({"endingOffsets": "earliest"}, "ends at earliest would be empty"),
        (
            {"startingOffsets": "1", "startingTimestamp": "0"},
            "startingOffsets and startingTimestamp exclude each other",
        ),
        ({"startingTimestamp": "2026-01-01"}, "startingTimestamp has to be a time"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp has to be a time"),
        ({"startingTimestamp": "9" * 20}, "startingTimestamp has to be a time"),
        (
            {"startingOffsets": "40", "endingOffsets": "20"},
            "endingOffsets is before startingOffsets for stream A",
        ),
        (
            {"startingTimestamp": "2000", "endingTimestamp": '{"A": 1000}'},
            "endingTimestamp is before startingTimestamp for stream A",
        ),
        (
            {"startingTimestamp": "0001-01-01T00:00:00+14:00"},
            "startingTimestamp has to be a time",
        ),
        (
            {"maxOffsetsPerTrigger": "0"},
            "maxOffsetsPerTrigger has to be a whole number",
        ),
        ({"minPartitions": "many"}, "minPartitions has to be a whole number"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss has to be true or false"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "minOffsetsPerTrigger is above maxOffsetsPerTrigger",
        ),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay needs minOffsetsPerTrigger"),
        (
            {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "15"},
            "maxTriggerDelay has to be a duration",
        ),
        (
            {"startingTimestamp": '{"B": 1}'},
            "startingTimestamp has no entry for stream A",
        ),
        ({"startingTimestamp": '{"A": "x"}'}, "startingTimestamp has to be a time"),
        ({"readMode": "push"}, "readMode has to be consumer or direct"),
        ({"subjects": ","}, "subjects has to be a list, separated by commas"),
    ],
)
def test_a_batch_rejects_options_of_a_stream(
    given: dict[str, str], wanted: str
) -> None:
    with pytest.raises(ConfigError, match=wanted):
        SourceOptions.of(Options({"stream": "A", **given}), streaming=False)


@pytest.mark.parametrize(
    "given",
    [
        {"maxOffsetsPerTrigger": "5"},
        {"maxBytesPerTrigger": "5"},
        {"minOffsetsPerTrigger": "5"},
        {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"},
    ],
    ids=lambda given: next(reversed(given)),
)
def test_a_batch_rejects_limits_of_micro_batches(given: dict[str, str]) -> None:
    chosen = Options({"stream": "A", **given})
    with pytest.raises(ConfigError, match="PerTrigger is for the micro-batches"):
        SourceOptions.of(chosen, streaming=False)
    SourceOptions.of(chosen, streaming=True)


def test_filters_that_others_cover_are_left_out() -> None:
    """A server refuses filters that overlap."""
    given = source(subjects="a.1, b.>, a.*, a.*, b.c.d, c.*.x, c.y.*")
    assert given.subjects == ("b.>", "a.*", "c.*.x", "c.y.*")
    of_bucket = Options({"bucket": "b", "keys": "*,k,k.1"})
    assert SourceOptions.of(of_bucket, streaming=False).keys == ("*", "k.1")


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigError, match="endingOffsets is for a batch"):
        source(streaming=True, endingOffsets=5)
    assert source(streaming=True).starting.of("A") == "latest"
    assert source().starting.of("A") == "earliest"


def test_places_are_sequences_ends_or_moments() -> None:
    given = source(
        stream="A, B", startingOffsets='{"A": 7, "B": "earliest"}', endingOffsets=9
    )
    assert given.starting.named == {"A": 7, "B": "earliest"}
    assert given.ending.of("B") == 9
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "1769860800000"):
        assert source(startingTimestamp=text).starting.of("A") == noon
    each = source(
        stream="A, B",
        startingTimestamp='{"A": "2026-01-31T12:00:00Z", "B": 0}',
        endingTimestamp='{"A": 1769860800000, "B": 5}',
    )
    assert each.starting.named == {"A": noon, "B": datetime.fromtimestamp(0, UTC)}
    assert each.ending.of("A") == noon


def test_a_pattern_names_streams_but_no_buckets() -> None:
    given = Options(
        {"streamPattern": "ORDERS-.*|KV_.*", "startingOffsets": '{"ORDERS-1": 7}'}
    )
    chosen = SourceOptions.of(given, streaming=True)
    assert chosen.pattern is not None
    names = ["ORDERS-1", "ORDERS-", "MY-ORDERS-1", "KV_ORDERS-1"]
    assert [matches(chosen.pattern, name) for name in names] == [
        True,
        True,
        False,
        False,
    ]
    assert (chosen.starting.of("ORDERS-1"), chosen.starting.of("ORDERS-2")) == (
        7,
        "latest",
    )
    for more, wanted in (
        ({"streamPattern": "("}, "streamPattern has to be a regular expression"),
        ({"streamPattern": "A", "stream": "A"}, "exclude each other"),
        ({"streamPattern": "A", "startingOffsets": '{"B": 1}'}, "names stream B"),
    ):
        with pytest.raises(ConfigError, match=wanted):
            SourceOptions.of(Options(more), streaming=True)


def table(streaming: bool = False, **given: object) -> SourceOptions:
    named = {name: str(value) for name, value in given.items()}
    return SourceOptions.of(Options(named, "read"), streaming=streaming)


def test_a_bucket_is_read_as_table_or_changes() -> None:
    values = table(bucket="b", keys="user.*, x")
    assert (values.streams, values.keys) == (("KV_b",), ("user.*", "x"))
    assert values.is_table
    assert table(bucket="b", history="false").is_table
    assert not table(bucket="b", history="true", startingOffsets=5).is_table
    changes = table(streaming=True, bucket="b", startingOffsets="earliest")
    assert (changes.streams, changes.is_table) == (("KV_b",), False)
    assert table(stream="A", lastPerSubject="true").is_table
    assert not table(stream="A", lastPerSubject="false", endingOffsets=5).is_table


@pytest.mark.parametrize(
    ("streaming", "given", "wanted"),
    [
        (False, {"bucket": "b", "stream": "A"}, "stream and bucket exclude each other"),
        (
            False,
            {"bucket": "b", "subjects": "a"},
            "subjects is for streams.* give keys",
        ),
        (
            False,
            {"bucket": "b", "includeHeaders": "true"},
            "includeHeaders is for streams",
        ),
        (
            False,
            {"bucket": "b", "lastPerSubject": "true"},
            "has the last value of each",
        ),
        (
            False,
            {"bucket": "a.b"},
            "bucket has to be the name of one bucket, not 'a.b'",
        ),
        (False, {"bucket": "b", "keys": "a b"}, "keys has to be keys or patterns"),
        (False, {"stream": "A", "keys": "a"}, "keys needs bucket"),
        (False, {"stream": "A", "history": "true"}, "history needs bucket"),
        (True, {"bucket": "b", "history": "true"}, "history is for a batch"),
        (False, {"bucket": "b", "endingOffsets": "5"}, "each key: add history=true"),
        (False, {"bucket": "b", "readMode": "direct"}, "each key: add history=true"),
        (True, {"stream": "A", "lastPerSubject": "true"}, "is for a batch"),
        (
            False,
            {"stream": "A", "lastPerSubject": "true", "startingOffsets": "5"},
            "each subject: leave lastPerSubject out",
        ),
        (False, {}, "stream is missing: the stream to read, or bucket"),
    ],
)
def test_options_of_tables_have_to_fit(
    streaming: bool, given: dict[str, str], wanted: str
) -> None:
    with pytest.raises(ConfigError, match=wanted):
        table(streaming, **given)


def test_records_of_partitions_have_to_fit() -> None:
    assert source(minPartitions=2, minRecordsPerPartition=10).min_partition_rows == 10
    with pytest.raises(ConfigError, match="needs minPartitions"):
        source(minRecordsPerPartition=10)
    with pytest.raises(ConfigError, match="is above maxRecordsPerPartition: 10 and 9"):
        source(minPartitions=2, minRecordsPerPartition=10, maxRecordsPerPartition=9)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("15m", 900), ("2 H", 7200)]
)
def test_a_delay_has_a_unit(text: str, seconds: float) -> None:
    given = source(streaming=True, minOffsetsPerTrigger=5, maxTriggerDelay=text)
    assert (given.min_rows, given.max_delay) == (5, seconds)
    assert source(streaming=True, minOffsetsPerTrigger=5).max_delay == 900


def test_a_secret_never_leaves_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "s3cret")
    (tmp_path / "token").write_text("s3cret\n")
    for options in (
        connecting(user="ann", passwordEnv="ORDERS_PASSWORD"),
        connecting(tokenFile=str(tmp_path / "token")),
    ):
        assert "s3cret" not in repr(options)
        assert b"s3cret" not in pickle.dumps(options)
        assert pickle.loads(pickle.dumps(options)) == options
    assert repr(connecting(domain="hub")) == "ConnectionOptions(domain='hub')"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"servers": "nats://ann:s3cret@a"}, "credentials in a URL"),
        ({"user": "ann"}, "nats.user needs nats.passwordEnv"),
        ({"passwordEnv": "X"}, "a password needs nats.user"),
        ({"tokenEnv": "X", "credentialsFile": "x"}, "exclude each other"),
        ({"domain": "a", "apiPrefix": "b"}, "exclude each other"),
        ({"timeout": "0"}, "nats.timeout has to be a number of seconds above 0"),
        ({"timeout": "nan"}, "nats.timeout has to be a number of seconds above 0"),
        ({"tls": "yes"}, "nats.tls has to be true or false"),
    ],
)
def test_an_invalid_connection_is_rejected(given: dict[str, str], wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted) as refused:
        connecting(**given)
    assert "s3cret" not in str(refused.value)


def test_a_missing_secret_is_reported_by_its_place(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="variable NOWHERE is not set where this runs"
    ):
        get_connection(connecting(tokenEnv="NOWHERE"))
    with pytest.raises(ConfigError, match=r"nothing cannot be read: No such file"):
        get_connection(connecting(tokenFile=str(tmp_path / "nothing")))


def test_every_option_of_a_connection_is_used() -> None:
    """The connection uses exactly the listed options."""
    texts = {"nats.tls": "true", "nats.tlsHandshakeFirst": "true"}
    seconds = {
        "nats.connectTimeout": "7",
        "nats.timeout": "8",
        "nats.retryTimeout": "9",
    }
    plain = ConnectionOptions()
    for name in NATS:
        value = {**texts, **seconds}.get(name, "x")
        more = {"nats.user": "ann"} if "password" in name else {}
        more |= {"nats.passwordEnv": "X"} if name == "nats.user" else {}
        more |= {"nats.nkeySeedEnv": "X"} if "jwt" in name else {}
        assert ConnectionOptions.of(Options({name: value, **more})) != plain, name
