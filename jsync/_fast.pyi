"""The hot path, in Cython: what is done once a message rather than once a call."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Unpack, final

from typing_extensions import disjoint_base

from .checks import Seconds
from .headers import Headers, HeadersLike
from .models.ack import PubAck
from .models.publish import PublishOptions

MAX_CONTROL_LINE: Final[int]
"""The longest MSG or HMSG line accepted, in bytes. INFO and -ERR may be longer."""

# Messages -------------------------------------------------------------------------

@disjoint_base
class Msg:
    """A message: `subject`, `reply`, `headers` and `data`.

    Made by the connection. To call your own handler in a test, make one yourself, or use
    `jsync.testing.message`.
    Headers are decoded when they are first asked for. It may be kept for as long as you
    like, and read from any thread.
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
        """Where it was published."""
    @property
    def reply(self) -> str | None:
        """Where an answer is expected, if one is; of a consumer's message its ack subject."""
    @property
    def data(self) -> bytes:
        """The payload."""
    @property
    def headers(self) -> Headers | None:
        """The headers, None when there are none; raises `ProtocolError` if unreadable."""
    @property
    def status(self) -> int | None:
        """The number of an inline status such as 503; None for a user's message."""
    @property
    def status_text(self) -> str:
        """The words behind `status`, `No Messages` for instance; else empty."""
    @property
    def size(self) -> int:
        """Bytes of subject, reply, headers and payload: as the server counts (ADR-37)."""
    def respond(self, data: bytes = b"", *, headers: HeadersLike | None = None) -> None:
        """Publish `data` to the reply subject; like `Connection.publish` it does not wait.

        Raises `NoReplySubjectError` for a message that was published, not requested.
        """

class Ack(NamedTuple):
    """An acknowledgement of a message that you made by hand."""

    kind: Literal["ack", "ack_sync", "nak", "term", "in_progress"]
    delay: float | None = None
    reason: str | None = None

@final
class JetStreamMsg(Msg):
    """A message from a consumer: a `Msg` that can be acknowledged.

    Acks may be sent from any thread. They are appended to the write buffer and leave
    together: when the messages at hand are done, at 32 KiB, or after a millisecond. After
    a terminal ack (`ack`, `nak`, `term`) any further one is a silent no-op (ADR-15), and so
    is each of a consumer whose ack policy is `none`. Each raises
    `NotJetStreamMessageError` for a message that did not come from a consumer, and
    `ConnectionClosedError`.

    A message that you make by hand sends nothing: `acks` lists what was done with it.
    """

    @property
    def metadata(self) -> Metadata:
        """Where the message stands; raises `NotJetStreamMessageError`."""
    @property
    def is_acked(self) -> bool:
        """Whether a terminal ack has been written."""
    @property
    def acks(self) -> list[Ack]:
        """What your handler did with a message that you made by hand, in order.

        Raises `AttributeError` for a message that came from a server.
        """
    def ack(self) -> None:
        """Tell the server that the message is done. Does not wait for the server."""
    def nak(self, delay: Seconds | None = None) -> None:
        """Ask for another delivery, after `delay` seconds or at once."""
    def term(self, reason: str | None = None) -> None:
        """Give the message up; it is not delivered again. `reason`: nats-server 2.10.4."""
    def in_progress(self) -> None:
        """Have the server wait for another `ack_wait` before it delivers again."""
    def ack_sync(self, timeout: Seconds = 5.0) -> None:
        """Ack the message, and block until the server has confirmed the ack.

        A second call does nothing, and neither does one after `ack`, `nak` or `term`.

        Args:
            timeout: How long to wait for the confirmation, in seconds.

        Raises:
            TimeoutError: No confirmation came in time. The ack may have arrived.
            ConnectionLostError: The connection broke meanwhile. The ack may have arrived.
            NoRespondersError: Nobody takes the ack: the consumer or its stream is gone, or
                has no leader.
            ConnectionClosedError: The connection is closed.
            PermissionsError: You may not publish to the subject of the ack.
            NotJetStreamMessageError: The message did not come from a consumer.
        """

@final
class Metadata:
    """What an ack subject says of a message (ADR-15, v1 and v2)."""

    @property
    def stream(self) -> str:
        """The name of its stream."""
    @property
    def consumer(self) -> str:
        """The name of the consumer that it came from."""
    @property
    def num_delivered(self) -> int:
        """How often it has been delivered, this time included: 1 is the first."""
    @property
    def stream_sequence(self) -> int:
        """Its place in the stream, from 1: the same with each delivery and consumer."""
    @property
    def consumer_sequence(self) -> int:
        """How many messages the consumer had delivered with it, from 1."""
    @property
    def timestamp(self) -> datetime:
        """When the stream stored the message: aware, UTC, microseconds."""
    @property
    def timestamp_ns(self) -> int:
        """The same in nanoseconds since 1970, UTC."""
    @property
    def num_pending(self) -> int:
        """Messages that the consumer had still to deliver behind it, when it was sent."""
    @property
    def domain(self) -> str | None:
        """The JetStream domain; None without one, or when the server does not tell (v1)."""

def parse_ack_subject(subject: str) -> Metadata:
    """Tokenise an ack subject: v1 has 9 tokens, v2 has 11 or more, domain `_` is none.

    Raises `NotJetStreamMessageError` for anything else.
    """

def parse_headers(block: bytes) -> tuple[int | None, str, Headers]:
    """Parse a header block, `NATS/1.0...` to the blank line: status, its text, headers.

    Lines without a colon are skipped, values are stripped of surrounding blanks, bytes
    that are not UTF-8 become lone surrogates. Raises `ProtocolError` when the first line
    is not `NATS/1.0`.
    """

def encode_headers(headers: HeadersLike) -> bytes:
    """Encode headers as a block; raises `InvalidHeaderError` for what cannot be sent."""

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
    """The same for a subscription, where the wildcards `*` and `>` may stand."""

def message_size(subject: str, reply: str | None, headers: bytes, data: bytes) -> int:
    """The size of a message as the server counts it: subject, reply, headers, payload."""

# Reading --------------------------------------------------------------------------

@disjoint_base
class Parser:
    """Cuts a byte stream into NATS frames. One thread at a time.

    `feed` returns what became complete, in order, as `(op, value)`:

    - `("MSG", (sid, Msg))` for MSG and HMSG,
    - `("INFO", bytes)`, the JSON text,
    - `("-ERR", str)`, the words without quotes,
    - `("PING", None)`, `("PONG", None)`, `("+OK", None)`.

    A malformed frame, a line over its bound, or a message over `max_message` bytes
    raises `ProtocolError`; the parser refuses to go on from there.
    """

    def __init__(self, max_message: int = ...) -> None: ...
    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[str, Any]]:
        """Parse more of the stream; what it says, given once."""

@disjoint_base
class Sink:
    """Something that messages of one sid are delivered to."""

@final
class Order:
    """The order in which the messages of one ordered consumer have to come.

    A mailbox that has one takes what is next and nothing else. Consumer sequences count
    by one: a step that is missing is a message that is missing, and from there on
    nothing is taken. Stream sequences at or before `after` have been read before, and are
    passed over. At `last`, and before the first sequence behind it, it stops; so it does
    when the server has no more, if `to_end`.
    """

    def __init__(
        self,
        after: int,
        *,
        last: int | None = None,
        to_end: bool = False,
        consumer_sequence: int = 0,
    ) -> None: ...
    @property
    def consumer_sequence(self) -> int:
        """The last that has come."""
    @property
    def stream_sequence(self) -> int:
        """The last that was taken, and before that `after`."""
    @property
    def stopped(self) -> Literal["gap", "last", "end"] | None:
        """Why nothing more is taken: `gap`, `last`, `end`; None while it is."""
    def take_passed_over(self) -> tuple[int, int]:
        """Messages and bytes passed over since the last call."""

@final
class Trail:
    """Which messages of a push consumer have not come, by its consumer sequences (ADR-15).

    They count by one, so that each step that is missing is a message that was sent and
    lost. A step back is none: a new leader counts from what it knows, and a consumer that
    was reset from 1. Nothing is missed before `begin` has said where the consumer was.
    """

    @property
    def consumer_sequence(self) -> int:
        """The last that has come, or that a heartbeat has told of."""
    @property
    def stream_sequence(self) -> int:
        """That of the stream beside it."""
    def begin(self, consumer_sequence: int, stream_sequence: int) -> bool:
        """What the consumer had sent before it was listened to; whether a gap is there."""
    def heard(self, consumer_sequence: int, stream_sequence: int) -> bool:
        """A heartbeat's word on what was sent last; whether a gap has been found."""
    def take_gaps(self) -> list[tuple[int, int, int, int]]:
        """The gaps since the last call.

        Each as the first and the last consumer sequence that is missing, and the stream
        sequences before and after it.
        """

@final
class Pin:
    """The id by which a server knows its pinned client (ADR-42), learned on arrival."""

    @property
    def id(self) -> str:
        """What to send along with pulls; empty when not pinned."""
    def drop(self, refused: str) -> None:
        """Forget an id that the server has refused; a newer one is kept."""

@final
class Columns:
    """Takes messages as rows of the wanted columns, in chunks of `most_rows`.

    With `acks` the rows can be acknowledged; `together` says that one ack is for all
    before it. `limit` is how many bytes of payloads, and of all else, a chunk may have.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        most_rows: int = 0,
        acks: bool = False,
        together: bool = False,
        limit: int = ...,
    ) -> None: ...

@final
class ArrowBatch:
    """Messages as columns: an Arrow record batch, for whatever takes Arrow.

    `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)` and DuckDB, `FROM batch`, use
    its memory without a copy, and keep it as long as they need. The columns are those
    that were asked for, of:

    - `subject`: `utf8`, not null. What is no UTF-8 has U+FFFD in its place.
    - `data`: `binary`, not null. The payload.
    - `sequence`: `uint64`, not null. The stream sequence.
    - `timestamp`: `timestamp[ns, UTC]`, not null. When the stream stored the message.
    - `headers`: `map<utf8, list<utf8>>`, null where there are none, or none that can be
      read. Each name once, with its values in their order.

    One that is larger than 2 GiB consists of several record batches, for which there is
    `__arrow_c_stream__` alone: it is a table to those who take it.

    It can be acknowledged like its messages, from any thread, and `JetStreamMsg` says how.
    """

    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def __len__(self) -> int: ...
    @property
    def num_rows(self) -> int:
        """How many messages it has."""
    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
    @property
    def size(self) -> int:
        """Bytes of its messages, as the server counts (ADR-37)."""
    @property
    def last_sequence(self) -> int | None:
        """The highest stream sequence in it, also without that column; None: no rows."""
    @property
    def is_acked(self) -> bool:
        """Whether a terminal ack has been written."""
    def __arrow_c_schema__(self) -> object:
        """Its schema, as a capsule."""
    @property
    def __arrow_c_array__(self) -> Callable[..., tuple[object, object]]:
        """Called: schema and record batch, as capsules.

        What is too large for one record batch does not have it.
        """
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A stream of its record batches, as a capsule; each call gives another one."""
    def ack(self) -> None:
        """Tell the server that all these messages are done. Does not wait for it.

        With ack policy `all` that is one ack, at the highest sequence, which stands for
        everything before it too; with `explicit` one for each message, and with `none`
        nothing. Without the consumer's configuration, as of `JetStream.consumer`, each is
        acknowledged. After a terminal ack any further one is a silent no-op; one that an
        error has cut short may be called again. Raises `ConnectionClosedError`, and while
        the write buffer is full `WriteTimeoutError`.
        """
    def nak(self, delay: Seconds | None = None) -> None:
        """Ask for another delivery of each, after `delay` seconds or at once."""
    def term(self, reason: str | None = None) -> None:
        """Give them all up; none is delivered again. `reason`: nats-server 2.10.4."""
    def in_progress(self) -> None:
        """Have the server wait for another `ack_wait` before it delivers them again."""

@final
class ArrowStream:
    """What is behind a stream: an iterator of `ArrowBatch`, asked as it is read."""

@final
class BlockWriter:
    """Header blocks, written one after the other into the same room."""

@final
class ArrowSource:
    """The messages in a table: any object with `__arrow_c_stream__`.

    `subject`, `data` and `headers` are names of its columns, and so are the `options`,
    which are those of a message; `subject` and `expected_stream` are what holds for all
    where it has no such column. `check_header` raises for names that `headers` may not
    have. For one thread at a time.
    """

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
    ) -> tuple[str | list[str], list[bytes], list[bytes | None] | None, bool] | None:
        """The next rows: subjects, payloads, header blocks, and whether all have an id.

        None at the end. Subjects are one for all, and blocks None, where there are no
        columns for them; a row without headers has no block.
        """

def arrow_schema(columns: Columns) -> object:
    """The schema of these columns, as a capsule."""

def arrow_stream(columns: Columns, batches: Iterator[ArrowBatch]) -> object:
    """A stream of batches that have these columns, as a capsule."""

@final
class Mailbox(Sink):
    """The backlog of one subscription, for `readers` reading threads at a time."""

    max_messages: int
    max_bytes: int
    holds_acks: bool
    """Whether acks may stay while more messages come, for the next pull or a millisecond."""
    ackless: bool
    """Whether the messages to come are from a consumer that wants no acks."""
    pin: Pin | None
    """Learns the pin id of the messages to come, which is not counted in their size."""
    on_credit: Callable[[], object] | None
    """Called on the reading thread when it has taken its credit.

    Ctrl-C may raise there: the messages stay here, and the next take calls it again.
    """
    on_status: Callable[[Msg], object] | None
    """Called on the I/O thread with each status message; they never queue here."""
    on_first: Callable[[], object] | None
    """Called on the I/O thread when the first message has come, once."""
    on_order: Callable[[], object] | None
    """Called on the I/O thread when `order` has stopped, or has passed messages over, and
    when `trail` has found a gap."""
    on_control: Callable[[Msg], object] | None
    """Called on the reading thread with a status that has a reply, or that was put here,
    when it would have been handed over; what it raises the reader gets."""
    on_end: Callable[[], object] | None
    """Called on the reading thread when it has found the end, once."""
    trail: Trail | None
    """Learns which messages have not come; None: nobody asks."""
    order: Order | None
    """Takes nothing but what is next in it; None: takes what comes."""
    lent: bool
    """Whether its subscription outlives it: nobody is told that it has all it expected."""
    sid: int
    """Of the subscription that delivers here; there may be another one later."""

    def __init__(
        self,
        outbox: Outbox,
        sid: int,
        *,
        subject: str = "",
        jetstream: bool = False,
        max_messages: int = 0,
        max_bytes: int = 0,
        readers: int = 1,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def holds_control(self) -> bool:
        """Whether something waits here for `on_control`."""
    def put(self, msg: Msg) -> None:
        """Have `on_control` called with it once all that is here now is handed over."""
    def need_no_acks(self) -> None:
        """What is here, and what is to come, is from a consumer that wants no acks."""
    @property
    def subject(self) -> str:
        """What was published to, when these are replies."""
    @property
    def bytes(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def full(self) -> bool:
        """Whether all that was expected has come: see `end_after`."""
    @property
    def last_arrival(self) -> float:
        """When something last came, a status included, by the monotonic clock."""
    @property
    def failure(self) -> Exception | None:
        """The error that ended it, if one did."""
    def get(self, timeout: float | None = None) -> Msg | None:
        """The next message, or None after `timeout` seconds or when it has ended."""
    def get_before(self, deadline: float) -> Msg | None:
        """The next message, or None at `deadline` of the monotonic clock."""
    def hand_over(
        self,
        handler: Callable[[Any], object],
        raised: Callable[[Any, BaseException], object],
    ) -> None:
        """Call `handler` with each message until the end, and `raised` with what it raises."""
    def next(self, timeout: Seconds | None = None) -> Msg: ...
    def next_into(self, taken: list[Msg], timeout: Seconds | None = None) -> None:
        """Append the next message to `taken`, as `next` returns it.

        Ctrl-C may come between this call and the caller's next instruction. The message is
        in the caller's hands then, who can `put_back` what it does not hand on.
        """
    def put_back(self, taken: list[Msg]) -> None:
        """Have the messages that were taken, in their order, come next once more."""
    def take_counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Messages and bytes taken since the last call, and those that are here now."""
    def give_credit(self, messages: int, size: int) -> bool:
        """Have `on_credit` called after so many messages, or so many bytes.

        False when as many have been taken already, so that nobody would call it.
        """
    def end_after(self, count: int) -> bool:
        """End once `count` messages have come in all; True if they have already."""
    def close(self, error: Exception | None = None, *, discard: bool = False) -> None:
        """Take no more; readers get what is there, then `error` or the end."""
    def take_rest(self, rest: list[Msg] | None = None) -> list[Msg]:
        """Take all that is here, at once: no reader gets a part of it.

        It is appended to `rest`, if that is given: see `next_into`.
        """
    @property
    def columns(self) -> Columns | None:
        """Takes the messages to come as rows, instead of the backlog; None: does not."""
    def use_columns(self, columns: Columns) -> None:
        """Take what is here, and what comes from now on, as rows."""
    def await_rows(self, rows: int, size: int, deadline: float) -> bool:
        """Wait until so many rows, or so many bytes of them, are here: True.

        False at `deadline`, of the monotonic clock, or when it has ended: see `closed`.
        """
    def take_rows(self, *, whole: bool = False) -> ArrowBatch:
        """What is here, up to the most rows of a chunk, or the whole of it."""
    def claim_first(self) -> Callable[[], object] | None:
        """Take `on_first`, so that it is called once."""

@final
class Question:
    """A request that is the same each time, but for the number at the end of `reply`.

    One message answers it, which `mailbox` takes; it is asked again only after that.
    """

    def __init__(
        self, mailbox: Mailbox, subject: str, reply: str, payload: bytes
    ) -> None: ...
    @property
    def number(self) -> int:
        """How often it has been asked."""
    def ask(self, on_status: Callable[[Msg], object], deadline: float) -> Any:
        """Ask and wait until `deadline`; None also when it has ended: see the mailbox.

        `on_status` is the mailbox's until the answer has come. Raises
        `ConnectionLostError` when it could not be asked.
        """

@final
class Messages:
    """Iterates over a mailbox to its end; `owner` is kept alive meanwhile.

    When nothing has come by `deadline`, of the monotonic clock, or for `silence` seconds,
    or when a wait for a message has lasted `idle` seconds, `owner.waited()` is called,
    which may close the mailbox.
    """

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

@final
class Waiter(Sink):
    """Waits for one thing: the reply to a request, a PONG, a state of the connection."""

    def __init__(
        self, outbox: Outbox, subject: str = "", *, local: bool = False
    ) -> None:
        """`local`: no message of the server brings it."""
    @property
    def done(self) -> bool: ...
    @property
    def subject(self) -> str: ...
    def set(self, result: object) -> None:
        """Be done; only the first time counts."""
    def fail(self, error: Exception) -> None:
        """Be done with an error; only the first time counts."""
    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is done, waiting up to `timeout` seconds. One thread at a time."""
    def value(self) -> Any:
        """What `set` was given; raises what `fail` was given."""

@final
class Replies(Sink):
    """Routes messages on `<prefix><token>` to who waits for that token.

    Tokens are never used twice: a late reply finds nobody and is dropped.
    """

    def __init__(self, prefix: str) -> None: ...
    def __len__(self) -> int: ...
    @property
    def prefix(self) -> str: ...
    def add(self, sink: Sink) -> int:
        """Expect replies for `sink`; the token to put behind `prefix`."""
    def discard(self, token: int) -> None: ...
    def ask(
        self,
        outbox: Outbox,
        subject: str,
        data: bytes | bytearray | memoryview,
        timeout: float,
        headers: HeadersLike | None = None,
    ) -> Msg | Literal[False] | None:
        """Send a request and wait for its reply: None after `timeout` seconds.

        False: nothing was sent, being disconnected.
        """
    def waiters(self) -> list[Sink]:
        """All that wait, for telling them of a failure."""

@final
class PubAckFuture:
    """The ack of a message on its way, with the methods of `concurrent.futures.Future`.

    `Publisher.publish` returns it. It is done when the stream has stored the message, or
    with an error. These errors mean that the message is not stored: `NoStreamResponseError`
    if no stream takes the subject, the `APIError` of a stream that rejects it,
    `PermissionsError` and `MaxPayloadError`. After the others it may have been stored:
    `TimeoutError` after `ack_timeout`, or after a refusal of a second sending,
    `ConnectionLostError`, `PublisherClosedError` and `ConnectionClosedError`.

    Any number of threads may wait for it. What `concurrent.futures.wait`, `as_completed`
    and `asyncio.wrap_future` take is their own class, and not this one.
    """

    def __init__(self, *_: object, **__: object) -> None:
        """Raises `TypeError`: a publisher makes them."""
    @property
    def subject(self) -> str:
        """Where it was published."""
    @property
    def data(self) -> bytes:
        """The payload; empty once the message is stored."""
    @property
    def headers(self) -> Headers | None:
        """The headers that were sent; None once the message is stored."""
    def result(self, timeout: float | None = None) -> PubAck:
        """Block until done; the ack, or the error raised.

        `TimeoutError` after `timeout` seconds: then it is still pending.
        """
    def exception(self, timeout: float | None = None) -> Exception | None:
        """Block like `result`; the error, or None when the message is stored."""
    def done(self) -> bool:
        """Whether the ack or the error has come; does not block."""
    def running(self) -> bool:
        """The opposite of `done`."""
    def cancel(self) -> bool:
        """False: what was published cannot be taken back."""
    def cancelled(self) -> bool:
        """False."""
    def add_done_callback(self, callback: Callable[[PubAckFuture], object]) -> None:
        """Have `callback(future)` called when it is done, soon if it is already.

        It runs on the connection's callback thread, like the callbacks of `connect`, or
        here once the connection is closed. What it raises goes to the `on_error` of
        `connect`, or to the log.
        """

@disjoint_base
class AckSlots(Sink):
    """Messages that wait for their acks, bounded in their number and their bytes."""

    @property
    def pending(self) -> int:
        """Messages that wait for their ack."""
    @property
    def published(self) -> int: ...

@final
class AckWindow(AckSlots):
    """The messages of a publisher that wait for their acks. Any thread may use it."""

    def __init__(
        self,
        outbox: Outbox,
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
    """Whether failures are told through `take_done`, callbacks or not."""
    on_done: Callable[[], object] | None
    """Called when there is something for `take_done`, on any thread; it must not block."""
    on_timer: Callable[[], object] | None
    """Called when a first message waits, to have `expire` called after `ack_timeout`."""
    on_refused: Callable[[], object] | None
    """Called on the I/O thread to have `retry` called in `retry_in` seconds."""
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
    def publish(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
    ) -> PubAckFuture:
        """Write a message, once there is room for it in the window."""
    def publish_many(
        self,
        subjects: str | Sequence[str],
        payloads: Sequence[bytes | bytearray | memoryview],
        headers: HeadersLike | None = None,
        msg_ids: Sequence[str | None] | None = None,
    ) -> list[PubAckFuture]:
        """Write messages in order, all of them checked first.

        An error on the way says in `published` how many were written before it.
        """
    def publish_rows(
        self,
        subjects: str | list[str],
        payloads: list[bytes],
        blocks: list[bytes | None] | None,
        all_ids: bool,
    ) -> None:
        """What `ArrowSource.take` gives, as `publish_many` does it."""
    def take_failures(self) -> tuple[list[PubAckFuture], int]:
        """The failed whose errors nobody has seen, the first ones, and how many more."""
    def take_done(
        self,
    ) -> list[
        tuple[
            PubAckFuture, Sequence[Callable[[PubAckFuture], object]], Exception | None
        ]
    ]:
        """What was done since: the futures, their callbacks, and errors to be told."""
    def expire(self) -> float | None:
        """Fail what is late; when to call it next, by the monotonic clock."""
    def lost(self, error: Exception) -> None:
        """The connection has broken: fail all that waits, or keep it for `send_again`."""
    def connected(self) -> bool:
        """There is a connection again; True when `send_again` has to be called."""
    def send_again(self) -> None:
        """Write again, in order, what was lost or refused; blocks while the buffer is full.

        What is new waits until that is done.
        """
    def retry(self) -> bool:
        """Have `send_again` send what was refused and has waited; whether there is any."""
    def retry_in(self) -> float | None:
        """In how many seconds `retry` has something to do; None: nothing."""
    def doubt(self, seconds: float) -> bool:
        """Have `send_again` send what has had no answer for so long; whether there is any.

        A leader that steps down takes what was on its way with it, and tells nobody.
        """
    def deny(self, subject: str, error: Exception) -> None:
        """The server refuses messages to that subject."""
    def flush(self, timeout: float | None) -> bool:
        """Wait until all that was published before has its ack or its error."""
    def close(self, error: Exception, refusal: Exception | None = None) -> None:
        """Fail what waits with `error`, and refuse more with `refusal`, or `error` too."""

@final
class Line(Parser):
    """The compiled half of a connection's I/O thread, for that thread alone.

    `subscribe` and `unsubscribe` may be called from any thread.
    """

    def __init__(self, outbox: Outbox, wake_fd: int) -> None: ...
    @property
    def counters(self) -> tuple[int, int]:
        """Messages received, and their bytes: header block and payload."""
    def claim(self) -> None:
        """Be the I/O thread: the one in which no call may block."""
    def subscribe(self, sid: int, sink: Sink) -> None: ...
    def unsubscribe(self, sid: int) -> None: ...
    def finish(self) -> None:
        """Close for good."""
    def restart(self) -> None:
        """Forget what was read: the next byte begins a new stream."""
    @property
    def unanswered(self) -> int:
        """Keep-alive pings since the last PONG."""
    def ping(self, waiter: Waiter | None = None) -> bool:
        """Send a PING, from any thread; its PONG sets `waiter`. False: not connected."""
    def pong(self) -> None:
        """Tell who has waited longest for a PONG that it has come."""
    def fail_pings(self, error: Exception) -> None:
        """Tell all who wait for a PONG that none will come."""
    def open(self, fd: int, *, direct: bool) -> None:
        """Read from `fd`; when not direct only tell when it is readable."""
    def close(self) -> None: ...
    def interrupt(self) -> None:
        """Have `run` return soon, from any thread."""
    def decrypted(self, data: bytes) -> list[tuple[str, Any]]:
        """Parse and deliver what TLS gave; the events as `run` gives them."""
    def run(self, deadline: float, writable: bool = False) -> list[tuple[str, Any]]:
        """Read and write until something is for the session to decide.

        Returns events `(name, value)`: INFO and -ERR of `Parser`, and

        - `("STATUS", (mailbox, msg))`, a JetStream status,
        - `("SLOW", mailbox)`, the mailbox began to drop,
        - `("FIRST", mailbox)`, its first message came and it has an `on_first`,
        - `("ENDED", mailbox)`, it has all it expected,
        - `("ORDER", mailbox)`, its `order` has stopped or has passed messages over,
        - `("BROKEN", Exception)`, the connection is of no more use,
        - `("READABLE", None)`, `("WRITABLE", None)`: turns of TLS, when not direct;
          `writable` says that ciphertext waits for the socket;

        or none of them at `deadline`, of the monotonic clock, or when interrupted.
        """

# Writing --------------------------------------------------------------------------

@final
class Outbox:
    """The write buffer. Any thread may write; nothing is dropped silently.

    When it is full a writer blocks until there is room or `write_timeout` has passed.
    While disconnected it holds lasting frames, core publishes and acks, up to
    `hold_limit` bytes.
    """

    requester: Callable[[str, bytes, float], Msg] | None
    """Sends a request for `JetStreamMsg.ack_sync`: `(subject, data, timeout) -> Msg`."""

    def __init__(
        self,
        wake_fd: int = -1,
        limit: int = ...,
        hold_limit: int = ...,
        write_timeout: float = 10.0,
    ) -> None: ...
    @property
    def pending(self) -> int:
        """Bytes that have not reached the socket."""
    @property
    def counters(self) -> tuple[int, int]:
        """Messages published, and their bytes: header block and payload."""
    @property
    def max_payload(self) -> int: ...
    def serve(self, max_payload: int) -> None:
        """Remember what the server said of itself."""
    def open(self, fd: int, first: bytes, *, direct: bool) -> None:
        """Begin to send on `fd`: `first`, then what was held."""
    def hold(self) -> None:
        """The connection is gone: keep lasting frames that were not sent whole."""
    def close(self, error: Exception) -> int:
        """Refuse every further write with `error`; returns the bytes thrown away."""
    def take(self, most: int) -> bytes:
        """Take up to `most` bytes to encrypt; the I/O thread's, when not direct."""
    def publish(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        reply: str | None = None,
        headers: HeadersLike | None = None,
        *,
        request: bool = False,
    ) -> None:
        """Write one PUB or HPUB.

        A request leaves at once and with it all that waits; and it is not held while
        disconnected but refused with ConnectionLostError.
        """
    def command(self, data: bytes, *, lazy: bool = False, riding: bool = False) -> bool:
        """Write protocol commands such as SUB; False when disconnected.

        Never blocks: they are small and few, and PONG has to pass when nothing else
        does. A lazy one waits for company, as acks do; a riding one for the write that
        follows, for as long as that takes.
        """
    @property
    def connections(self) -> int:
        """How many there have been: messages that belong together are for one of them."""
    def check_process(self) -> None:
        """Raise `ForkedProcessError` in a child of the process that connected."""
    def flush(self) -> None:
        """Send what waits for company, as far as the socket takes it."""

@disjoint_base
class PlainPublisher:
    """The part of `Connection` that is done once a message."""

    def __init__(self, outbox: Outbox) -> None: ...
    @property
    def _outbox(self) -> Outbox: ...
    def publish(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Publish a message; returns once it is on its way, not when it has arrived.

        A lone message is given to the socket before this returns; in a burst it is
        appended to the write buffer, which blocks while full. While reconnecting it is
        kept and sent later. Raises `InvalidSubjectError`, `InvalidHeaderError`,
        `MaxPayloadError`, `WriteTimeoutError`, `ReconnectBufferFullError` or
        `ConnectionClosedError`, all before anything is sent. A missing permission is
        reported to `on_error`: NATS does not answer a publish.
        """

# Atomic batches -------------------------------------------------------------------

@final
class BatchEntry:
    """A message of an atomic batch, encoded but for what is known when it is sent."""

    @property
    def sequence(self) -> int:
        """Its number in the batch, from 1."""
    @property
    def subject(self) -> str: ...
    @property
    def data(self) -> bytes:
        """As it was when the message was added."""
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
        """The HPUB of this message, with the `commit` header behind its own."""

@final
class BatchMessages:
    """The messages of an atomic batch: how many there are, and those that wait."""

    sent: int
    """The first so many have been sent."""
    @property
    def added(self) -> int: ...
    @property
    def waiting(self) -> list[BatchEntry]:
        """What has been added and not been sent."""
    @property
    def last_subject(self) -> str:
        """The subject of the last message."""
    @property
    def subjects(self) -> set[str]:
        """Of all its messages."""
    def __init__(self, header: bytes, most: int | None, commit_size: int) -> None:
        """`header` is as for `BatchEntry`, and each message has room for the commit's."""
    def add(
        self,
        subject: str,
        data: bytes | bytearray | memoryview,
        headers: HeadersLike | None,
        max_payload: int,
    ) -> BatchEntry:
        """Check a message and have it wait; nothing has changed when that raises."""
    def add_plain(
        self, messages: Iterator[object], max_payload: int
    ) -> tuple[object, ...]:
        """Add pairs of subject and data, up to the first other thing.

        Returns that, if there is one.
        """
    def due(self, *, last: bool) -> list[BatchEntry]:
        """Take what waits, the last message only if `last`."""
    def unstored(self, sequence: int) -> BatchEntry:
        """A message without data, on the subject of the last one."""

@final
class Turn:
    """Lets one thread at a time into a batch, and tells the others."""

    def __enter__(self) -> None:
        """Raises `ConcurrentUseError`."""
    def __exit__(self, *exc_info: object) -> None: ...

@disjoint_base
class AtomicAdder:
    """The part of `AtomicBatch` that is done once a message."""

    def __init__(self, messages: BatchMessages, outbox: Outbox) -> None: ...
    @property
    def _messages(self) -> BatchMessages: ...
    @property
    def _turn(self) -> Turn: ...
    def _flow(self, connections: int) -> None:
        """Write what has no options at once, while the outbox has that number of them."""
    def add(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        *,
        ack: bool = False,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> None:
        """Add a message, with the options of `JetStream.publish`.

        It is sent when the next one is added, or with the commit. Blocks for the server's
        acknowledgement of the first message, unless `ack_first` is off, and with `ack` for
        that of this one, at most `timeout` seconds each time; this one is sent at once
        then, and when it remains the last one, the commit needs nats-server 2.14.

        What the server would refuse is refused before anything is sent, and the batch
        stays as it was: `ConfigError` (a `msg_id` that it has, `expected_last_sequence`
        after the first message, `expected_last_subject_sequence` for a subject that it has
        written, `expected_last_msg_id`, one message too many), `MaxPayloadError`, and
        `UnsupportedFeatureError` for `incr` and `schedule` where the server would store
        them wrongly. Any other error ends the batch, with nothing stored: an `APIError`,
        `NoStreamResponseError` after two more tries, `TimeoutError`,
        `AtomicBatchLostError`, `ConnectionClosedError`, and `AtomicBatchUnsupportedError`,
        which says what an old server has stored.
        """

def entries_within(entries: list[BatchEntry], begin: int, size: int) -> int:
    """The end of the entries from `begin` on that make a write of about `size` bytes."""

def write_entries(
    outbox: Outbox,
    entries: list[BatchEntry],
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
    `first_reply`. Urgent ones leave at once and with them all that waits. None are held
    while disconnected: they are refused with `ConnectionLostError`, and dropped unless
    they were sent before.
    """

# Fast ingest ----------------------------------------------------------------------

@final
class FastPubAck:
    """Where a message stands in its ingest: `(batch_sequence, ack_sequence)`."""

    def __init__(self, batch_sequence: int, ack_sequence: int) -> None: ...
    @property
    def batch_sequence(self) -> int:
        """The number of the message, from 1."""
    @property
    def ack_sequence(self) -> int:
        """All up to this one is stored; with `gaps="ok"` it has been received."""
    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...
    def __hash__(self) -> int: ...

@disjoint_base
class IngestCounts:
    """How far an ingest is. Its writer counts `sent`, its engine all else."""

    base: int
    """Messages of the batches before this one."""
    sent: int
    """Messages of this batch that have been written."""
    received: int
    """Messages of this batch that the server has acknowledged."""
    @property
    def acked(self) -> int:
        """All up to this one are acknowledged, counted through the whole ingest."""

    def rebase(self) -> None:
        """Count from what is acknowledged, in another batch.

        One call, so that a signal handler that raises cannot come in between.
        """

@final
class BatchWriter:
    """Writes the messages of an ingest, in one batch after the other.

    For one thread at a time, which `with` makes sure of where it waits; `ping` and `end`
    are for any thread. At most `window` bytes are on the way, or one message. Messages
    that are not acknowledged are kept, as many as fit into `keep` bytes, and `rewind` gives
    them back.
    """

    limit: int
    """The last one of this batch that may be written now."""

    def __init__(
        self, outbox: Outbox, counts: IngestCounts, keep: int, window: int
    ) -> None: ...
    def __enter__(self) -> BatchWriter: ...
    def __exit__(self, *exc_info: object) -> None: ...
    @property
    def under_way(self) -> int:
        """Bytes of headers and payloads that are not acknowledged."""
    @property
    def full(self) -> bool:
        """Whether bytes, and not messages or answers, are in the way of the next one."""
    @property
    def mean_size(self) -> int:
        """The mean size of the messages that are not acknowledged, in bytes."""
    @property
    def last(self) -> FastPubAck:
        """What `write` gave for the last message written."""
    @property
    def repeatable(self) -> bool:
        """Whether all that is not acknowledged is kept, and has a message id."""
    def begin(self, answers: Mailbox, reply: bytes) -> None:
        """Begin a batch; its first message may be written."""
    def confirm(self) -> None:
        """Let go of all that is acknowledged by now."""
    def rewind(self, again: deque[tuple[str, bytes, bytes | None, int]]) -> bool:
        """Move all that is not acknowledged to the front of `again`, for another batch.

        Arguments of `write` each. False when some of it has not been kept. One call, so
        that a signal handler that raises cannot come in between.
        """
    def write_again(self, again: deque[tuple[str, bytes, bytes | None, int]]) -> bool:
        """Write the first of `again` and take it off; False when that has to wait.

        One call, so that a signal handler that raises cannot come in between.
        """
    def first_behind(self) -> tuple[str, bytes, bytes | None, int] | None:
        """The first that is not acknowledged; None when that has not been kept."""
    @property
    def has_ids(self) -> bool:
        """Whether a message of it had a message id, kept or not."""
    def write(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        headers: HeadersLike | bytes | None = None,
        operation: int = ...,
    ) -> FastPubAck | None:
        """Write the next message; None when that has to wait, or an answer is here.

        `headers` may be a header block already. Raises what `Outbox.publish` does.
        """
    def checked_many(
        self,
        subjects: str | Iterable[str],
        payloads: Iterable[bytes | bytearray | memoryview],
    ) -> tuple[str | list[str], list[bytes]]:
        """What `write_many` takes, of one's own; raises for what cannot be sent."""
    def check_rows(
        self,
        subjects: str | list[str],
        payloads: list[bytes],
        blocks: list[bytes | None] | None,
        all_ids: bool,
    ) -> bytes | None:
        """Which of the rows that `ArrowSource.take` has given have a message id.

        A byte for each, not 0 if it has; None when there are no header blocks. Raises for
        what cannot be sent.
        """
    def write_many(
        self,
        subjects: str | list[str],
        payloads: list[bytes],
        begin: int,
        blocks: list[bytes | None] | None = None,
        ids: bytes | None = None,
    ) -> int:
        """Write as much of `payloads` from `begin` on as may be; where it stopped.

        What `checked_many` or `check_rows` has checked, and nobody else can change.
        `blocks` are their header blocks, and `ids` is what `check_rows` gave.
        """
    def awaits(self, subject: str) -> bool:
        """Whether a message to `subject` is kept, being not acknowledged."""
    def ping(self) -> bool:
        """Ask for the last flow message, and keep the batch alive; False: not connected.

        It has the number of the last message written, so that a lost ping is no gap.
        """
    def end(self) -> bool:
        """End the batch, without storing anything more; False: not connected."""

@disjoint_base
class MessageAdder:
    """The part of `FastIngest` that is done once a message."""

    def __init__(self, writer: BatchWriter) -> None: ...
    @property
    def _writer(self) -> BatchWriter: ...
    def add(
        self,
        subject: str,
        data: bytes | bytearray | memoryview = b"",
        **options: Unpack[PublishOptions],
    ) -> FastPubAck:
        """Add a message; its number in this ingest, and the last that is acknowledged.

        Blocks while as many as the server allows are under way, and the first time until
        the server has answered. Returns before the message is stored: the block's end
        tells that. What has gone wrong meanwhile is raised by the next call.

        The options are those of `JetStream.publish`, but for `expected_last_msg_id`. Raises
        what is wrong with the message before it is sent, as `JetStream.publish` does; of the
        first one `BatchPublishDisabledError`, `NoStreamResponseError` and
        `IngestUnsupportedError` (nats-server before 2.14); `IngestError`, or below it
        `IngestTimeoutError` and `IngestConnectionError`, when the ingest has ended early;
        and `IngestClosedError` after its end.
        """

def forks() -> int:
    """How often this process, or an ancestor since the import, has been forked off."""

def monotonic_ns() -> int:
    """The clock of every deadline here, in nanoseconds: that of `time.monotonic_ns`."""

@final
class Waker:
    """Ends the I/O thread's waits: the outbox writes to it, from any thread.

    Its descriptors are opened and closed in C. Ctrl-C cannot come between the opening of
    one and the object that owns it.
    """

    @property
    def read_fd(self) -> int: ...
    @property
    def write_fd(self) -> int: ...
    def clear(self) -> None:
        """Forget the wake-ups so far."""
    def close(self) -> None:
        """Close the descriptors; once."""
