# Fast-ingest batches (ADR-50): numbered publishes, encoded without a Python object each.

cdef enum:
    BATCH_START = 0
    BATCH_APPEND = 1
    BATCH_COMMIT = 2
    BATCH_END = 3
    BATCH_PING = 4
    CHUNK_BYTES = 64 * 1024

cdef struct Kept:  # a message that is not acknowledged
    PyObject* subject
    PyObject* data  # NULL: let go of, and cannot be sent again
    PyObject* block  # the header block, or NULL
    size_t size  # of headers and payload
    int operation
    bint repeatable  # it has a Nats-Msg-Id: the stream drops a second one


@cython.final
@cython.freelist(16)
cdef class FastPubAck:
    """Where a message stands in its ingest: `(batch_sequence, ack_sequence)`."""

    cdef readonly uint64_t batch_sequence, ack_sequence

    def __init__(self, batch_sequence: int, ack_sequence: int) -> None:
        self.batch_sequence = batch_sequence
        self.ack_sequence = ack_sequence

    def __iter__(self) -> "Iterator[int]":
        return iter((self.batch_sequence, self.ack_sequence))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return (self.batch_sequence, self.ack_sequence)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FastPubAck | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.batch_sequence, self.ack_sequence))

    def __repr__(self) -> str:
        return (
            f"FastPubAck(batch_sequence={self.batch_sequence}, "
            f"ack_sequence={self.ack_sequence})"
        )


cdef inline size_t digits_of(uint64_t number) noexcept nogil:
    cdef size_t n = 1
    while number >= 10:
        number //= 10
        n += 1
    return n


cdef bytes payload_bytes(object data):
    """A copy of a payload that is not `bytes`."""
    cdef Py_buffer view
    if not PyObject_CheckBuffer(data):
        raise TypeError(
            "data must be bytes, bytearray or memoryview, not "
            f"{type(data).__name__}"
            + (": encode it first" if isinstance(data, str) else "")
        )
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return PyBytes_FromStringAndSize(<const char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef inline size_t size_with(bytes payload, bytes block) noexcept:
    return PyBytes_GET_SIZE(payload) + (0 if block is None else PyBytes_GET_SIZE(block))


cdef bint has_msg_id(bytes block):
    return b"\nnats-msg-id:" in block.lower()


cdef class IngestCounts:
    """How far an ingest is. Its writer counts `sent`, its engine all else."""

    # C integers: the writer reads and counts them once a message.

    cdef public uint64_t base, sent, received

    @property
    def acked(self) -> int:
        """All up to this one are acknowledged, counted through the whole ingest."""
        return self.base + self.received

    def rebase(self) -> None:
        """Count from what is acknowledged, in another batch.

        One call, so that a signal handler that raises cannot come in between.
        """
        self.base += self.received
        self.sent = self.received = 0

    def __repr__(self) -> str:
        return (
            f"<IngestCounts {self.received} of {self.sent} acknowledged, "
            f"behind {self.base}>"
        )


@cython.final
cdef class BatchWriter:
    """Writes the messages of an ingest, in one batch after the other.

    For one thread at a time, which `with` makes sure of where it waits; `ping` and `end`
    are for any thread. At most `window` bytes are on the way, or one message. Messages
    that are not acknowledged are kept, as many as fit into `keep` bytes, and `rewind` gives
    them back.
    """

    cdef IngestCounts counts
    cdef Outbox outbox
    cdef Mailbox answers
    cdef bytes reply  # `<prefix>.<id>.<flow>.<gaps>.`
    cdef bytes control  # the subject of pings and ends: the first message's
    cdef public uint64_t limit
    """The last one that may be written now."""
    cdef unsigned long owner  # the thread that may be waiting
    cdef bint writing
    cdef object subject  # the last one that was looked at
    cdef Kept* kept
    cdef size_t capacity, head, count  # of those not acknowledged
    cdef size_t dropped  # the first so many of them have been let go of
    cdef size_t kept_bytes, keep, window
    cdef readonly size_t under_way
    """Bytes of headers and payloads that are not acknowledged."""
    cdef size_t unrepeatable
    cdef readonly bint has_ids
    """Whether a message of it had a message id, kept or not."""

    def __init__(
        self, outbox: Outbox, counts: IngestCounts, keep: int, window: int
    ) -> None:
        self.outbox = outbox
        self.counts = counts
        self.keep = keep
        self.window = window

    def __dealloc__(self):
        self.release(self.count)
        PyMem_RawFree(self.kept)

    def __repr__(self) -> str:
        return (
            f"<BatchWriter at {self.counts.sent} of {self.limit}, {self.count} messages of "
            f"{self.under_way} bytes under way>"
        )

    def __enter__(self) -> "BatchWriter":
        check_fork(self.outbox.generation)
        if self.owner or self.writing:
            self.refuse()
        self.owner = PyThread_get_thread_ident()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.owner = 0

    cdef int refuse(self) except -1:
        raise ConcurrentUseError(
            "another call on this ingest is waiting: it is for one thread at a time"
        )

    @property
    def repeatable(self) -> bool:
        """Whether all that is not acknowledged is kept, and has a message id."""
        return self.unrepeatable == 0 and self.dropped == 0

    @property
    def full(self) -> bool:
        """Whether bytes, and not messages or answers, are in the way of the next one."""
        return (
            self.counts.sent < self.limit and self.answers.count == 0
            and not self.answers.closed
        )

    @property
    def mean_size(self) -> int:
        """The mean size of the messages that are not acknowledged, in bytes."""
        return self.under_way // self.count if self.count else 0

    def begin(self, answers: Mailbox, reply: bytes) -> None:
        """Begin a batch; its first message may be written."""
        self.answers = answers
        self.reply = reply
        self.limit = 1

    def confirm(self) -> None:
        """Let go of all that is acknowledged by now."""
        cdef uint64_t waiting = self.counts.sent - self.counts.received
        if self.count > waiting:
            self.release(self.count - waiting)

    def rewind(self, again: "deque[tuple[str, bytes, bytes | None, int]]") -> bool:
        """Move all that is not acknowledged to the front of `again`, for another batch.

        False when some of it has not been kept. Arguments of `write` each. One call, so
        that a signal handler that raises cannot come in between.
        """
        cdef list messages = []
        cdef size_t i
        self.confirm()
        self.limit = 0
        if self.dropped:
            return False
        for i in range(self.count, 0, -1):
            messages.append(self.kept_at(i - 1))
        again.extendleft(messages)
        self.release(self.count)
        return True

    def first_behind(self) -> "tuple[str, bytes, bytes | None, int] | None":
        """The first that is not acknowledged; None when that has not been kept."""
        self.confirm()
        if self.count == 0 or self.dropped:
            return None
        return self.kept_at(0)

    cdef tuple kept_at(self, size_t i):
        cdef Kept* one = &self.kept[(self.head + i) & (self.capacity - 1)]
        return (
            <object>one.subject, <object>one.data,
            <object>one.block if one.block != NULL else None, one.operation,
        )

    @cython.annotation_typing(False)
    def write(
        self,
        subject: str,
        data: "bytes | bytearray | memoryview" = b"",
        headers: "HeadersLike | bytes | None" = None,
        operation: int = BATCH_APPEND,
    ) -> FastPubAck | None:
        """Write the next message; None when that has to wait, or an answer is here.

        `headers` may be a header block already.
        """
        cdef bytes block = None
        if headers:
            if PyBytes_CheckExact(headers):
                block = <bytes>headers
            else:
                block = encode_headers(headers)
            return self.next(subject, data, block, operation, has_msg_id(block))
        return self.next(subject, data, None, operation, False)

    def write_again(
        self, again: "deque[tuple[str, bytes, bytes | None, int]]"
    ) -> bool:
        """Write the first of `again` and take it off; False when that has to wait.

        One call, so that a signal handler that raises cannot come in between.
        """
        if self.write(*again[0]) is None:
            return False
        again.popleft()
        return True

    cdef FastPubAck next(
        self, subject, data, bytes block, int operation, bint repeatable
    ):
        cdef Py_ssize_t size = 0
        cdef const char* s
        cdef bytes payload
        if self.writing or self.owner and self.owner != PyThread_get_thread_ident():
            self.refuse()
        if subject is self.subject:
            s = PyUnicode_AsUTF8AndSize(subject, &size)
        else:
            s = publish_subject(subject, &size)
            self.subject = subject
        payload = <bytes>data if PyBytes_CheckExact(data) else payload_bytes(data)
        self.check_size(payload, block)
        if not self.may_write(size_with(payload, block)):
            return None
        if self.counts.sent == 0:
            self.control = PyBytes_FromStringAndSize(s, size)
        self.make_room(1)
        self.writing = True
        try:
            if not self.put(s, size, block, payload, operation):
                return None
        finally:
            self.writing = False
        self.push(subject, payload, block, operation, repeatable)
        self.trim()
        return self.ack()

    def check_rows(
        self, subjects: "str | list[str]", payloads: list, blocks: "list | None",
        all_ids: bool,
    ) -> bytes | None:
        """Which of the rows that `ArrowSource.take` has given have a message id.

        A byte for each, not 0 if it has; None when there are no header blocks. Raises for
        what cannot be sent.
        """
        cdef Py_ssize_t size = 0, i, n = len(payloads)
        cdef bytes ids = None, block
        if isinstance(subjects, str):
            publish_subject(subjects, &size)
        else:
            for name in subjects:
                publish_subject(name, &size)
        if blocks is None:
            for i in range(n):
                self.check_size(<bytes>payloads[i], None)
            return None
        ids = PyBytes_FromStringAndSize(NULL, n)
        for i in range(n):
            block = <bytes>(<list>blocks)[i]
            self.check_size(<bytes>payloads[i], block)
            # A header of one's own may be one too.
            PyBytes_AS_STRING(ids)[i] = all_ids or block is not None and has_msg_id(block)
        return ids

    def checked_many(
        self, subjects: "str | Iterable[str]", payloads: "Iterable[Buffer]"
    ) -> "tuple[str | list[str], list[bytes]]":
        """What `write_many` takes, of one's own; raises for what cannot be sent."""
        cdef Py_ssize_t size = 0
        cdef list those = list(payloads), names
        cdef Py_ssize_t i
        for i in range(len(those)):
            data = those[i]
            if not PyBytes_CheckExact(data):
                those[i] = data = payload_bytes(data)
            self.check_size(<bytes>data, None)
        if isinstance(subjects, str):
            publish_subject(subjects, &size)
            return subjects, those
        names = list(subjects)
        if len(names) != len(those):
            raise ConfigError(f"{len(names)} subjects for {len(those)} payloads")
        for name in names:
            publish_subject(name, &size)
        return names, those

    def write_many(
        self, subjects: "str | list[str]", payloads: list, begin: int,
        blocks: "list | None" = None, ids: bytes | None = None,
    ) -> int:
        """Write as much of `payloads` from `begin` on as may be; where it stopped.

        What `checked_many` or `check_rows` has checked, and nobody else can change.
        `blocks` are their header blocks, and `ids` is what `check_rows` gave.
        """
        cdef Py_ssize_t at = begin, first, end, total = len(payloads)
        cdef size_t size, way, n, headers = 0
        cdef uint64_t number
        cdef char* out
        cdef bint one = isinstance(subjects, str)
        cdef bytes payload, block = None
        cdef const char* s = NULL
        cdef const char* h = NULL
        cdef Py_ssize_t subject_size = 0
        if self.writing or self.owner and self.owner != PyThread_get_thread_ident():
            self.refuse()
        if one:
            s = utf8(subjects, &subject_size)
        while at < total and self.may_write(
            size_with(<bytes>payloads[at], None if blocks is None else <bytes>blocks[at])
        ):
            first = at
            if self.counts.sent == 0:
                if not one:
                    s = utf8((<list>subjects)[at], &subject_size)
                self.control = PyBytes_FromStringAndSize(s, subject_size)
            size, number, way = 0, self.counts.sent, self.under_way
            end = at + min(<Py_ssize_t>(self.limit - self.counts.sent), total - at)
            while at < end and size < CHUNK_BYTES:
                if not one:
                    utf8((<list>subjects)[at], &subject_size)
                if blocks is not None:
                    block = <bytes>(<list>blocks)[at]
                    headers = PyBytes_GET_SIZE(block) if block is not None else 0
                n = PyBytes_GET_SIZE(<bytes>(<list>payloads)[at])
                way += headers + n
                if way > self.window and at > first:
                    break
                number += 1
                size += self.frame_size(subject_size, headers, n, number)
                at += 1
            end = at
            self.make_room(end - first)
            self.writing = True
            try:
                out = self.outbox.begin(size, False, False)
            finally:
                self.writing = False
            if out == NULL:
                return first
            # With the outbox's mutex: nothing here lets go of an object or of the GIL.
            for at in range(first, end):
                if not one:
                    s = PyUnicode_AsUTF8AndSize((<list>subjects)[at], &subject_size)
                payload = <bytes>(<list>payloads)[at]
                if blocks is not None:
                    block = <bytes>(<list>blocks)[at]
                    if block is None:
                        h, headers = NULL, 0
                    else:
                        h = PyBytes_AS_STRING(block)
                        headers = PyBytes_GET_SIZE(block)
                self.counts.sent += 1
                out = self.put_frame(
                    out, s, subject_size, h, headers,
                    PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload),
                    self.counts.sent,
                    BATCH_START if self.counts.sent == 1 else BATCH_APPEND,
                )
                self.outbox.out_msgs += 1
                self.outbox.out_bytes += headers + PyBytes_GET_SIZE(payload)
                self.push(
                    subjects if one else (<list>subjects)[at], payload, block,
                    BATCH_APPEND, ids is not None and PyBytes_AS_STRING(ids)[at],
                )
            at = end
            self.outbox.finish(True)
            self.trim()
        return at

    def awaits(self, subject: str) -> bool:
        """Whether a message to `subject` is not acknowledged."""
        cdef size_t i
        for i in range(self.count):
            if <object>self.kept[(self.head + i) & (self.capacity - 1)].subject == subject:
                return True
        return False

    def ping(self) -> bool:
        """Ask for the last flow message, and keep the batch alive; False: not connected.

        It has the number of the last message written, so that a lost ping is no gap.
        """
        return self.counts.sent > 0 and self.tell(self.counts.sent, BATCH_PING)

    def end(self) -> bool:
        """End the batch, without storing anything more; False: not connected."""
        return self.counts.sent > 0 and self.tell(self.counts.sent + 1, BATCH_END)

    cdef bint tell(self, uint64_t number, int operation) except -1:
        cdef Py_ssize_t n = PyBytes_GET_SIZE(self.control)
        cdef char* out
        # Urgent: it never waits for room, since the I/O thread writes these too.
        out = self.outbox.begin(self.frame_size(n, 0, 0, number), False, True)
        if out == NULL:
            return False
        self.put_frame(
            out, PyBytes_AS_STRING(self.control), n, NULL, 0, NULL, 0, number, operation
        )
        self.outbox.out_msgs += 1
        self.outbox.finish(True)
        return True

    cdef inline int make_room(self, size_t more) except -1:
        return self.grow(more) if self.count + more > self.capacity else 0

    cdef int grow(self, size_t more) except -1:
        cdef size_t capacity = self.capacity if self.capacity else 1024
        cdef size_t i
        cdef Kept* grown
        while capacity < self.count + more:
            capacity *= 2
        grown = <Kept*>PyMem_RawMalloc(capacity * sizeof(Kept))
        if grown == NULL:
            raise MemoryError
        for i in range(self.count):
            grown[i] = self.kept[(self.head + i) & (self.capacity - 1)]
        PyMem_RawFree(self.kept)
        self.kept = grown
        self.capacity = capacity
        self.head = 0
        return 0

    cdef inline void push(
        self, object subject, bytes data, bytes block, int operation, bint repeatable
    ) noexcept:
        cdef Kept* one = &self.kept[(self.head + self.count) & (self.capacity - 1)]
        Py_INCREF(subject)
        Py_INCREF(data)
        one.subject = <PyObject*>subject
        one.data = <PyObject*>data
        one.block = NULL
        one.size = size_with(data, block)
        one.operation = operation
        one.repeatable = repeatable
        if block is not None:
            Py_INCREF(block)
            one.block = <PyObject*>block
        self.has_ids |= repeatable
        self.unrepeatable += not repeatable
        self.count += 1
        self.kept_bytes += one.size
        self.under_way += one.size

    cdef inline void trim(self) noexcept:
        if self.kept_bytes > self.keep:
            self.drop_oldest()

    cdef void drop_oldest(self) noexcept:
        """Let go of the oldest as long as more is kept than may be."""
        cdef Kept* slot
        cdef Kept one
        while self.kept_bytes > self.keep:
            slot = &self.kept[(self.head + self.dropped) & (self.capacity - 1)]
            one = slot[0]
            # Marked before anything is let go, which may run other code.
            slot.data = NULL
            self.dropped += 1
            self.let_go(&one)

    cdef void release(self, size_t n) noexcept:
        """Let go of the first `n` not acknowledged."""
        cdef Kept one
        while n:
            n -= 1
            # Off the list before anything is let go, which may run other code.
            one = self.kept[self.head]
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
            self.under_way -= one.size
            self.unrepeatable -= not one.repeatable
            if one.data == NULL:
                self.dropped -= 1
            else:
                self.let_go(&one)
            Py_DECREF(<object>one.subject)

    cdef void let_go(self, Kept* one) noexcept:
        self.kept_bytes -= one.size
        Py_DECREF(<object>one.data)
        if one.block != NULL:
            Py_DECREF(<object>one.block)

    cdef inline FastPubAck ack(self):
        cdef FastPubAck ack = FastPubAck.__new__(FastPubAck)
        ack.batch_sequence = self.counts.base + self.counts.sent
        ack.ack_sequence = self.counts.base + self.counts.received
        return ack

    @property
    def last(self) -> FastPubAck:
        """What `write` gave for the last message written."""
        return self.ack()

    cdef inline bint may_write(self, size_t size) noexcept:
        return (
            self.counts.sent < self.limit
            and (self.under_way + size <= self.window or self.count == 0)
            and self.answers.count == 0 and not self.answers.closed
        )

    cdef inline int check_size(self, bytes payload, bytes block) except -1:
        return self.outbox.check_size(size_with(payload, block))

    cdef bint put(
        self, const char* s, Py_ssize_t subject_size, bytes block, bytes payload,
        int operation,
    ) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload), headers = 0
        cdef const char* h = NULL
        cdef uint64_t number = self.counts.sent + 1
        cdef char* out
        if block is not None:
            h = PyBytes_AS_STRING(block)
            headers = PyBytes_GET_SIZE(block)
        if number == 1 and operation == BATCH_APPEND:
            operation = BATCH_START
        out = self.outbox.begin(
            self.frame_size(subject_size, headers, size, number), False, False
        )
        if out == NULL:
            return False
        self.put_frame(
            out, s, subject_size, h, headers, PyBytes_AS_STRING(payload), size, number,
            operation,
        )
        self.counts.sent = number
        self.outbox.out_msgs += 1
        self.outbox.out_bytes += headers + size
        self.outbox.finish_lazy(SELF_SEND_BYTES, True)
        return True

    cdef size_t frame_size(
        self, size_t subject, size_t headers, size_t size, uint64_t number
    ) noexcept:
        return (
            (4 if headers == 0 else 5) + subject + 1
            + PyBytes_GET_SIZE(self.reply) + digits_of(number) + 7  # `.1.$FI `
            + (digits_of(headers) + 1 if headers else 0) + digits_of(headers + size) + 2
            + headers + size + 2
        )

    cdef char* put_frame(
        self, char* out, const char* s, Py_ssize_t subject_size,
        const char* block, Py_ssize_t headers, const char* data, Py_ssize_t size,
        uint64_t number, int operation,
    ) noexcept:
        """`PUB subject prefix.id.flow.gaps.number.operation.$FI size`; where it ends."""
        if block != NULL:
            out = put(out, b"HPUB ", 5)
        else:
            out = put(out, b"PUB ", 4)
        out = put(out, s, subject_size)
        out[0] = 32
        out = put(out + 1, PyBytes_AS_STRING(self.reply), PyBytes_GET_SIZE(self.reply))
        out = write_number(out, number)
        out[0] = 46
        out[1] = <char>(48 + operation)
        out = put(out + 2, b".$FI ", 5)
        if block != NULL:
            out = write_number(out, headers)
            out[0] = 32
            out += 1
        out = write_number(out, headers + size)
        out = put(out, b"\r\n", 2)
        if block != NULL:
            out = put(out, block, headers)
        if size:
            out = put(out, data, size)
        return put(out, b"\r\n", 2)


@cython.no_gc_clear  # a finaliser may still add
cdef class MessageAdder:
    """The part of `FastIngest` that is done once a message."""

    cdef readonly BatchWriter _writer

    def __init__(self, writer: BatchWriter) -> None:
        self._writer = writer

    @cython.annotation_typing(False)
    def add(
        self, subject: str, data: "bytes | bytearray | memoryview" = b"", **options: object
    ) -> FastPubAck:
        """Add a message; its number in this ingest, and the last that is acknowledged.

        Blocks while as many as the server allows are under way, and the first time until
        the server has answered. Returns before the message is stored: the block's end
        tells that. What has gone wrong meanwhile is raised by the next call.

        The options are those of `JetStream.publish`, but for `expected_last_msg_id`.
        Raises `ConfigError`, `InvalidSubjectError`, `InvalidHeaderError` and
        `MaxPayloadError` before anything is sent; for the first message the `APIError` of
        a stream that does not take it, `NoStreamResponseError`, `UnsupportedFeatureError`
        when the server is older than 2.14, `IngestUnsupportedError` when that shows by what
        it has stored; and `IngestError` and its kinds
        `IngestTimeoutError` and `IngestConnectionError`, once it has ended early.
        """
        cdef bytes block = None
        cdef bint repeatable = False
        cdef FastPubAck ack
        if options:
            msg_id = options.get("msg_id")
            if msg_id is not None and len(options) == 1:
                # The most frequent one goes the shortest way.
                block = block_with_id(None, msg_id)
                repeatable = True
            else:
                headers = self._headers_of(subject, data, options)
                if headers:
                    block = encode_headers(headers)
                    repeatable = has_msg_id(block)
        ack = self._writer.next(subject, data, block, BATCH_APPEND, repeatable)
        if ack is not None:
            return ack
        return self._add((subject, data, block, BATCH_APPEND))
