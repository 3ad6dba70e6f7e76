"""Tests of `jsync consumer`, `next`, `fetch` and `consume` against a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ..support.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from jsync import Consumer, JetStream, Stream

    from .support import Jsync

pytestmark = pytest.mark.server


def fill(js: JetStream, stream: Stream, count: int) -> None:
    with js.publisher() as publisher:
        for number in range(1, count + 1):
            publisher.publish(f"{stream.name}.{number % 2}", b"%d" % number)


def wait_until_acknowledged(consumer: Consumer, sequence: int) -> None:
    """Wait for the server to process the acks, which it does a moment after it has read them."""
    wait_for(lambda: consumer.info().ack_floor.stream_seq == sequence)


def test_options_of_nats_consumer_add_create_a_consumer(
    jsync: Jsync, stream: Stream
) -> None:
    name = stream.name
    ended = jsync(
        *("consumer", "add", name, "worker", "--pull", "--defaults"),
        *("--filter", f"{name}.a,{name}.b", "--ack", "all", "--deliver", "3"),
        *("--replay", "original", "--max-deliver", "4", "--backoff", "1s,5s"),
        *("--max-pending", "10", "--max-waiting", "7", "--max-pull-batch", "100"),
        *("--max-pull-expire", "1m", "--max-pull-bytes", "1MB", "--sample", "50"),
        *("--headers-only", "--memory", "--metadata", "team=a"),
        *("--description", "of words", "--inactive-threshold", "1h"),
    )
    assert ended.code == 0, ended.errors
    config = stream.consumer("worker").config
    assert config.durable_name == "worker"
    assert config.filter_subjects == [f"{name}.a", f"{name}.b"]
    assert (config.ack_policy, config.replay_policy) == ("all", "original")
    assert (config.deliver_policy, config.opt_start_seq) == ("by_start_sequence", 3)
    assert (config.max_deliver, config.backoff) == (4, [1, 5])
    assert (config.max_ack_pending, config.max_waiting, config.max_batch) == (
        10,
        7,
        100,
    )
    assert (config.max_expires, config.max_bytes, config.sample_freq) == (
        60,
        1 << 20,
        "50",
    )
    assert (config.headers_only, config.mem_storage) == (True, True)
    assert (config.description, config.inactive_threshold) == ("of words", 3600)
    assert (config.metadata or {})["team"] == "a"


@pytest.mark.parametrize(
    ("where", "policy"),
    [
        ("all", "all"),
        ("new", "new"),
        ("last", "last"),
        ("subject", "last_per_subject"),
        ("1h", "by_start_time"),
    ],
)
def test_a_consumer_starts_at_the_given_place(
    jsync: Jsync, stream: Stream, where: str, policy: str
) -> None:
    filters = ("--filter", f"{stream.name}.a")
    options = (
        "--deliver",
        where,
        "--ephemeral",
        "--inactive-threshold",
        "1m",
        *filters,
    )
    info = jsync("consumer", "create", stream.name, "temporary", *options, "-j").json
    assert info["config"]["deliver_policy"] == policy
    assert "durable_name" not in info["config"]
    assert info["config"]["filter_subject"] == f"{stream.name}.a"


def test_a_consumer_without_a_name_is_given_one(jsync: Jsync, stream: Stream) -> None:
    info = jsync("consumer", "create", stream.name, "--json").json
    assert info["name"]
    assert "durable_name" not in info["config"]


def test_push_consumers_are_created_and_shown_not_pulled(
    jsync: Jsync, stream: Stream
) -> None:
    name = stream.name
    target = ("--target", f"push.{name}", "--heartbeat", "5s", "--flow-control")
    assert jsync("consumer", "add", name, "pushed", *target).code == 0
    facts = dict(line.split("\t") for line in jsync("con", "nfo", name, "pushed").lines)
    assert (facts["deliver_subject"], facts["idle_heartbeat"]) == (f"push.{name}", "5s")
    for command in ("next", "fetch", "consume"):
        ended = jsync(command, name, "pushed")
        assert (ended.code, f"`jsync sub push.{name}`" in ended.errors) == (2, True)


def test_priority_groups_are_made_and_unpinned(jsync: Jsync, stream: Stream) -> None:
    name = stream.name
    groups = ("--pinned-groups", "jobs", "--pinned-ttl", "30s")
    info = jsync("consumer", "add", name, "pinned", *groups, "-j").json["config"]
    assert (info["priority_policy"], info["priority_groups"]) == (
        "pinned_client",
        ["jobs"],
    )
    assert (
        jsync("consumer", "unpin", name, "pinned", "jobs").output == "unpinned jobs\n"
    )
    both = ("--pinned-groups", "jobs", "--overflow-groups", "jobs")
    assert jsync("consumer", "add", name, "other", *both).code == 2


def test_existing_consumer_error_names_fields_and_a_command(
    jsync: Jsync, stream: Stream
) -> None:
    stream.create_consumer(durable_name="worker", max_deliver=5)
    ended = jsync("consumer", "add", stream.name, "worker", "--max-pending", "5")
    assert ended.code == 1
    assert ": max_deliver, max_ack_pending (err_code 10148)" in ended.errors
    assert "update_consumer" not in ended.errors


def test_edit_changes_named_fields_and_shows_the_result(
    jsync: Jsync, stream: Stream, tmp_path: Path
) -> None:
    name = stream.name
    stream.create_consumer(durable_name="worker", description="of words")
    edit = ("consumer", "edit", name, "worker")
    dry = jsync(*edit, "--max-pending", "5", "--dry-run", "--json")
    assert dry.json == {"max_ack_pending": {"from": 1000, "to": 5}}
    assert "max_ack_pending: 1000 -> 5" in dry.errors
    unforced = jsync(*edit, "--max-pending", "5")
    assert (unforced.code, "--force" in unforced.errors) == (2, True)
    assert jsync(*edit, "--max-pending", "5", "--wait", "10s", "-f").code == 0
    config = stream.consumer("worker").config
    assert (config.max_ack_pending, config.ack_wait) == (5, 10)
    assert config.description == "of words"
    assert jsync(*edit, "--unset", "description", "-f").code == 0
    assert stream.consumer("worker").config.description is None
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"durable_name": "worker", "ack_policy": "explicit"}))
    assert jsync(*edit, "--config", str(path), "-f").code == 0
    config = stream.consumer("worker").config
    assert (config.max_ack_pending, config.description) == (1000, None)


def test_edit_keeps_changes_of_another_operator(
    jsync: Jsync, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = stream.create_consumer(durable_name="worker")

    def late_change(question: str, *, force: bool) -> None:
        """Change the consumer while the operator reads the question."""
        consumer.update(description="of words")

    monkeypatch.setattr("jsync.cli.commands.consumer.confirm", late_change)
    ended = jsync("consumer", "edit", stream.name, "worker", "--max-pending", "5")
    assert ended.code == 0
    config = consumer.info().config
    assert (config.description, config.max_ack_pending) == ("of words", 5)


def test_consumers_are_listed_paused_resumed_and_deleted(
    jsync: Jsync, stream: Stream
) -> None:
    name = stream.name
    stream.create_consumer(durable_name="worker")
    (row,) = jsync("consumer", "ls", name).rows
    assert row == ["worker", "pull", "explicit", "0", "0", "0", "0"]
    assert jsync("consumer", "ls", name, "--names", "--json").json == ["worker"]
    assert jsync("consumer", "ls", name, "-n").lines == ["worker"]
    assert jsync("consumer", "ls", name, "-j").json[0]["name"] == "worker"
    paused = jsync("consumer", "pause", name, "worker", "1h", "--json").json
    assert paused["paused"] is True
    assert jsync("consumer", "info", name, "worker", "--json").json["paused"] is True
    assert jsync("consumer", "resume", name, "worker").output == "resumed\n"
    assert "paused" not in jsync("consumer", "info", name, "worker", "--json").json
    past = jsync("consumer", "pause", name, "worker", "2020-01-01T00:00:00Z")
    assert past.output == "not paused: that time has passed\n"
    assert jsync("consumer", "rm", name, "worker").code == 2
    assert jsync("consumer", "rm", name, "worker", "-f", "-j").json == {
        "deleted": "worker"
    }
    assert jsync("consumer", "info", name, "worker").code == 3
    assert jsync("consumer", "rm", name, "worker", "-f").code == 3
    assert jsync("consumer", "ls", "NOPE").code == 3


def test_next_writes_a_message_and_acknowledges_it(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    name = stream.name
    consumer = stream.create_consumer(durable_name="worker")
    fill(js, stream, 4)
    assert jsync("next", name, "worker", "--raw").output == "1\n"
    wait_until_acknowledged(consumer, 1)
    document = jsync("consumer", "next", name, "worker", "--json").json
    assert (document["sequence"], document["pending"], document["data"]) == (2, 2, "2")
    assert jsync("next", name, "worker", "--no-ack", "--subjects-only").lines == [
        f"{name}.1"
    ]
    assert consumer.info().num_ack_pending == 1
    assert jsync("next", name, "worker", "--nak", "--raw").output == "4\n"
    again = jsync("next", name, "worker", "--term")
    assert f"{name}.0" in again.lines[0]
    assert again.lines[0].endswith("(0 pending, delivery 2)")
    none = jsync("next", name, "worker", "--wait", "50ms")
    assert (none.code, none.output) == (4, "")
    assert none.errors == "jsync: no message within 0.05 s\n"
    assert jsync("next", name, "nobody").code == 3


def test_fetch_writes_a_batch_and_acknowledges_it(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    name = stream.name
    consumer = stream.create_consumer(durable_name="worker")
    fill(js, stream, 10)
    assert jsync("fetch", name, "worker", "--count", "3", "--raw").lines == [
        "1",
        "2",
        "3",
    ]
    rest = jsync("fetch", name, "worker", "--no-wait", "--json").documents
    assert [document["data"] for document in rest] == [*"456789", "10"]
    wait_until_acknowledged(consumer, 10)
    assert jsync("fetch", name, "worker", "--no-wait") == (0, "", "")
    assert jsync("fetch", name, "worker", "--wait", "50ms") == (0, "", "")
    assert jsync("fetch", name, "worker", "--no-wait", "--wait", "1s").code == 2
    assert jsync("fetch", name, "worker", "--count", "1", "--max-bytes", "1k").code == 2


def test_a_consumer_without_acks_is_read_without_acks(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    stream.create_consumer(durable_name="silent", ack_policy="none")
    fill(js, stream, 2)
    assert jsync("next", stream.name, "silent", "--raw") == (0, "1\n", "")
    assert jsync("fetch", stream.name, "silent", "--count", "1", "-r") == (0, "2\n", "")


def test_consume_prints_and_acknowledges_messages_of_a_consumer(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    consumer = stream.create_consumer(durable_name="worker")
    fill(js, stream, 30)
    name = stream.name
    counted = jsync(
        "consume", name, "worker", "--count", "20", "--raw", "--max-messages", "5"
    )
    assert counted.lines == [str(number) for number in range(1, 21)]
    rest = jsync("consume", name, "worker", "--count", "10", "--json")
    assert [document["sequence"] for document in rest.documents] == list(range(21, 31))
    assert jsync("consume", name, "worker", "--wait", "50ms") == (0, "", "")
    wait_until_acknowledged(consumer, 30)
    assert jsync("consume", name, "worker", "--new").code == 2
    assert jsync("consume", name, "worker", "-T").code == 2


def test_consume_without_a_consumer_reads_in_stream_order(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    fill(js, stream, 9)
    name = stream.name
    read = ("consume", name, "--terminate-at-end", "--raw")
    assert jsync(*read).lines == [str(number) for number in range(1, 10)]
    assert jsync(*read, "--filter", f"{name}.1").lines == ["1", "3", "5", "7", "9"]
    assert jsync(*read, "--last").lines == ["9"]
    assert jsync(*read, "--last-per-subject").lines == ["8", "9"]
    assert jsync(*read, "--start-sequence", "8").lines == ["8", "9"]
    assert jsync(*read, "--since", "1h", "--count", "2").lines == ["1", "2"]
    assert jsync(*read, "--new").output == ""
    assert jsync(*read, "--new", "--since", "1h").code == 2
    assert jsync("consume", "NOPE", "-T").code == 3
    assert list(stream.consumer_names()) == []


def test_reset_delivers_acknowledged_messages_again(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    fill(js, stream, 5)
    consumer = stream.create_consumer(durable_name="worker")
    for msg in consumer.fetch(5):
        msg.ack()
    wait_until_acknowledged(consumer, 5)
    unsure = jsync("consumer", "reset", stream.name, "worker", "3")
    assert (unsure.code, "to sequence 3?" in unsure.errors) == (2, True)
    ended = jsync("consumer", "reset", stream.name, "worker", "3", "--force")
    assert (
        ended.output == "consumer worker continues from sequence 3, with 3 messages\n"
    )
    assert [msg.data for msg in consumer.fetch(3)] == [b"3", b"4", b"5"]
    document = jsync("consumer", "reset", stream.name, "worker", "-f", "--json").json
    assert document["reset_seq"] == 3
    missing = jsync("consumer", "reset", stream.name, "none", "3", "--force")
    assert missing.code == 3


def test_a_consumer_without_fixed_start_refuses_reset(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    fill(js, stream, 2)
    stream.create_consumer(durable_name="newest", deliver_policy="new")
    ended = jsync("consumer", "reset", stream.name, "newest", "1", "--force")
    assert (ended.code, "reset" in ended.errors) == (1, True), ended.errors
