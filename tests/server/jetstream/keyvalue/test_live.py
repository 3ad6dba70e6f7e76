"""Tests of live copies, mappings that stay equal to the bucket."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.jetstream.watching.driver import INFO_TIMEOUT

from ....support.proxy import frame_changer
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread
from .support import fill

if TYPE_CHECKING:
    from ....support.proxy import FaultProxy, Side

pytestmark = pytest.mark.server


def test_a_live_copy_is_complete_from_the_start(
    nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    keys = [f"k.{number}" for number in range(3000)]
    fill(nc, bucket, keys)
    bucket.delete("k.0")
    with bucket.live() as view:
        assert dict(view) == {key: key.encode() for key in keys[1:]}
        assert len(view) == 2999
        assert list(view) == keys[1:]
        assert "k.1" in view
        assert "k.0" not in view
        assert view.get("k.0") is None
        with pytest.raises(KeyError):
            view["k.0"]
        assert view.is_current


def test_reading_a_live_copy_sends_no_request(
    nc: jsync.Connection, bucket: jsync.KeyValue
) -> None:
    bucket.put("a", b"1")
    with bucket.live() as view:
        nc.flush()
        before = nc.stats().out_messages
        for _ in range(1000):
            assert view["a"] == b"1"
        assert view.entry("a").revision == 1
        assert nc.stats().out_messages == before


def test_a_live_copy_follows_changes_of_its_keys(
    bucket: jsync.KeyValue,
) -> None:
    with bucket.live("db.>", "web") as view:
        assert len(view) == 0
        bucket.put("db.host", b"1")
        bucket.put("other", b"2")
        view.wait_for(bucket.put("web", b"3"))
        assert dict(view) == {"db.host": b"1", "web": b"3"}
        bucket.delete("web")
        view.wait_for(bucket.purge("db.host"))
        assert dict(view) == {}
        assert view.revision == 5


def test_a_revision_is_waited_for(bucket: jsync.KeyValue) -> None:
    with bucket.live() as view:
        waiting = Thread(view.wait_for, 2, LONG)
        waiting.wait_until_blocked()
        bucket.put("a")
        assert not waiting.ended
        bucket.put("a")
        waiting.result()
        with pytest.raises(errors.TimeoutError, match="revision 3"):
            view.wait_for(3, 0.05)
        waiting = Thread(view.wait_for, 4, LONG)
        waiting.wait_until_blocked()
        view.stop()
        assert isinstance(waiting.error(), errors.SubscriptionClosedError)
    assert list(view) == ["a"]


def test_a_live_copy_shows_that_it_is_outdated(
    proxy: FaultProxy,
    far: jsync.Connection,
    bucket: jsync.KeyValue,
    far_bucket: jsync.KeyValue,
) -> None:
    bucket.put("a", b"1")
    with far_bucket.live(on_error=Recorder()) as view:
        assert view.is_current
        assert view.age < SOON
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: not view.is_current)
        age = view.age
        revision = bucket.put("a", b"2")
        wait_for(lambda: view.age > age + 0.2)
        assert view["a"] == b"1"
        proxy.accept()
        view.wait_for(revision, LONG)
        wait_for(lambda: view.is_current)
        assert view["a"] == b"2"
        assert view.age < age + SOON


def test_a_live_copy_becomes_current_without_any_change(
    proxy: FaultProxy, far_bucket: jsync.KeyValue, bucket: jsync.KeyValue
) -> None:
    bucket.put("a", b"1")
    with far_bucket.live(on_error=Recorder()) as view:
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: not view.is_current)
        proxy.accept()
        wait_for(lambda: view.is_current)
        assert dict(view) == {"a": b"1"}


def test_a_deleted_buckets_live_copy_raises_its_error(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    with bucket.live(on_error=Recorder()) as view:
        js.delete_key_value(bucket.bucket)
        with pytest.raises(errors.BucketNotFoundError):
            view.wait_for(1, LONG)
        assert not view.is_current


def test_an_incomplete_copy_raises_a_timeout(
    far: jsync.Connection, proxy: FaultProxy, far_bucket: jsync.KeyValue
) -> None:
    proxy.deaf("server")
    with pytest.raises(errors.TimeoutError):
        far_bucket.live(timeout=0.3)
    proxy.hear("server")


# What goes without a message ----------------------------------------------------------


def agree(view: jsync.LiveView, bucket: jsync.KeyValue) -> bool:
    return sorted(view) == sorted(bucket.keys())


def test_a_live_copy_expires_with_its_buckets_ttl(
    js: jsync.JetStream, unique: str
) -> None:
    bucket = js.create_key_value(bucket=unique, ttl=1, storage="memory")
    with bucket.live() as view:
        view.wait_for(bucket.put("session", b"secret"))
        entry = view.entry("session")
        wait_for(lambda: "session" not in view)
        stored = entry.created.timestamp()
        assert time.time() - stored > 0.9, "not before its time"
        wait_for(lambda: not [*bucket.keys()])  # removed a moment later
        assert len(view) == len(view.entries()) == 0
        view.wait_for(bucket.put("session", b"again"))
        assert view["session"] == b"again"
    js.delete_key_value(unique)


def test_expired_keys_leave_a_disconnected_copy(
    js: jsync.JetStream, far: jsync.Connection, proxy: FaultProxy, unique: str
) -> None:
    bucket = js.create_key_value(bucket=unique, ttl=2, storage="memory")
    bucket.put("a")
    with far.jetstream().key_value(unique).live(on_error=Recorder()) as view:
        proxy.refuse()
        proxy.cut()
        assert "a" in view
        wait_for(lambda: "a" not in view)
        assert not view.is_current
        proxy.accept()
    js.delete_key_value(unique)


@pytest.mark.parametrize("history", [1, 5])
def test_keys_with_their_own_ttl_expire_without_markers(
    nc: jsync.Connection, js: jsync.JetStream, unique: str, history: int
) -> None:
    js.create_stream(
        name=f"KV_{unique}",
        subjects=[f"$KV.{unique}.>"],
        max_msgs_per_subject=history,
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        storage="memory",
    )
    bucket = js.key_value(unique)
    with bucket.live() as view:
        revision = 0
        for key, ttl in (("go", "1s"), ("two", "1"), ("stay", "never"), ("odd", "1h")):
            # As other clients write it: `ttl=` writes whole seconds.
            reply = nc.request(
                f"$KV.{unique}.{key}", b"x", headers={"Nats-TTL": ttl}, timeout=SOON
            )
            revision = json.loads(reply.data)["seq"]
        view.wait_for(revision)
        assert sorted(view) == ["go", "odd", "stay", "two"]
        wait_for(lambda: sorted(view) == ["odd", "stay"])
        wait_for(lambda: agree(view, bucket))
        view.wait_for(bucket.put("go"))
        assert "go" in view
    js.delete_stream(f"KV_{unique}")


def test_a_stream_purge_empties_a_live_copy(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    bucket.put("a")
    bucket.delete("gone")
    with bucket.live() as view, bucket.live("a", "b.>") as part:
        js.stream(f"KV_{bucket.bucket}").purge()
        wait_for(lambda: not view.entries() and not part.entries())
        view.wait_for(bucket.put("b"))
        assert list(view) == ["b"]


def test_messages_removed_one_by_one_leave_a_copy(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    for key in ("a", "b.1", "b.2", "c"):
        bucket.put(key)
    stream = js.stream(f"KV_{bucket.bucket}")
    with bucket.live() as view, bucket.live("b.>") as part:
        stream.purge(subject=f"$KV.{bucket.bucket}.b.1")
        stream.purge(subject=f"$KV.{bucket.bucket}.c")
        wait_for(lambda: sorted(view) == ["a", "b.2"])
        wait_for(lambda: list(part) == ["b.2"])
        assert sorted(bucket.keys()) == ["a", "b.2"]


def test_listing_several_filters_has_one_deadline(
    far_bucket: jsync.KeyValue, proxy: FaultProxy
) -> None:
    requests = 0

    def slow(frame: bytes, to: Side) -> bytes:
        nonlocal requests
        if to == "server" and b"subjects_filter" in frame:
            requests += 1
            time.sleep(0.6 * INFO_TIMEOUT)
        return frame

    with far_bucket.live("a", "b", "c") as view:
        proxy.rewrite(frame_changer(slow))
        view._drop_unlisted()
        assert 1 <= requests <= 2
        proxy.rewrite(None)


def test_a_limit_that_drops_old_entries_is_followed(
    js: jsync.JetStream, unique: str
) -> None:
    js.create_stream(
        name=f"KV_{unique}",
        subjects=[f"$KV.{unique}.>"],
        max_msgs_per_subject=1,
        max_bytes=2000,
        storage="memory",
    )
    bucket = js.key_value(unique)
    with bucket.live() as view:
        view.wait_for(
            [bucket.put(f"k.{number}", bytes(100)) for number in range(50)][-1]
        )
        wait_for(lambda: 0 < len(view) < 30 and agree(view, bucket))
    js.delete_stream(f"KV_{unique}")
