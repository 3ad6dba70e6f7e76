"""The hot path, in Cython: everything that runs once for each message.

The docstrings are in the extension, where `help` finds them. This stub repeats those
that documentation and editors show, of objects that users hold. It also has those of C
attributes and functions, which have none in the extension.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from threading import Thread
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Unpack,
    final,
)

from typing_extensions import disjoint_base

from .headers import Headers, HeadersLike
from .models.ack import PubAck
from .models.publish import PublishOptions
from .validation import Seconds

_Given = TypeVar("_Given")
_SelfT = TypeVar("_SelfT")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Item = TypeVar("_Item")

MAX_CONTROL_LINE: Final[int]
"""The longest MSG or HMSG line accepted, in bytes. INFO and -ERR may be longer."""

# Messages -------------------------------------------------------------------------

@disjoint_base
class Msg:
    """A message: `subject`, `reply`, `headers` and `data`.

    The connection makes messages. To call your own handler in a test, make one
    yourself, or use `jsync.testing.message`. Headers are decoded when you first read
    them. You may keep a message for as long as you like, and read it from any thread.

    Example:
        ```python
        with nc.subscribe("news.*") as news:
            nc.publish("news.sport", b"1:0")
            msg = news.next(timeout=5)
            print(msg.subject, msg.data)
        ```
    """

    def __init__(
        self,
        subject: str,
        data: bytes = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None: ...
    @property
    def subject(self) -> str:
        """The subject to which the message was published."""
    @property
    def reply(self) -> str | None:
        """The subject for an answer, if any. For a consumer's message, its ack subject."""
    @property
    def data(self) -> bytes:
        """The payload."""
    @property
    def headers(self) -> Headers | None:
        """The headers. None if there are none, or if they are unreadable.

        Other clients may publish any bytes as headers. `headers_error` has the reason, and
        `on_error` gets an `UnreadableHeadersError` when you first read them.
        """
    @property
    def headers_error(self) -> str | None:
        """Why headers, or some of them, are unreadable. None: all are readable."""
    @property
    def raw_headers(self) -> bytes | None:
        """The header block as bytes. None if there are no headers."""
    @property
    def status(self) -> int | None:
        """The number of an inline status such as 503. None for published messages."""
    @property
    def status_text(self) -> str:
        """The text after `status`, such as `No Messages`. Otherwise empty."""
    @property
    def size(self) -> int:
        """The bytes of subject, reply, headers and payload together."""
    def respond(self, data: bytes = b"", *, headers: HeadersLike | None = None) -> None:
        """Publish a reply to this message. Does not wait, like `Connection.publish`.

        Args:
            data: The payload.
            headers: The headers of the reply.

        Raises:
            NoReplySubjectError: The message has no reply subject: it was not a request.
        """

class Ack(NamedTuple):
    """An acknowledgement of a message that you made by hand."""

    kind: Literal["ack", "ack_sync", "nak", "term", "in_progress"]
    delay: float | None = None
    reason: str | None = None

@final
class JetStreamMsg(Msg):
    """A message from a consumer, which you can acknowledge.

    You may send acks from any thread. Acks are buffered. They are sent when you run out
    of messages, when the buffer reaches 32 KiB, or after 1 ms, whichever comes first.
    After a final ack (`ack`, `nak`, `term`) further acks do nothing, and so does every
    ack of a consumer whose ack policy is `none`. (ADR-15)

    A message that you make by hand sends nothing: `acks` lists your acks.

    Raises:
        NotJetStreamMessageError: Raised by each ack of a message that did not come from
            a consumer.
        ConnectionClosedError: Raised by each ack once the connection is closed.

    Example:
        ```python
        consumer = stream.create_consumer(durable_name="billing")
        msg = consumer.next(timeout=5)
        print(msg.subject, msg.data, msg.metadata.stream_sequence)
        msg.ack()
        ```
    """

    @property
    def metadata(self) -> Metadata:
        """The delivery of the message: stream, consumer, sequences, time.

        Raises:
            NotJetStreamMessageError: The message did not come from a consumer.
        """
    @property
    def is_redelivered(self) -> bool:
        """True if the server delivered the message before: `num_delivered` is above 1.

        Raises:
            NotJetStreamMessageError: The message did not come from a consumer.
        """
    @property
    def is_acked(self) -> bool:
        """True once a final ack was sent or buffered."""
    @property
    def acks(self) -> list[Ack]:
        """The acks of a message that you made by hand, in order.

        Raises:
            AttributeError: The message came from a server.
        """
    def ack(self) -> None:
        """Tell the server that the message is done. Does not wait for the server.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            consumer.next(timeout=5).ack()
            ```
        """
    def nak(self, delay: Seconds | None = None) -> None:
        """Make the server redeliver the message. Does not wait for the server.

        Args:
            delay: Seconds until the redelivery. Default: immediately.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            consumer.next(timeout=5).nak(delay=60)  # comes again in a minute
            ```
        """
    def term(self, reason: str | None = None) -> None:
        """Tell the server not to deliver the message again. Does not wait.

        Args:
            reason: The reason, for the server's advisory. Needs nats-server 2.10.4.
        """
    def in_progress(self) -> None:
        """Request another `ack_wait` from the server until it redelivers the message."""
    def ack_sync(self, timeout: Seconds = 5.0) -> None:
        """Ack the message, and block until the server has confirmed the ack.

        A second call does nothing, and neither does one after `ack`, `nak` or `term`.

        Args:
            timeout: How long to wait for the confirmation, in seconds.

        Raises:
            TimeoutError: No confirmation came in time. The ack may have arrived.
            ConnectionLostError: The connection was lost. The ack may have arrived.
            NoRespondersError: No one takes the ack: the consumer or its stream is gone, or
                has no leader.
            ConnectionClosedError: The connection is closed.
            PermissionsError: You may not publish to the subject of the ack.
            NotJetStreamMessageError: The message did not come from a consumer.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            consumer.next(timeout=5).ack_sync()  # returns when the server has the ack
            ```
        """

@final
class Metadata:
    """The metadata of a message from a consumer, read from its ack subject. (ADR-15)

    Example:
        ```python
        consumer = stream.create_consumer(durable_name="billing")
        msg = consumer.next(timeout=5)
        print(msg.metadata.timestamp, msg.metadata.num_delivered)
        msg.ack()
        ```
    """

    @property
    def stream(self) -> str:
        """The name of its stream."""
    @property
    def consumer(self) -> str:
        """The name of the consumer that it came from."""
    @property
    def num_delivered(self) -> int:
        """The number of deliveries so far, including this one. 1 is the first."""
    @property
    def stream_sequence(self) -> int:
        """Its place in the stream, from 1: the same with each delivery and consumer."""
    @property
    def consumer_sequence(self) -> int:
        """The number of messages that the consumer had delivered, this one included."""
    @property
    def timestamp(self) -> datetime:
        """When the stream stored the message: aware, UTC, microseconds."""
    @property
    def timestamp_ns(self) -> int:
        """When the stream stored the message, in nanoseconds since 1970, UTC."""
    @property
    def num_pending(self) -> int:
        """Messages that the consumer had still to deliver behind it, when it was sent."""
    @property
    def domain(self) -> str | None:
        """The JetStream domain. None without one, or if an old server omits it (v1)."""

def take_partition(msg: JetStreamMsg) -> None: ...
def parse_ack_subject(subject: str) -> Metadata:
    """Split an ack subject: v1 has 9 tokens, v2 has 11 or more, domain `_` is none.

    Raises `NotJetStreamMessageError` for any other subject.
    """

def parse_headers(block: bytes) -> tuple[int | None, str, Headers | None, str | None]:
    """Parse a header block, `NATS/1.0...` to the blank line: status, its text, headers.

    Values are stripped of surrounding blanks, and bytes that are not UTF-8 become lone
    surrogates. The fourth item is the reason why a part is unreadable, or None. A part
    is unreadable if the first line is not `NATS/1.0` (then the headers are None), if a
    line has no colon (it is skipped), or if a blank line comes before the end (the last
    line read).
    """

def encode_headers(headers: HeadersLike) -> bytes:
    """Encode headers as a block. Raises `InvalidHeaderError` for invalid ones."""

def encode_publish(
    subject: str,
    data: bytes | bytearray | memoryview = b"",
    reply: str | None = None,
    headers: HeadersLike | None = None,
) -> bytes:
    """Encode one PUB or HPUB. Raises `InvalidSubjectError` or `InvalidHeaderError`."""

def check_publish_subject(subject: str) -> None:
    """Raise `InvalidSubjectError` unless a message can be published to `subject`."""

def check_subscribe_subject(subject: str, queue: str | None = None) -> None:
    """Raise `InvalidSubjectError` unless it can be subscribed to. Allows wildcards."""

def message_size(subject: str, reply: str | None, headers: bytes, data: bytes) -> int:
    """Return the size as the server counts it: subject, reply, headers, payload."""

# Reading --------------------------------------------------------------------------

class Event(StrEnum):
    INFO = "INFO"
    ERR = "-ERR"
    OK = "+OK"
    PING = "PING"
    PONG = "PONG"
    STATUS = "STATUS"
    SLOW = "SLOW"
    FIRST = "FIRST"
    ENDED = "ENDED"
    ORDER = "ORDER"
    CALL = "CALL"
    BROKEN = "BROKEN"
    READABLE = "READABLE"
    WRITABLE = "WRITABLE"

@disjoint_base
class Parser:
    """Cuts a byte stream into NATS frames. One thread at a time.

    `feed` returns what became complete, in order, as `(Event, value)`,
    and MSG and HMSG as `("MSG", (sid, Msg))`.

    A malformed frame, a line over its bound, or a message over `max_message` bytes
    raises `ProtocolError`, and the parser then refuses to continue. With `framed` the
    stream comes in the frames of a WebSocket. `inflate` gets the parts of compressed
    messages, and whether each part is the last.
    """

    def __init__(
        self,
        max_message: int = ...,
        *,
        framed: bool = False,
        inflate: Callable[[bytes, bool], Iterable[bytes]] | None = None,
    ) -> None: ...
    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[str, Any]]: ...

@disjoint_base
class Sink: ...

@final
class SequenceChecker:
    def __init__(
        self,
        after: int,
        *,
        last: int | None = None,
        to_end: bool = False,
        consumer_sequence: int = 0,
    ) -> None: ...
    @property
    def consumer_sequence(self) -> int: ...
    @property
    def stream_sequence(self) -> int: ...
    @property
    def stopped(self) -> Literal["gap", "last"] | None: ...
    def take_passed_over(self) -> tuple[int, int]: ...
    def take_ran_dry(self) -> bool: ...

@final
class GapTracker:
    @property
    def consumer_sequence(self) -> int: ...
    @property
    def stream_sequence(self) -> int: ...
    def start(self, consumer_sequence: int, stream_sequence: int) -> bool: ...
    def on_heartbeat(self, consumer_sequence: int, stream_sequence: int) -> bool: ...
    def take_gaps(self) -> list[tuple[int, int, int, int]]: ...

@final
class PinId:
    @property
    def id(self) -> str: ...
    def clear(self, refused: str) -> None: ...

@final
class RowBuffer:
    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        max_rows: int = 0,
        acks: bool = False,
        together: bool = False,
        limit: int = ...,
    ) -> None: ...

@final
class ArrowBatch:
    """Messages as columns: an Arrow record batch.

    `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)` and `FROM batch` in DuckDB
    use the memory of the batch without a copy, and keep it as long as they need. You
    choose the columns among:

    - `subject`: `utf8`, not null. Bytes that are not UTF-8 are replaced by U+FFFD.
    - `data`: `binary`, not null. The payload.
    - `sequence`: `uint64`, not null. The stream sequence.
    - `timestamp`: `timestamp[ns, UTC]`, not null. When the stream stored the message.
    - `headers`: `map<utf8, list<utf8>>`, null if there are none, or if they are
      unreadable. Each name once, with its values in their order.

    A batch of more than 2 GiB consists of several record batches, and has only
    `__arrow_c_stream__`: pass it where a table is expected.

    You can acknowledge a batch like its messages, from any thread. See `JetStreamMsg`.

    Example:
        ```python
        import pyarrow

        for batch in stream.read_arrow():
            print(pyarrow.record_batch(batch).num_rows)
        ```
    """

    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def __len__(self) -> int: ...
    @property
    def num_rows(self) -> int:
        """The number of messages."""
    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
    @property
    def size(self) -> int:
        """The bytes of subjects, replies, headers and payloads together."""
    @property
    def last_sequence(self) -> int | None:
        """The highest stream sequence. None for an empty batch."""
    @property
    def unreadable_headers(self) -> int:
        """The number of messages with headers that are unreadable, at least in part.

        Other clients may publish any bytes as headers. `headers` has the readable ones.
        0 if `headers` is not among the columns.
        """
    @property
    def is_acked(self) -> bool:
        """True once a final ack was sent or buffered."""
    def __arrow_c_schema__(self) -> object:
        """Its schema, as a capsule."""
    @property
    def __arrow_c_array__(self) -> Callable[..., tuple[object, object]]:
        """Called: schema and record batch, as capsules.

        What is too large for one record batch does not have it.
        """
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of its record batches, as a capsule."""
    def ack(self) -> None:
        """Tell the server that all these messages are done. Does not wait.

        With the ack policy `all` jsync sends one ack, for the highest sequence, which
        also covers every message before it. With `explicit` it sends one ack for each
        message, and with `none` nothing. A consumer from `JetStream.consumer` has no
        known policy, so each message is acknowledged. If an error cut the acks short,
        you can call `ack` again.

        Raises:
            ConnectionClosedError: The connection is closed.
            WriteTimeoutError: The write buffer was full for `write_timeout` seconds.
        """
    def nak(self, delay: Seconds | None = None) -> None:
        """Make the server redeliver each message. Does not wait for the server.

        Args:
            delay: Seconds until the redelivery. Default: immediately.
        """
    def term(self, reason: str | None = None) -> None:
        """Tell the server not to deliver these messages again. Does not wait.

        Args:
            reason: The reason, for the server's advisory. Needs nats-server 2.10.4.
        """
    def in_progress(self) -> None:
        """Request another `ack_wait` from the server until it redelivers these messages."""

@final
class ArrowStream: ...

@final
class HeaderBlockWriter: ...

@final
class ArrowSource:
    def __init__(
        self,
        table: object,
        *,
        subject: str,
        data: str,
        headers: str | None = None,
        check_header: Callable[[str], object] | None = None,
        **options: str | None,
    ) -> None: ...
    def take(
        self, most: int
    ) -> (
        tuple[str | list[str], list[bytes], list[bytes | None] | None, bool] | None
    ): ...

def arrow_schema(columns: RowBuffer) -> object:
    """Return the schema of these columns, as a capsule."""

def arrow_stream(columns: RowBuffer, batches: Iterator[ArrowBatch]) -> object:
    """Return a stream of batches that have these columns, as a capsule."""

@disjoint_base
class Mailbox(Sink):
    max_messages: int
    max_bytes: int
    on_first: Callable[[], object] | None
    alone: bool
    overflow: Mailbox | None
    sid: int

    def __init__(
        self,
        write_buffer: WriteBuffer,
        sid: int,
        *,
        subject: str = "",
        max_messages: int = 0,
        max_bytes: int = 0,
        readers: int = 1,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def subject(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def full(self) -> bool: ...
    @property
    def last_arrival(self) -> float: ...
    @property
    def failure(self) -> Exception | None: ...
    def get(self, timeout: float | None = None) -> Msg | None: ...
    def get_before(self, deadline: float) -> Msg | None: ...
    def hand_over(
        self,
        handler: Callable[[Any], object],
        raised: Callable[[Any, BaseException], object],
    ) -> None: ...
    def next(self, timeout: Seconds | None = None) -> Msg: ...
    def next_into(self, taken: list[Msg], timeout: Seconds | None = None) -> None: ...
    def put_back(self, taken: list[Msg]) -> None: ...
    def end_after(self, count: int) -> bool: ...
    def end_after_bytes(self, size: int) -> bool: ...
    def close(
        self, error: Exception | None = None, *, discard: bool = False
    ) -> None: ...
    def take_rest(self, rest: list[Msg] | None = None) -> list[Msg]: ...
    def claim_first(self) -> Callable[[], object] | None: ...
    @property
    def task(self) -> Any: ...
    @property
    def runner(self) -> Thread | None: ...
    def pool(self, queue: ReadyQueue, task: object) -> None: ...
    def request_turn(self) -> None: ...
    def hand_over_some(
        self,
        handler: Callable[[Any], object],
        raised: Callable[[Any, BaseException], object],
    ) -> None: ...
    def end_turn(self) -> bool: ...
    def claim_task(self) -> Any: ...
    def end_idle(self) -> None: ...
    def leave_pool(self) -> None: ...

@final
class ReadyQueue:
    def __init__(
        self, write_buffer: WriteBuffer, on_starved: Callable[[], object]
    ) -> None: ...
    @property
    def on_starved(self) -> Callable[[], object]: ...
    def state(self) -> tuple[int, float, int]: ...
    def first(self) -> Mailbox | None: ...
    def take(self) -> Mailbox | None: ...
    def calm(self) -> bool: ...
    def end(self) -> None: ...

@final
class PoolThread:
    def __init__(self, queue: ReadyQueue, identity: object) -> None: ...
    def next(self, timeout: float, last: Mailbox | None = None) -> Mailbox | None: ...

@final
class JetStreamMailbox(Mailbox):
    holds_acks: bool
    ackless: bool
    pin: PinId | None
    on_credit: Callable[[], object] | None
    on_status: Callable[[Msg], object] | None
    on_order: Callable[[], object] | None
    on_control: Callable[[Msg], object] | None
    on_end: Callable[[], object] | None
    trail: GapTracker | None
    order: SequenceChecker | None
    lent: bool

    def __init__(
        self,
        write_buffer: WriteBuffer,
        sid: int,
        *,
        max_messages: int = 0,
        max_bytes: int = 0,
        readers: int = 1,
    ) -> None: ...
    @property
    def holds_control(self) -> bool: ...
    def put(self, msg: Msg) -> None: ...
    def need_no_acks(self) -> None: ...
    def waiting(self) -> list[JetStreamMsg]: ...
    def take_counts(self) -> tuple[tuple[int, int], tuple[int, int]]: ...
    def give_credit(self, messages: int, size: int) -> bool: ...
    @property
    def columns(self) -> RowBuffer | None: ...
    def use_columns(self, columns: RowBuffer) -> None: ...
    def await_rows(self, rows: int, size: int, deadline: float) -> bool: ...
    def take_rows(self, *, whole: bool = False) -> ArrowBatch: ...

@final
class PreparedRequest:
    def __init__(
        self, mailbox: JetStreamMailbox, subject: str, reply: str, payload: bytes
    ) -> None: ...
    @property
    def number(self) -> int: ...
    def send(self, on_status: Callable[[Msg], object], deadline: float) -> Any: ...

@final
class MessageIterator:
    def __init__(
        self,
        mailbox: Mailbox,
        owner: object,
        deadline: float | None = None,
        silence: float = 0.0,
        idle: float = 0.0,
    ) -> None: ...
    def __iter__(self) -> Iterator[Msg]: ...
    def __next__(self) -> Msg: ...

@disjoint_base
class ArrowIterator:
    """The part of reading Arrow batches that Ctrl-C cannot interrupt.

    `_fill` of a subclass has a batch taken by `_take`, or returns at the end. If Ctrl-C
    comes before the batch is handed over, the next call hands it over.
    """

    def _take(self, mailbox: JetStreamMailbox) -> bool:
        """Take the rows that are here. Return whether there is a batch to hand over."""
    @property
    def _taken(self) -> list[ArrowBatch]:
        """The batch that was taken and not handed over, if there is one."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> ArrowBatch: ...

class TimedArrowIterator(ArrowIterator):
    """Reads Arrow batches, each with a timeout."""

    def next(self, timeout: Seconds | None = 5.0) -> ArrowBatch:
        """Block until the next batch is ready.

        Args:
            timeout: Seconds to wait, after which you get the messages that have come.
                None: no limit.

        Returns:
            The batch.

        Raises:
            TimeoutError: No message came in time.
            SubscriptionClosedError: The iteration has ended.
            ConsumerDeletedError: The consumer was deleted.
            ConnectionClosedError: The connection was closed.
        """

# Answers to direct gets -----------------------------------------------------------

@final
class DirectGetReply:
    @property
    def stream(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def timestamp_us(self) -> int: ...
    @property
    def timestamp(self) -> datetime: ...
    @property
    def batched(self) -> bool: ...
    @property
    def pending(self) -> int: ...
    @property
    def previous(self) -> int: ...
    @property
    def has_own(self) -> bool: ...
    @property
    def own_block(self) -> bytes | None: ...
    @property
    def operation(self) -> Literal["PUT", "DEL", "PURGE"]: ...

def read_direct(msg: Msg, *, batched: bool = False) -> DirectGetReply | None:
    """Read an answer to a direct get of one message, or of several (`batched`).

    Return None if it is none of several. Raises `ValueError` if it is no stored message.
    """

# Entries of key-value buckets ------------------------------------------------------

def is_key(key: object) -> bool:
    """Return whether it can be a key: letters, digits and `-/_=`, in words between dots."""

def read_entries(
    mailbox: Mailbox, previous: int, make: Callable[..., Any], bucket: str, prefix: str
) -> tuple[list[Any], int, int]:
    """Take the answers to a direct get of several as entries, as far as they are here.

    Stop at anything that is no entry, and at an entry that does not follow the one
    before it, which for the first entry is sequence `previous`. `make` and `prefix` are
    as in `EntryReader`.

    Returns:
        The entries, the last sequence, and the number of entries still to come after it.
    """

@final
class InitialState:
    def __init__(
        self,
        expected: int,
        *,
        end: int = ...,
        after: int = 0,
        exact: bool = True,
        latest: bool = True,
    ) -> None: ...
    @property
    def done(self) -> bool: ...
    @property
    def exact(self) -> bool: ...
    def on_server_changed(self) -> None: ...
    def on_entry(self, revision: int, delta: int) -> bool: ...
    def set_end(self, last: int) -> None: ...
    def seen(self, keys: Iterable[str]) -> bool: ...
    def finish(self) -> None: ...

@final
class EntryReader(Generic[_Given]):
    once: bool
    """True to leave out a value if one of its key came among the initial entries."""
    reads_ttl: bool
    """True to read the `ttl` of each entry."""
    held: _Given | Exception | None
    """An entry or error that comes before all that is here, from `wait` of an iterator."""

    def __init__(
        self,
        mailbox: JetStreamMailbox,
        initial: InitialState,
        make: Callable[..., Any],
        bucket: str,
        prefix: str,
        *,
        revision: int = 0,
        decoded: Callable[[Any], _Given | None] | None = None,
        ignore_deletes: bool = False,
    ) -> None:
        """`make` gets the fields of an entry, as keywords.

        `prefix` is the beginning of the subjects. `decoded` converts an entry from the
        form of the bucket. If it returns None the entry is left out, and its exceptions
        reach the reader. `revision` is that of the last entry before the first.
        """
    @property
    def revision(self) -> int: ...
    @property
    def ttl(self) -> str:
        """The `Nats-TTL` of the last entry. Empty if it has none."""
    @property
    def repeated(self) -> bool:
        """True if a value of its key came among the initial entries before."""
    def get(self, timeout: float | None = None) -> Any: ...
    def hand_over(
        self,
        callback: Callable[[_Given], object],
        raised: Callable[[_Given, BaseException], object],
        most: int = 1000,
    ) -> bool:
        """Call `callback` with entries that are here, in a turn of limited length.

        Return whether `get` has to return the next one, or has to wait for it.
        """

@final
class EntryIterator(Generic[_Item]):
    def __init__(
        self,
        entries: EntryReader[Any],
        wait: Callable[[], Any],
        *,
        initial: bool = False,
        keys: bool = False,
    ) -> None:
        """With `initial`, end after the initial entries."""
    def __iter__(self) -> Iterator[_Item]: ...
    def __next__(self) -> _Item: ...

@final
class HubQueue:
    def __init__(self, hub: Any) -> None: ...
    def close(self) -> None: ...
    def switch_to_woken(self) -> None: ...

@final
class HandoffQueue(Generic[_Item]):
    def __len__(self) -> int: ...
    def __class_getitem__(cls, item: object) -> type[HandoffQueue[Any]]: ...
    def put(self, item: _Item) -> None: ...
    def get(self, timeout: float | None = None) -> _Item: ...

@final
class Waiter(Sink):
    def __init__(
        self,
        write_buffer: WriteBuffer,
        subject: str = "",
        *,
        local: bool = False,
        others: list[bytes] | None = None,
        confirms: bool = False,
    ) -> None:
        """`local` means that no message of the server sets it.

        With `others` only a stream's answer counts, and the list gets the first answer
        of another responder. `confirms` means that an empty answer is a stream's.
        """
    @property
    def done(self) -> bool: ...
    @property
    def subject(self) -> str: ...
    def set(self, result: object) -> None: ...
    def fail(self, error: Exception) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def value(self) -> Any: ...

@final
class ReplyMux(Sink):
    def __init__(self, prefix: str) -> None: ...
    def __len__(self) -> int: ...
    @property
    def prefix(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    @is_open.setter
    def is_open(self, value: bool) -> None: ...
    def add(self, sink: Sink) -> int: ...
    def discard(self, token: int) -> None: ...
    def request(
        self,
        write_buffer: WriteBuffer,
        subject: str,
        data: bytes | bytearray | memoryview,
        timeout: float,
        headers: HeadersLike | None = None,
        others: list[bytes] | None = None,
    ) -> Msg | Literal[False] | None: ...
    def waiters(self) -> list[Sink]: ...

@final
class PubAckFuture:
    """The ack of a published message, with the methods of `concurrent.futures.Future`.

    `Publisher.publish` returns it. It is done when the stream has stored the message,
    or when publishing failed. These errors mean that the message is not stored:
    `NoStreamResponseError` if no stream takes the subject, the `APIError` of a stream
    that rejects it, `PermissionsError` and `MaxPayloadError`. After the other errors
    the message may have been stored: `TimeoutError` after `ack_timeout`, or after a
    rejection of a second sending, `ConnectionLostError`, `PublisherClosedError` and
    `ConnectionClosedError`.

    Any number of threads may wait for it. You cannot pass it to
    `concurrent.futures.wait`, `concurrent.futures.as_completed` or
    `asyncio.wrap_future`, which accept only their own class.

    Example:
        ```python
        with js.publisher() as publisher:
            future = publisher.publish("orders.new", b"7")
            print(future.result(timeout=5).seq)
        ```
    """

    def __init__(self, *_: object, **__: object) -> None:
        """Raises `TypeError`, because only a publisher makes futures."""
    @property
    def subject(self) -> str:
        """The subject of the message."""
    @property
    def data(self) -> bytes:
        """The payload. Empty once the message is stored."""
    @property
    def headers(self) -> Headers | None:
        """The headers that were sent. None once the message is stored."""
    def result(self, timeout: Seconds | None = None) -> PubAck:
        """Block until the message is stored, or publishing has failed.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            The ack.

        Raises:
            TimeoutError: The future is not done after `timeout`, or the ack did not
                come.
            NoStreamResponseError: No stream takes the subject. The message is not
                stored.
            APIError: The stream rejects the message. The message is not stored.
            ConnectionLostError: The message may have been stored.
            PublisherClosedError: The message may have been stored.
            ConnectionClosedError: The message may have been stored.
        """
    def exception(self, timeout: Seconds | None = None) -> Exception | None:
        """Block like `result`, and return the error instead of raising it.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            The error. None if the message is stored.

        Raises:
            TimeoutError: The future is not done after `timeout`.
        """
    def done(self) -> bool:
        """Return whether the ack or the error has come. Does not block."""
    def running(self) -> bool:
        """The opposite of `done`."""
    def cancel(self) -> bool:
        """Return False: a published message cannot be taken back."""
    def cancelled(self) -> bool:
        """Return False."""
    def add_done_callback(self, callback: Callable[[PubAckFuture], object]) -> None:
        """Call a function when the future is done, or soon if it is done already.

        The function runs on the connection's callback thread, or on this thread once
        the connection is closed. Its exceptions are passed to the `on_error` of
        `connect`, or logged.

        Args:
            callback: Called as `callback(future)`.
        """

@disjoint_base
class PendingAcks(Sink):
    @property
    def pending(self) -> int: ...
    @property
    def published(self) -> int: ...

@final
class AckWindow(PendingAcks):
    def __init__(
        self,
        write_buffer: WriteBuffer,
        prefix: str,
        size: int,
        limit: int,
        ack_timeout: float,
        stall_timeout: float,
        *,
        resend: bool,
        pub_ack: Callable[[str, int], PubAck],
        read_ack: Callable[[bytes], PubAck],
        no_stream: Callable[[str], Exception],
        backoff: Callable[[int], float],
        retry_attempts: int,
        retry_wait: float,
    ) -> None: ...
    watched: bool
    on_done: Callable[[], object] | None
    on_timer: Callable[[], object] | None
    on_refused: Callable[[], object] | None
    @property
    def resend(self) -> bool: ...
    @property
    def acknowledged(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def duplicates(self) -> int: ...
    @property
    def first_stored(self) -> int: ...
    @property
    def last_stored(self) -> int: ...
    @property
    def first_duplicate(self) -> int: ...
    @property
    def last_duplicate(self) -> int: ...
    def publish(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
    ) -> PubAckFuture: ...
    def publish_many(
        self,
        subjects: str | Sequence[str],
        payloads: Sequence[bytes | bytearray | memoryview],
        headers: HeadersLike | None = None,
        msg_ids: Sequence[str | None] | None = None,
    ) -> list[PubAckFuture]: ...
    def publish_rows(
        self,
        subjects: str | list[str],
        payloads: list[bytes],
        blocks: list[bytes | None] | None,
        all_ids: bool,
    ) -> None: ...
    def take_failures(self) -> tuple[list[PubAckFuture], int]: ...
    def take_done(
        self,
    ) -> list[
        tuple[
            PubAckFuture, Sequence[Callable[[PubAckFuture], object]], Exception | None
        ]
    ]: ...
    def expire(self) -> float | None: ...
    def lost(self, error: Exception) -> None: ...
    def connected(self) -> bool: ...
    def resend_now(self) -> None: ...
    def retry(self) -> bool: ...
    def retry_in(self) -> float | None: ...
    def resend_due(self, seconds: float) -> bool: ...
    def deny(self, subject: str, error: Exception) -> None: ...
    def flush(self, timeout: float | None) -> bool: ...
    def close(
        self, error: Exception, closed_error: Exception | None = None
    ) -> None: ...

@final
class IOLoop(Parser):
    def __init__(self, write_buffer: WriteBuffer, wake_fd: int) -> None: ...
    @property
    def counters(self) -> tuple[int, int]: ...
    def bind_to_thread(self) -> None: ...
    def subscribe(self, sid: int, sink: Sink) -> None: ...
    def unsubscribe(self, sid: int) -> None: ...
    def finish(self) -> None: ...
    def reset(
        self,
        *,
        framed: bool = False,
        inflate: Callable[[bytes, bool], Iterable[bytes]] | None = None,
    ) -> None: ...
    @property
    def unanswered(self) -> int: ...
    def ping(self, waiter: Waiter | None = None) -> bool: ...
    def on_pong(self) -> None: ...
    def fail_pings(self, error: Exception) -> None: ...
    def open(
        self, fd: int, *, direct: bool, records: TLSRecords | None = None
    ) -> None: ...
    def close(self) -> list[tuple[Event, Any]]: ...
    def interrupt(self) -> None: ...
    def decrypted(self, data: bytes) -> list[tuple[Event, Any]]: ...
    def run_once(
        self, deadline: float, writable: bool = False
    ) -> list[tuple[Event, Any]]: ...

@final
class TLSRecords:
    def __init__(
        self,
        tls: Any,
        incoming: Any,
        outgoing: Any,
        explain: Callable[[Exception], Exception | None],
    ) -> None: ...

# Writing --------------------------------------------------------------------------

@final
class WriteBuffer:
    requester: Callable[[str, bytes, float], Msg] | None
    reporter: Callable[[Exception], object] | None

    def __init__(
        self,
        wake_fd: int = -1,
        limit: int = ...,
        hold_limit: int = ...,
        write_timeout: float = 10.0,
    ) -> None: ...
    @property
    def pending(self) -> int: ...
    @property
    def counters(self) -> tuple[int, int]: ...
    @property
    def max_payload(self) -> int: ...
    def set_max_payload(self, max_payload: int) -> list[tuple[str, int]]: ...
    def set_framing(self, *, framed: bool, masked: bool = True) -> None: ...
    def frame(self, data: bytes, *, compressed: bool = False) -> bytes: ...
    def take_control(self) -> bytes: ...
    def send_close_frame(self) -> None: ...
    def open(
        self,
        fd: int,
        first: bytes,
        *,
        direct: bool,
        records: TLSRecords | None = None,
    ) -> None: ...
    def pause(self) -> None: ...
    def close(self, error: Exception) -> int: ...
    def take(self, most: int) -> bytes: ...
    def publish(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        reply: str | None = None,
        headers: HeadersLike | None = None,
        *,
        request: bool = False,
    ) -> None: ...
    def command(
        self, data: bytes, *, deferred: bool = False, piggyback: bool = False
    ) -> bool: ...
    @property
    def connections(self) -> int: ...
    def check_process(self) -> None: ...
    def flush(self) -> None: ...

@disjoint_base
class CorePublisher:
    """The part of `Connection` that runs once for each message."""

    def __init__(self, write_buffer: WriteBuffer) -> None: ...
    @property
    def _write_buffer(self) -> WriteBuffer: ...
    def publish(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Publish a message, without waiting until it has arrived.

        A single message is given to the socket before the call returns. Messages in a
        burst are buffered, and the call blocks while the buffer is full. While
        reconnecting, the message is buffered and sent later. NATS does not answer a
        publish, so a missing permission is reported to `on_error`.

        Args:
            subject: The subject to publish to.
            data: The payload.
            reply: The subject for replies. Default: none.
            headers: The headers of the message.

        Raises:
            InvalidSubjectError: Nothing can be published to the subject.
            InvalidHeaderError: A header cannot be sent.
            MaxPayloadError: The message is too large for the server.
            WriteTimeoutError: The write buffer was full for `write_timeout` seconds.
            ReconnectBufferFullError: The buffer for the time of a reconnect is full.
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            nc.publish("news.sport", b"1:0", headers={"Source": "ticker"})
            nc.flush()  # the server has the message
            ```
        """

# Atomic batches -------------------------------------------------------------------

@final
class BatchMessage:
    @property
    def sequence(self) -> int:
        """Its number in the batch, from 1."""
    @property
    def subject(self) -> str: ...
    @property
    def data(self) -> bytes:
        """The payload as it was when the message was added."""
    @property
    def size(self) -> int:
        """Bytes of headers and payload, without a commit."""
    def __init__(
        self,
        header: bytes,
        sequence: int,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        headers: HeadersLike | None = None,
    ) -> None:
        """`header` is that of the batch, up to the number: `Nats-Batch-Sequence: `."""
    def frame(self, reply: str = "", commit: bytes = b"") -> bytes:
        """Return the HPUB of this message, with the `commit` header behind its own."""

@final
class BatchQueue:
    sent: int
    """The number of messages that have been sent, from the first on."""
    @property
    def added(self) -> int: ...
    @property
    def waiting(self) -> list[BatchMessage]:
        """The messages that have been added and not been sent."""
    @property
    def last_subject(self) -> str:
        """The subject of the last message."""
    @property
    def subjects(self) -> set[str]:
        """The subjects of all its messages."""
    def __init__(self, header: bytes, most: int | None, commit_size: int) -> None:
        """`header` is as for `BatchMessage`. Each message has room for a commit header."""
    def add(
        self,
        subject: str,
        data: bytes | bytearray | memoryview,
        headers: HeadersLike | None,
        max_payload: int,
    ) -> BatchMessage:
        """Check a message and let it wait. If this raises, nothing has changed."""
    def add_plain(
        self, messages: Iterator[object], max_payload: int
    ) -> tuple[object, ...]:
        """Add pairs of subject and data, up to the first item that is no pair.

        Return that item, if there is one.
        """
    def due(self, *, last: bool) -> list[BatchMessage]:
        """Take the messages that wait, the last one only if `last`."""
    def unstored(self, sequence: int) -> BatchMessage:
        """Make a message without data, on the subject of the last one."""

@final
class ThreadGuard:
    def __enter__(self) -> None:
        """Raises `ConcurrentUseError` if another call is under way."""
    def __exit__(self, *exc_info: object) -> None: ...

@disjoint_base
class AtomicBatchBase:
    """The part of `AtomicBatch` that runs once for each message."""

    def __init__(self, messages: BatchQueue, write_buffer: WriteBuffer) -> None: ...
    @property
    def _messages(self) -> BatchQueue: ...
    @property
    def _guard(self) -> ThreadGuard: ...
    def _flow(self, connections: int) -> None:
        """Write messages without options immediately, on this connection only."""
    def add(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        *,
        ack: bool = False,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> None:
        """Add a message to the batch.

        The message is sent when you add the next one, or with the commit. Without
        `ack_first=False` the call blocks until the server has acknowledged the first
        message of the batch.

        `ConfigError`, `MaxPayloadError` and `UnsupportedFeatureError` leave the batch
        as it was. Any other error ends the batch, and nothing is stored.

        Args:
            subject: The subject to publish to.
            data: The payload.
            ack: Send the message immediately, and block until the server has acknowledged
                it. If it stays the last one, the commit needs nats-server 2.14.
            timeout: Seconds to wait for an acknowledgement. Default: the batch's.
            **options: The options of `PublishOptions`, without `expected_last_msg_id`.

        Raises:
            ConfigError: The batch has this `msg_id` already, has written a subject with
                `expected_last_subject_sequence`, or is full. Only the first message may
                have `expected_last_sequence`.
            MaxPayloadError: The message is too large for the server.
            UnsupportedFeatureError: The server would store `incr` or `schedule`
                wrongly.
            APIError: The stream rejects the message.
            NoStreamResponseError: No stream takes the subject, after two retries.
            TimeoutError: The acknowledgement did not come in time.
            AtomicBatchLostError: The connection or the server lost the batch.
            ConnectionClosedError: The connection is closed.
            AtomicBatchUnsupportedError: The server has no atomic batches. The error
                names the messages that it has stored.

        Example:
            ```python
            with js.atomic_batch() as batch:
                batch.add("orders.new", b"7")
                batch.add("orders.paid", b"7")
            ```
        """

def entries_within(entries: list[BatchMessage], begin: int, size: int) -> int: ...
def write_entries(
    write_buffer: WriteBuffer,
    entries: list[BatchMessage],
    begin: int,
    end: int,
    *,
    urgent: bool,
    first_reply: str = "",
    reply: str = "",
    commit: bytes = b"",
) -> None:
    """Write the entries from `begin` to `end`, all of them or none.

    The last one has the `reply` and the `commit` header, the first of several
    `first_reply`. Urgent ones leave immediately, with all that waits. None are held
    while disconnected: they are refused with `ConnectionLostError`, and dropped unless
    they were sent before.
    """

# Fast ingest ----------------------------------------------------------------------

@final
class FastPubAck:
    """The place of a message in its ingest: `(batch_sequence, ack_sequence)`.

    Example:
        ```python
        with js.fast_ingest() as ingest:
            place = ingest.add("orders.new", b"7")
            print(place.batch_sequence)
        ```
    """

    def __init__(self, batch_sequence: int, ack_sequence: int) -> None: ...
    @property
    def batch_sequence(self) -> int:
        """The number of the message, from 1."""
    @property
    def ack_sequence(self) -> int:
        """The last stored message. With `gaps="ok"`: the last received one."""
    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...
    def __hash__(self) -> int: ...

@disjoint_base
class IngestCounters:
    base: int
    sent: int
    received: int
    @property
    def acked(self) -> int: ...
    def rebase(self) -> None: ...

@final
class IngestWriter:
    limit: int

    def __init__(
        self, write_buffer: WriteBuffer, counts: IngestCounters, keep: int, window: int
    ) -> None: ...
    def __enter__(self) -> IngestWriter: ...
    def __exit__(self, *exc_info: object) -> None: ...
    @property
    def under_way(self) -> int: ...
    @property
    def full(self) -> bool: ...
    @property
    def mean_size(self) -> int: ...
    @property
    def last(self) -> FastPubAck: ...
    @property
    def repeatable(self) -> bool: ...
    def begin(self, answers: Mailbox, reply: bytes) -> None: ...
    def confirm(self) -> None: ...
    def rewind(self, again: deque[tuple[str, bytes, bytes | None, int]]) -> bool: ...
    def write_again(
        self, again: deque[tuple[str, bytes, bytes | None, int]]
    ) -> bool: ...
    def first_unacknowledged(self) -> tuple[str, bytes, bytes | None, int] | None: ...
    @property
    def has_ids(self) -> bool: ...
    def write(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        headers: HeadersLike | bytes | None = None,
        operation: int = ...,
    ) -> FastPubAck | None: ...
    def checked_many(
        self,
        subjects: str | Iterable[str],
        payloads: Iterable[bytes | bytearray | memoryview],
    ) -> tuple[str | list[str], list[bytes]]: ...
    def check_rows(
        self,
        subjects: str | list[str],
        payloads: list[bytes],
        blocks: list[bytes | None] | None,
        all_ids: bool,
    ) -> bytes | None: ...
    def write_many(
        self,
        subjects: str | list[str],
        payloads: list[bytes],
        begin: int,
        blocks: list[bytes | None] | None = None,
        ids: bytes | None = None,
    ) -> int: ...
    def is_unacknowledged(self, subject: str) -> bool: ...
    def ping(self) -> bool: ...
    def end(self) -> bool: ...

@disjoint_base
class FastIngestBase:
    """The part of `FastIngest` that runs once for each message."""

    def __init__(self, writer: IngestWriter) -> None: ...
    @property
    def _writer(self) -> IngestWriter: ...
    def add(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        **options: Unpack[PublishOptions],
    ) -> FastPubAck:
        """Add a message, without waiting until it is stored.

        The end of the `with` block waits. Blocks while the server allows no more
        messages, and the first time until the server has answered. If an earlier
        message failed, the next call raises the error.

        Args:
            subject: The subject to publish to.
            data: The payload.
            **options: The options of `PublishOptions`, without `expected_last_msg_id`.

        Returns:
            The number of the message in this ingest, and the last acknowledged number.

        Raises:
            ConfigError: An option has a value that is not allowed. Nothing is sent.
            InvalidSubjectError: Nothing can be published to the subject. Nothing is
                sent.
            InvalidHeaderError: A header cannot be sent. Nothing is sent.
            MaxPayloadError: The message is too large for the server. Nothing is sent.
            APIError: The stream rejects the first message.
            NoStreamResponseError: No stream takes the first message.
            UnsupportedFeatureError: The server is older than 2.14.
            IngestUnsupportedError: An old server stored messages one by one.
            IngestTimeoutError: The stream was silent for `ack_timeout`.
            IngestConnectionError: The connection was lost, and the ingest cannot
                continue.
            IngestError: The ingest has ended early.
            IngestClosedError: The ingest has ended.

        Example:
            ```python
            with js.fast_ingest() as ingest:
                for number in range(10_000):
                    ingest.add("orders.new", b"%d" % number)
            ```
        """

def safe_finalizer(method: Callable[[Any], None]) -> Callable[[Any], None]: ...
def enter_self(self: _SelfT) -> _SelfT: ...
def ends_by(end: Callable[[Any], object]) -> Callable[[_Method], _Method]: ...
def forks() -> int: ...
def os_strerror(code: int) -> str: ...
def monotonic_ns() -> int: ...

@final
class Waker:
    @property
    def read_fd(self) -> int: ...
    @property
    def write_fd(self) -> int: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...
