# Fast-ingest batches (ADR-50): numbered publishes, without a Python object for each.

cdef enum:
    BATCH_START = 0
    BATCH_APPEND = 1
    BATCH_COMMIT = 2
    BATCH_END = 3
    BATCH_PING = 4
    CHUNK_BYTES = 64 * 1024
    CHUNK_ROWS = 1024
    OPERATION_SIZE = 6

cdef const char* OPERATIONS = b".0.$FI.1.$FI.2.$FI.3.$FI.4.$FI"

cdef struct RetainedMessage:  # an unacknowledged message
    PyObject* subject
    PyObject* data  # NULL: released, so it cannot be retried
    PyObject* block  # the header block, or NULL
    size_t size  # of headers and payload
    int operation
    bint repeatable  # it has a Nats-Msg-Id, so that the stream drops a second one


@cython.final
@cython.freelist(16)
cdef class FastPubAck:
    """The place of a message in its ingest: `(batch_sequence, ack_sequence)`.

    Example:
        ```python
        with js.fast_ingest() as ingest:
            place = ingest.add("orders.new", b"7")
            print(place.batch_sequence)
        ```
    """

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


cdef inline size_t size_with(bytes payload, bytes block) noexcept:
    return PyBytes_GET_SIZE(payload) + (0 if block is None else PyBytes_GET_SIZE(block))


cdef bint has_msg_id(bytes block):
    return b"\nnats-msg-id:" in block.lower()


cdef class IngestCounters:
    """The progress of an ingest. Its writer counts `sent`, its engine everything else.

    Each count has one writer, and any thread may read it.
    """

    # C integers, because the writer reads and counts them for each message.

    cdef uint64_t base_count, sent_count, received_count

    cdef inline uint64_t base_now(self) noexcept:
        return load_number_relaxed(&self.base_count)

    cdef inline uint64_t sent_now(self) noexcept:
        return load_number_relaxed(&self.sent_count)

    cdef inline uint64_t received_now(self) noexcept:
        return load_number_relaxed(&self.received_count)

    cdef inline void count_sent(self, uint64_t number) noexcept:
        store_number_relaxed(&self.sent_count, number)

    @property
    def base(self) -> int:
        """Messages of the batches before this one."""
        return self.base_now()

    @base.setter
    def base(self, value: int) -> None:
        store_number_relaxed(&self.base_count, value)

    @property
    def sent(self) -> int:
        """Messages of this batch that have been written."""
        return self.sent_now()

    @sent.setter
    def sent(self, value: int) -> None:
        self.count_sent(value)

    @property
    def received(self) -> int:
        """Messages of this batch that the server has acknowledged."""
        return self.received_now()

    @received.setter
    def received(self, value: int) -> None:
        store_number_relaxed(&self.received_count, value)

    @property
    def acked(self) -> int:
        """The last acknowledged message, counted through the whole ingest."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self.base + self.received
        finally:
            leave(&section)

    def rebase(self) -> None:
        """Start the counts of another batch behind the acknowledged messages.

        This is one call, so that a signal handler that raises cannot come in between.
        """
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            store_number_relaxed(&self.base_count, self.base_count + self.received_count)
            store_number_relaxed(&self.sent_count, 0)
            store_number_relaxed(&self.received_count, 0)
        finally:
            leave(&section)

    def __repr__(self) -> str:
        return (
            f"<IngestCounters {self.received} of {self.sent} acknowledged, "
            f"behind {self.base}>"
        )


@cython.final
cdef class IngestWriter:
    """Writes the messages of an ingest, in one batch after the other.

    For one thread at a time, which `with` ensures where it waits, but any thread may call
    `ping` and `end`. At most `window` bytes are on the way, or one message. Unacknowledged
    messages are kept, as many as fit into `keep` bytes, and `rewind` returns them.
    """

    cdef IngestCounters counts
    cdef WriteBuffer write_buffer
    cdef Mailbox answers
    cdef bytes reply  # `<prefix>.<id>.<flow>.<gaps>.`
    cdef bytes control  # the subject of pings and ends: that of the first message
    cdef public uint64_t limit
    """The last message that may be written now."""
    cdef unsigned long owner  # id of the thread inside `with`, which may be waiting
    cdef bint writing
    cdef object subject  # the last one that was checked
    cdef PublishFrame* rows  # `CHUNK_ROWS`, for `write_many`, NULL before its first call
    cdef RetainedMessage* kept
    cdef size_t capacity, head, count  # of unacknowledged messages
    cdef size_t dropped  # how many of the oldest are released
    cdef size_t kept_bytes, keep, window
    cdef readonly size_t under_way
    """Unacknowledged bytes of headers and payloads."""
    cdef size_t unrepeatable
    cdef readonly bint has_ids
    """True if a message had a message id, whether it is kept or not."""

    def __init__(
        self, write_buffer: WriteBuffer, counts: IngestCounters, keep: int, window: int
    ) -> None:
        self.write_buffer = write_buffer
        self.counts = counts
        self.keep = keep
        self.window = window

    def __dealloc__(self):
        self.release(self.count)
        PyMem_RawFree(self.kept)
        PyMem_RawFree(self.rows)

    def __repr__(self) -> str:
        return (
            f"<IngestWriter at {self.counts.sent} of {self.limit}, {self.count} messages "
            f"of {self.under_way} bytes under way>"
        )

    def __enter__(self) -> "IngestWriter":
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            check_fork(self.write_buffer.generation)
            if self.owner or self.writing:
                self.refuse()
            self.owner = caller_ident()
            return self
        finally:
            leave(&section)

    def __exit__(self, *exc_info: object) -> None:
        self.owner = 0

    cdef int refuse(self) except -1:
        raise ConcurrentUseError(
            "another call on this ingest is waiting: it is for one thread at a time"
        )

    @property
    def repeatable(self) -> bool:
        """True if each unacknowledged message is kept and has a message id."""
        return self.unrepeatable == 0 and self.dropped == 0

    @property
    def full(self) -> bool:
        """True if bytes, and not messages or answers, hold up the next message."""
        return (
            self.counts.sent_now() < self.limit and self.answers.count_now() == 0
            and not load_int_relaxed(&self.answers.over)
        )

    @property
    def mean_size(self) -> int:
        """The mean size of unacknowledged messages, in bytes."""
        return self.under_way // self.count if self.count else 0

    def begin(self, answers: Mailbox, reply: bytes) -> None:
        """Begin a batch, whose first message may be written."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.answers = answers
            self.reply = reply
            self.limit = 1
        finally:
            leave(&section)

    def confirm(self) -> None:
        """Release all messages that are acknowledged by now."""
        cdef uint64_t waiting = self.counts.sent_now() - self.counts.received_now()
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.count > waiting:
                self.release(self.count - waiting)
        finally:
            leave(&section)

    def rewind(self, again: "deque[tuple[str, bytes, bytes | None, int]]") -> bool:
        """Move all unacknowledged messages to the front of `again`, for another batch.

        Each becomes arguments of `write`. Return False if some have not been kept. This is
        one call, so that a signal handler that raises cannot come in between.
        """
        cdef list messages = []
        cdef size_t i
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.confirm()
            self.limit = 0
            if self.dropped:
                return False
            for i in range(self.count, 0, -1):
                messages.append(self.message_at(i - 1))
            again.extendleft(messages)
            self.release(self.count)
            return True
        finally:
            leave(&section)

    def first_unacknowledged(self) -> "tuple[str, bytes, bytes | None, int] | None":
        """Return the first unacknowledged message, or None if it was not kept."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.confirm()
            if self.count == 0 or self.dropped:
                return None
            return self.message_at(0)
        finally:
            leave(&section)

    cdef tuple message_at(self, size_t i):
        cdef RetainedMessage* one = &self.kept[(self.head + i) & (self.capacity - 1)]
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
        """Write the next message. Return None if it must wait, or if an answer is here.

        `headers` may already be a header block.
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
        """Write the first of `again` and remove it. Return False if it must wait.

        This is one call, so that a signal handler that raises cannot come in between.
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
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.writing or self.owner and self.owner != caller_ident():
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
            if self.counts.sent_now() == 0:
                self.control = PyBytes_FromStringAndSize(s, size)
            self.make_room(1)
            self.writing = True
            try:
                if not self.put(s, size, block, payload, operation, &section):
                    return None
            finally:
                self.writing = False
            self.push(subject, payload, block, operation, repeatable)
            self.trim()
            return self.ack()
        finally:
            leave(&section)

    def check_rows(
        self, subjects: "str | list[str]", payloads: list, blocks: "list | None",
        all_ids: bool,
    ) -> bytes | None:
        """Check rows of `ArrowSource.take`, and find those that have a message id.

        Return one byte for each row, not 0 if it has an id, or None if there are no header
        blocks. Raises an error for rows that cannot be sent.
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
            # A header of the user may be a message id, too.
            PyBytes_AS_STRING(ids)[i] = all_ids or block is not None and has_msg_id(block)
        return ids

    def checked_many(
        self, subjects: "str | Iterable[str]", payloads: "Iterable[Buffer]"
    ) -> "tuple[str | list[str], list[bytes]]":
        """Check and copy the arguments of `write_many`. Raises an error if one is wrong."""
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
        """Write as many of `payloads` from `begin` on as allowed. Return where it stopped.

        `checked_many` or `check_rows` has checked the arguments, and no other code can
        change them. `blocks` are header blocks, and `ids` is the result of `check_rows`.
        """
        cdef Py_ssize_t at = begin, first, total = len(payloads)
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.writing or self.owner and self.owner != caller_ident():
                self.refuse()
            if self.rows == NULL:
                self.rows = <PublishFrame*>PyMem_RawMalloc(
                    CHUNK_ROWS * sizeof(PublishFrame)
                )
                if self.rows == NULL:
                    raise MemoryError
            while at < total and self.may_write(
                size_with(
                    <bytes>payloads[at], None if blocks is None else <bytes>blocks[at]
                )
            ):
                first = at
                self.writing = True
                try:
                    at = self.write_chunk(subjects, payloads, first, blocks, ids, &section)
                finally:
                    self.writing = False
                if at == first:
                    break
                self.trim()
            return at
        finally:
            leave(&section)

    cdef Py_ssize_t write_chunk(
        self, subjects, list payloads, Py_ssize_t begin, list blocks, bytes ids,
        Section* section,
    ) except -1:
        """Write one message, and more while allowed. Return `begin` if not connected."""
        cdef Py_ssize_t end = begin, subject_size = 0, i
        cdef Py_ssize_t most = min(
            len(payloads) - begin,
            <Py_ssize_t>min(self.limit - self.counts.sent_now(), <uint64_t>CHUNK_ROWS),
        )
        cdef bint one = isinstance(subjects, str)
        cdef const char* s = utf8(subjects if one else subjects[begin], &subject_size)
        cdef uint64_t number = self.counts.sent_now()
        cdef size_t size = 0, way = self.under_way
        cdef PublishFrame* frame
        cdef char* out
        if number == 0:
            self.control = PyBytes_FromStringAndSize(s, subject_size)
        while end < begin + most and size < CHUNK_BYTES:
            if not one:
                s = utf8((<list>subjects)[end], &subject_size)
            frame = &self.rows[end - begin]
            number += 1
            self.describe(
                frame, s, subject_size, number,
                BATCH_START if number == 1 else BATCH_APPEND,
            )
            publish_bytes(
                frame, None if blocks is None else <bytes>blocks[end], <bytes>payloads[end]
            )
            way += frame.block_size + frame.data_size
            if way > self.window and end > begin:
                number -= 1
                break
            size += publish_size(frame)
            end += 1
        self.make_room(end - begin)
        out = self.write_buffer.lock_and_reserve_in(
            size, TRANSIENT, section, <PyObject*>self
        )
        if out == NULL:
            return begin
        for i in range(end - begin):
            out = self.write_buffer.write_locked(out, &self.rows[i])
        self.counts.count_sent(number)
        self.write_buffer.commit_and_unlock(NOW)
        for i in range(begin, end):
            self.push(
                subjects if one else (<list>subjects)[i], <bytes>payloads[i],
                None if blocks is None else <bytes>blocks[i],
                BATCH_APPEND, ids is not None and PyBytes_AS_STRING(ids)[i],
            )
        return end

    def is_unacknowledged(self, subject: str) -> bool:
        """Return whether a message to `subject` is unacknowledged."""
        cdef RetainedMessage* one
        cdef size_t i
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            for i in range(self.count):
                one = &self.kept[(self.head + i) & (self.capacity - 1)]
                if <object>one.subject == subject:
                    return True
            return False
        finally:
            leave(&section)

    def ping(self) -> bool:
        """Request the last flow message, and keep the batch alive. False if not connected.

        The ping has the number of the last message written, so that a lost ping is no gap.
        """
        cdef uint64_t sent
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            sent = self.counts.sent_now()
            return sent > 0 and self.send_control(sent, BATCH_PING)
        finally:
            leave(&section)

    def end(self) -> bool:
        """End the batch without storing anything more. Return False if not connected."""
        cdef uint64_t sent
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            sent = self.counts.sent_now()
            return sent > 0 and self.send_control(sent + 1, BATCH_END)
        finally:
            leave(&section)

    cdef bint send_control(self, uint64_t number, int operation) except -1:
        cdef PublishFrame frame
        self.describe(
            &frame, PyBytes_AS_STRING(self.control), PyBytes_GET_SIZE(self.control),
            number, operation,
        )
        # Urgent, so it never waits for room, because the I/O thread writes these, too.
        return self.write_buffer.write_frame(&frame, URGENT, NOW)

    cdef inline int make_room(self, size_t more) except -1:
        return self.grow(more) if self.count + more > self.capacity else 0

    cdef int grow(self, size_t more) except -1:
        cdef size_t capacity = self.capacity if self.capacity else 1024
        cdef size_t i
        cdef RetainedMessage* resized
        while capacity < self.count + more:
            capacity *= 2
        resized = <RetainedMessage*>PyMem_RawMalloc(capacity * sizeof(RetainedMessage))
        if resized == NULL:
            raise MemoryError
        for i in range(self.count):
            resized[i] = self.kept[(self.head + i) & (self.capacity - 1)]
        PyMem_RawFree(self.kept)
        self.kept = resized
        self.capacity = capacity
        self.head = 0
        return 0

    cdef inline void push(
        self, object subject, bytes data, bytes block, int operation, bint repeatable
    ) noexcept:
        cdef RetainedMessage* one = &self.kept[
            (self.head + self.count) & (self.capacity - 1)
        ]
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
        """Release the oldest messages while more bytes are kept than allowed."""
        cdef RetainedMessage* slot
        cdef RetainedMessage one
        while self.kept_bytes > self.keep:
            slot = &self.kept[(self.head + self.dropped) & (self.capacity - 1)]
            one = slot[0]
            # Mark it before dropping a reference, which may run other code.
            slot.data = NULL
            self.dropped += 1
            self.free_message(&one)

    cdef void release(self, size_t n) noexcept:
        """Release the first `n` unacknowledged messages."""
        cdef RetainedMessage one
        while n:
            n -= 1
            # Take it off the list before dropping a reference, which may run other code.
            one = self.kept[self.head]
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
            self.under_way -= one.size
            self.unrepeatable -= not one.repeatable
            if one.data == NULL:
                self.dropped -= 1
            else:
                self.free_message(&one)
            Py_DECREF(<object>one.subject)

    cdef void free_message(self, RetainedMessage* one) noexcept:
        self.kept_bytes -= one.size
        Py_DECREF(<object>one.data)
        if one.block != NULL:
            Py_DECREF(<object>one.block)

    cdef inline FastPubAck ack(self):
        cdef FastPubAck ack = FastPubAck.__new__(FastPubAck)
        ack.batch_sequence = self.counts.base_now() + self.counts.sent_now()
        ack.ack_sequence = self.counts.base_now() + self.counts.received_now()
        return ack

    @property
    def last(self) -> FastPubAck:
        """The result of `write` for the last message written."""
        return self.ack()

    cdef inline bint may_write(self, size_t size) noexcept:
        return (
            self.counts.sent_now() < self.limit
            and (self.under_way + size <= self.window or self.count == 0)
            and self.answers.count_now() == 0 and not load_int_relaxed(&self.answers.over)
        )

    cdef inline int check_size(self, bytes payload, bytes block) except -1:
        return self.write_buffer.check_size(size_with(payload, block))

    cdef bint put(
        self, const char* s, Py_ssize_t subject_size, bytes block, bytes payload,
        int operation, Section* section,
    ) except -1:
        cdef uint64_t number = self.counts.sent_now() + 1
        cdef PublishFrame frame
        cdef char* out
        if number == 1 and operation == BATCH_APPEND:
            operation = BATCH_START
        self.describe(&frame, s, subject_size, number, operation)
        publish_bytes(&frame, block, payload)
        out = self.write_buffer.lock_and_reserve_in(
            publish_size(&frame), TRANSIENT, section, <PyObject*>self
        )
        if out == NULL:
            return False
        self.write_buffer.write_locked(out, &frame)
        # Count it first, because the connection may be lost during the send, and the loss
        # counts what was sent.
        self.counts.count_sent(number)
        self.write_buffer.commit_and_unlock(CHUNKED)
        return True

    cdef inline void describe(
        self, PublishFrame* frame, const char* s, Py_ssize_t subject_size, uint64_t number,
        int operation,
    ) noexcept:
        """Describe a message with the reply `prefix.id.flow.gaps.number.operation.$FI`."""
        publish_to(frame, s, subject_size)
        frame.reply = PyBytes_AS_STRING(self.reply)
        frame.reply_size = PyBytes_GET_SIZE(self.reply)
        frame.number = number
        frame.ending = OPERATIONS + OPERATION_SIZE * operation
        frame.ending_size = OPERATION_SIZE


@cython.no_gc_clear  # a finalizer may still add
cdef class FastIngestBase:
    """The part of `FastIngest` that runs once for each message."""

    cdef readonly IngestWriter _writer

    def __init__(self, writer: IngestWriter) -> None:
        self._writer = writer

    @cython.annotation_typing(False)
    def add(
        self, subject: str, data: "bytes | bytearray | memoryview" = b"", **options: object
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
        cdef bytes block = None
        cdef bint repeatable = False
        cdef FastPubAck ack
        if options:
            msg_id = options.get("msg_id")
            if msg_id is not None and len(options) == 1:
                # The most frequent option takes the shortest path.
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
