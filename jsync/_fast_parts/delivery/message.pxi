# Msg, JetStreamMsg and the ack subject's Metadata.

cdef enum:
    MAX_DELAY = 1_000_000_000  # seconds, less than servers can count in nanoseconds
    INLINE = 104  # subject and reply of most JetStream messages fit into the object

cdef enum AckState:
    UNACKED
    ACKED     # a terminal ack has been written
    NEEDLESS  # the consumer's ack policy is none
    CONTROL   # not a message, but a control message of the server among them


@cython.no_gc
cdef class Msg:
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

    # Not tracked by the collector, because a backlog of a million messages would slow every
    # collection. No cycle can form, since nothing here refers back to a message.
    cdef char* head  # the subject, then the reply
    cdef uint32_t subject_size, reply_size
    cdef WriteBuffer write_buffer
    cdef bytes payload
    cdef bytes block  # the header block, or None
    cdef str subject_text
    cdef object headers_read
    cdef unsigned char ack_state
    cdef unsigned char has_text, has_parts  # whether the two above have been read
    cdef char inline[INLINE]

    @cython.annotation_typing(False)
    def __init__(
        self,
        subject: str,
        data: bytes = b"",
        *,
        reply: str | None = None,
        headers: "HeadersLike | None" = None,
    ) -> None:
        cdef Py_ssize_t subject_size = 0, reply_size = 0
        cdef const char* s = publish_subject(subject, &subject_size)
        cdef const char* r = NULL
        if reply is not None:
            r = publish_subject(reply, &reply_size)
        self.subject_text = self.headers_read = None
        self.has_text = self.has_parts = False
        self.set_head(s, subject_size, r, reply_size)
        self.payload = data
        self.block = encode_headers(headers) if headers else None

    def __dealloc__(self):
        if self.head != self.inline:
            PyMem_RawFree(self.head)

    cdef int set_head(
        self, const char* subject, size_t subject_size, const char* reply, size_t reply_size
    ) except -1:
        if self.head != NULL and self.head != self.inline:
            PyMem_RawFree(self.head)
        self.head = self.inline
        if subject_size + reply_size > INLINE:
            self.head = <char*>PyMem_RawMalloc(subject_size + reply_size)
            if self.head == NULL:
                raise MemoryError
        self.subject_size = <uint32_t>subject_size
        self.reply_size = <uint32_t>reply_size
        memcpy(self.head, subject, subject_size)
        if reply_size:
            memcpy(self.head + subject_size, reply, reply_size)
        return 0

    cdef inline int status_number(self) noexcept:
        if self.block is None:
            return 0
        return header_status(
            PyBytes_AS_STRING(self.block), PyBytes_GET_SIZE(self.block)
        )

    cdef inline bint is_status(self) noexcept:
        """Return whether it is not a message but a status of the server without content."""
        return (
            self.block is not None
            and self.payload_size() == 0 and self.status_number() != 0
        )

    cdef inline size_t payload_size(self) noexcept:
        # None in an object that a subclass created without __init__.
        return PyBytes_GET_SIZE(self.payload) if self.payload is not None else 0

    cdef inline size_t wire_size(self) noexcept:
        return (
            self.subject_size + self.reply_size + self.payload_size()
            + (PyBytes_GET_SIZE(self.block) if self.block is not None else 0)
        )

    cdef tuple read_block(self):
        if not load_byte(&self.has_parts):
            self.decode_block()
        return <tuple>self.headers_read

    cdef int decode_block(self) except -1:
        cdef Section section
        cdef str error = None
        enter(&section, <PyObject*>self)
        try:
            if not self.has_parts:
                if self.block is None:
                    self.headers_read = (None, "", None, None)
                else:
                    self.headers_read = parse_headers(self.block)
                store_byte(&self.has_parts, True)
                error = self.headers_read[3]
        finally:
            leave(&section)
        if error is not None and self.write_buffer is not None:
            self.write_buffer.report(UnreadableHeadersError(
                f"the headers of a message on {self.subject!r} are unreadable: {error}",
                subject=self.subject,
            ))
        return 0

    cdef int decode_subject(self) except -1:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if not self.has_text:
                self.subject_text = decode_text(self.head, self.subject_size)
                store_byte(&self.has_text, True)
            return 0
        finally:
            leave(&section)

    @property
    def subject(self) -> str:
        if not load_byte(&self.has_text):
            self.decode_subject()
        return self.subject_text

    @property
    def reply(self) -> str | None:
        if self.reply_size == 0:
            return None
        return decode_text(self.head + self.subject_size, self.reply_size)

    @property
    def data(self) -> bytes:
        return self.payload if self.payload is not None else b""

    @property
    def headers(self) -> Headers | None:
        """The headers. None if there are none, or if they are unreadable.

        Other clients may publish any bytes as headers. `headers_error` has the reason, and
        `on_error` gets an `UnreadableHeadersError` when you first read them.
        """
        return self.read_block()[2]

    @property
    def headers_error(self) -> str | None:
        """Why headers, or some of them, are unreadable. None: all are readable."""
        return self.read_block()[3]

    @property
    def raw_headers(self) -> bytes | None:
        """The header block as bytes. None if there are no headers."""
        return self.block

    @property
    def status(self) -> int | None:
        """The number of an inline status such as 503. None for published messages."""
        return self.status_number() or None

    @property
    def status_text(self) -> str:
        """The text after `status`, such as `No Messages`. Otherwise empty."""
        if self.status_number() == 0:
            return ""
        return self.read_block()[1]

    @property
    def size(self) -> int:
        """The bytes of subject, reply, headers and payload together."""
        return self.wire_size()

    def respond(
        self, data: bytes = b"", *, headers: "HeadersLike | None" = None
    ) -> None:
        """Publish a reply to this message. Does not wait, like `Connection.publish`.

        Args:
            data: The payload.
            headers: The headers of the reply.

        Raises:
            NoReplySubjectError: The message has no reply subject: it was not a request.
        """
        if self.reply_size == 0:
            raise NoReplySubjectError(
                f"the message on {self.subject!r} has no reply subject: it was published, "
                "not requested"
            )
        if self.write_buffer is None or self.write_buffer.acks is not None:
            raise NoReplySubjectError("this message did not come from a connection")
        self.write_buffer.publish(self.reply, data, headers=headers)

    def __repr__(self) -> str:
        parts = [repr(self.subject)]
        if self.status:
            parts.append(f"status={self.status} {self.status_text}".rstrip())
        if self.reply_size:
            parts.append(f"reply={self.reply!r}")
        parts.append(f"{self.payload_size()} bytes")
        return f"<{type(self).__name__} {', '.join(parts)}>"


Ack = namedtuple("Ack", ("kind", "delay", "reason"), defaults=(None, None))
Ack.__module__ = "jsync._fast"
Ack.__doc__ = "An acknowledgement of a message that you made by hand."


cdef object ack_of(bytes data):
    """Return the call that writes these bytes as an ack."""
    if data == b"+ACK":
        return Ack("ack")
    if data == b"+WPI":
        return Ack("in_progress")
    if data == b"-NAK":
        return Ack("nak")
    if data.startswith(b"-NAK"):
        digits = data[len(b'-NAK {"delay": '):len(data) - 1]
        return Ack("nak", int(digits) / 1_000_000_000)
    return Ack("term", None, data[len(b"+TERM "):].decode() or None)


cdef bytes nak_payload(delay):
    if delay is None:
        return b"-NAK"
    given = check_seconds(delay, "delay")
    if not 0 <= given <= MAX_DELAY:
        raise ConfigError(
            f"delay has to be from 0 to {MAX_DELAY} seconds, not {delay!r}"
        )
    return b'-NAK {"delay": %d}' % round(given * 1_000_000_000)


cdef bytes term_payload(str reason):
    if not reason:
        return b"+TERM"
    try:
        return b"+TERM " + reason.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"reason is not valid Unicode: {reason!r}") from None


@cython.final
@cython.no_gc
cdef class JetStreamMsg(Msg):
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

    @cython.annotation_typing(False)
    def __init__(
        self,
        subject: str,
        data: bytes = b"",
        *,
        reply: str | None = None,
        headers: "HeadersLike | None" = None,
    ) -> None:
        Msg.__init__(self, subject, data, reply=reply, headers=headers)
        # Nothing is written to it. It keeps the acks, for which a message has no room.
        self.write_buffer = WriteBuffer()
        self.write_buffer.acks = []

    cdef int check_ack_subject(self) except -1:
        if self.write_buffer is None or not is_ack_subject(
            self.head + self.subject_size, self.reply_size
        ):
            raise NotJetStreamMessageError(
                f"the message on {self.subject!r} did not come from a consumer: "
                "it cannot be acknowledged"
            )
        return 0

    cdef int acknowledge(self, const char* data, Py_ssize_t size, bint terminal) except -1:
        if load_byte(&self.ack_state) != UNACKED:
            return 0
        self.check_ack_subject()
        if PARALLEL and terminal:
            if not replace_byte(&self.ack_state, UNACKED, ACKED):
                return 0
            try:
                return self.write_ack(data, size)
            except BaseException:
                store_byte(&self.ack_state, UNACKED)
                raise
        self.write_ack(data, size)
        # Only now, because an ack that could not be written may be retried.
        if terminal:
            self.ack_state = ACKED
        return 0

    cdef inline int write_ack(self, const char* data, Py_ssize_t size) except -1:
        if self.write_buffer.acks is not None:
            self.write_buffer.acks.append(ack_of(PyBytes_FromStringAndSize(data, size)))
        else:
            self.write_buffer.write_ack(
                self.head + self.subject_size, self.reply_size, data, size
            )
        return 0

    @property
    def metadata(self) -> Metadata:
        """The delivery of the message: stream, consumer, sequences, time.

        Raises:
            NotJetStreamMessageError: The message did not come from a consumer.
        """
        return read_ack_subject(self.head + self.subject_size, self.reply_size)

    @property
    def is_redelivered(self) -> bool:
        """True if the server delivered the message before: `num_delivered` is above 1.

        Raises:
            NotJetStreamMessageError: The message did not come from a consumer.
        """
        cdef AckSubject ack
        cdef uint64_t delivered = 0
        if split_ack_subject(
            self.head + self.subject_size, self.reply_size, &ack
        ) and ack_number(&ack, NUM_DELIVERED, &delivered):
            return delivered > 1
        return self.metadata.num_delivered > 1  # raises an error that explains it

    @property
    def is_acked(self) -> bool:
        """True once a final ack was sent or buffered."""
        return load_byte(&self.ack_state) == ACKED

    @property
    def acks(self) -> list[Ack]:
        """The acks of a message that you made by hand, in order.

        Raises:
            AttributeError: The message came from a server.
        """
        if self.write_buffer is None or self.write_buffer.acks is None:
            raise AttributeError(
                f"the acks of the message on {self.subject!r} are not recorded: "
                "make the message by hand"
            )
        return list(self.write_buffer.acks)

    def ack(self) -> None:
        """Tell the server that the message is done. Does not wait for the server.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            consumer.next(timeout=5).ack()
            ```
        """
        self.acknowledge(b"+ACK", 4, True)

    @cython.annotation_typing(False)
    def nak(self, delay: "Seconds | None" = None) -> None:
        """Make the server redeliver the message. Does not wait for the server.

        Args:
            delay: Seconds until the redelivery. Default: immediately.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            consumer.next(timeout=5).nak(delay=60)  # comes again in a minute
            ```
        """
        cdef bytes data = nak_payload(delay)
        self.acknowledge(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), True)

    def term(self, reason: str | None = None) -> None:
        """Tell the server not to deliver the message again. Does not wait.

        Args:
            reason: The reason, for the server's advisory. Needs nats-server 2.10.4.
        """
        cdef bytes data = term_payload(reason)
        self.acknowledge(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), True)

    def in_progress(self) -> None:
        """Request another `ack_wait` from the server until it redelivers the message."""
        self.acknowledge(b"+WPI", 4, False)

    @cython.annotation_typing(False)
    def ack_sync(self, timeout: "Seconds" = 5.0) -> None:
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
        if load_byte(&self.ack_state) != UNACKED:
            return
        self.check_ack_subject()
        timeout = check_seconds(timeout, "timeout")
        if self.write_buffer.acks is not None:
            self.write_buffer.acks.append(Ack("ack_sync"))
        else:
            self.write_buffer.request(self.reply, b"+ACK", timeout)
        store_byte(&self.ack_state, ACKED)


def take_partition(JetStreamMsg msg not None) -> None:
    """Remove the first token of the subject. No other thread has the message yet."""
    cdef const char* dot = <const char*>memchr(msg.head, c".", msg.subject_size)
    cdef uint32_t cut
    if dot == NULL:
        return
    cut = <uint32_t>(dot - msg.head) + 1
    memmove(msg.head, msg.head + cut, msg.subject_size - cut + msg.reply_size)
    msg.subject_size -= cut
    msg.has_text = False


cdef enum:
    MAX_TOKENS = 12  # further ones are not read, however many there are


cdef inline bint is_ack_subject(const char* s, Py_ssize_t n) noexcept nogil:
    return n > 8 and memcmp(s, b"$JS.ACK.", 8) == 0


@cython.final
@cython.freelist(64)
cdef class Metadata:
    """The metadata of a message from a consumer, read from its ack subject. (ADR-15)

    Example:
        ```python
        consumer = stream.create_consumer(durable_name="billing")
        msg = consumer.next(timeout=5)
        print(msg.metadata.timestamp, msg.metadata.num_delivered)
        msg.ack()
        ```
    """

    cdef readonly str stream, consumer, domain
    cdef readonly uint64_t num_delivered, stream_sequence, consumer_sequence
    cdef readonly uint64_t timestamp_ns, num_pending

    @property
    def timestamp(self) -> datetime:
        """When the stream stored the message: aware, UTC, microseconds."""
        return _EPOCH + timedelta(microseconds=self.timestamp_ns // 1000)

    def __repr__(self) -> str:
        where = f", domain={self.domain!r}" if self.domain is not None else ""
        return (
            f"<Metadata {self.stream!r} {self.consumer!r}, "
            f"stream_sequence={self.stream_sequence}, "
            f"consumer_sequence={self.consumer_sequence}, "
            f"num_delivered={self.num_delivered}, num_pending={self.num_pending}{where}>"
        )

    def __reduce__(self) -> tuple:
        before = f"{self.domain}._." if self.domain is not None else ""
        return parse_ack_subject, (
            f"$JS.ACK.{before}{self.stream}.{self.consumer}.{self.num_delivered}."
            f"{self.stream_sequence}.{self.consumer_sequence}.{self.timestamp_ns}."
            f"{self.num_pending}",
        )

_EPOCH = datetime(1970, 1, 1, tzinfo=_UTC)


cdef enum AckToken:  # counted from the token of the stream
    STREAM
    CONSUMER
    NUM_DELIVERED
    STREAM_SEQUENCE
    CONSUMER_SEQUENCE
    TIMESTAMP
    NUM_PENDING


cdef struct AckSubject:
    const char* at[MAX_TOKENS]
    Py_ssize_t size[MAX_TOKENS]
    int base  # index of the stream's token


cdef bint split_ack_subject(
    const char* s, Py_ssize_t n, AckSubject* ack
) noexcept nogil:
    """Split an ack subject (ADR-15). Return False for any other subject.

    It is `$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<time>.<pending>`, or, from
    version 2 on, `$JS.ACK.<domain>.<account hash>.<stream>...<pending>`. More tokens may
    follow in version 2, and are ignored.
    """
    cdef int count = 0
    cdef Py_ssize_t begin = 0, end
    cdef const char* dot
    if not is_ack_subject(s, n):
        return False
    while begin <= n:
        dot = <const char*>memchr(s + begin, c".", n - begin) if begin < n else NULL
        end = dot - s if dot != NULL else n
        if end == begin:
            return False
        if count < MAX_TOKENS:
            ack.at[count] = s + begin
            ack.size[count] = end - begin
        count += 1
        begin = end + 1
    ack.base = 2 if count == 9 else 4
    return count == 9 or count >= 11


cdef inline bint ack_number(
    AckSubject* ack, AckToken token, uint64_t* number
) noexcept nogil:
    return parse_number(ack.at[ack.base + token], ack.size[ack.base + token], number)


cdef str ack_text(AckSubject* ack, int token):
    return decode_text(ack.at[ack.base + token], ack.size[ack.base + token])


cdef Metadata read_ack_subject(const char* s, Py_ssize_t n):
    cdef AckSubject ack
    cdef Metadata metadata = Metadata.__new__(Metadata)
    if not (
        split_ack_subject(s, n, &ack)
        and ack_number(&ack, NUM_DELIVERED, &metadata.num_delivered)
        and ack_number(&ack, STREAM_SEQUENCE, &metadata.stream_sequence)
        and ack_number(&ack, CONSUMER_SEQUENCE, &metadata.consumer_sequence)
        and ack_number(&ack, TIMESTAMP, &metadata.timestamp_ns)
        and ack_number(&ack, NUM_PENDING, &metadata.num_pending)
    ):
        raise NotJetStreamMessageError(
            f"{decode_text(s, n)!r} is not the reply subject of a consumer's message"
        )
    if ack.base == 4 and not (ack.size[2] == 1 and ack.at[2][0] == c"_"):
        metadata.domain = decode_text(ack.at[2], ack.size[2])  # "_" is no domain
    metadata.stream = ack_text(&ack, STREAM)
    metadata.consumer = ack_text(&ack, CONSUMER)
    return metadata


@cython.annotation_typing(False)
def parse_ack_subject(subject: str) -> Metadata:
    cdef bytes raw
    if not isinstance(subject, str):
        raise TypeError(f"a subject is a str, not {type(subject).__name__}")
    try:
        raw = subject.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise NotJetStreamMessageError(
            f"{subject!r} is not the reply subject of a consumer's message"
        ) from None
    return read_ack_subject(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))


@cython.annotation_typing(False)
def message_size(subject: str, reply: str | None, headers: bytes, data: bytes) -> int:
    cdef Py_ssize_t size = 0, reply_size = 0
    utf8(subject, &size)
    if reply is not None:
        utf8(reply, &reply_size)
    return size + reply_size + len(headers) + len(data)


@cython.annotation_typing(False)
def encode_publish(
    subject: str,
    data: "bytes | bytearray | memoryview" = b"",
    reply: str | None = None,
    headers: "HeadersLike | None" = None,
) -> bytes:
    cdef WriteBuffer write_buffer = WriteBuffer(limit=1 << 62)
    write_buffer.most_payload = 1 << 62
    write_buffer.state = HANDED
    write_buffer.publish(subject, data, reply, headers)
    return write_buffer.take(1 << 62)
