# Messages of atomic batches (ADR-50), encoded except for the parts known at the send.

cdef bytes NO_HEADERS = b"NATS/1.0\r\n\r\n"


@cython.final
@cython.freelist(64)
cdef class BatchMessage:
    """A message of an atomic batch."""

    cdef readonly uint64_t sequence
    cdef readonly object subject
    cdef readonly bytes data
    cdef bytes block
    cdef const char* utf8_subject  # `subject` keeps it alive
    cdef Py_ssize_t subject_size

    @cython.annotation_typing(False)
    def __init__(
        self,
        header: bytes,
        sequence: int,
        subject: str,
        data: "bytes | bytearray | memoryview" = b"",
        headers: "HeadersLike | None" = None,
    ) -> None:
        self.encode(header, sequence, subject, data, headers)

    cdef int encode(
        self, bytes header, uint64_t sequence, object subject, object data, object headers
    ) except -1:
        cdef bytes own = encode_headers(headers) if headers else NO_HEADERS
        cdef char number[24]
        cdef char* out
        # Without its final line break, which comes behind the header of the batch.
        cdef Py_ssize_t own_size = PyBytes_GET_SIZE(own) - 2
        cdef Py_ssize_t size = write_number(number, sequence) - number
        self.sequence = sequence
        self.subject = subject
        self.utf8_subject = utf8(subject, &self.subject_size)
        self.data = <bytes>data if PyBytes_CheckExact(data) else payload_bytes(data)
        self.block = PyBytes_FromStringAndSize(
            NULL, own_size + PyBytes_GET_SIZE(header) + size + 4
        )
        out = put(PyBytes_AS_STRING(self.block), PyBytes_AS_STRING(own), own_size)
        out = put(out, PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))
        out = put(out, number, size)
        put(out, b"\r\n\r\n", 4)
        return 0

    def __repr__(self) -> str:
        return f"<BatchMessage {self.sequence} on {self.subject!r}, {self.size} bytes>"

    @property
    def size(self) -> int:
        return self.sized()

    cdef inline Py_ssize_t sized(self) noexcept:
        return PyBytes_GET_SIZE(self.block) + PyBytes_GET_SIZE(self.data)

    def frame(self, reply: str = "", commit: bytes = b"") -> bytes:
        cdef Py_ssize_t reply_size = 0
        cdef const char* r = utf8(reply, &reply_size)
        cdef bytes block = self.block_with(commit)
        cdef bytes frame
        cdef PublishFrame publish
        self.describe(&publish, block, r, reply_size)
        frame = PyBytes_FromStringAndSize(NULL, publish_size(&publish))
        put_publish(PyBytes_AS_STRING(frame), &publish)
        return frame

    cdef bytes block_with(self, bytes commit):
        """Return its header block with the header `commit` added."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.block) - 2
        if not commit:
            return self.block
        return b"%b%b\r\n" % (self.block[:size], commit)

    cdef inline void describe(
        self, PublishFrame* publish, bytes block, const char* reply, Py_ssize_t reply_size
    ) noexcept:
        publish_to(publish, self.utf8_subject, self.subject_size)
        publish_bytes(publish, block, self.data)
        if reply_size:
            publish.reply = reply
            publish.reply_size = reply_size


@cython.final
cdef class BatchQueue:
    """The messages of an atomic batch: how many there are, and those that wait."""

    cdef bytes header
    cdef uint64_t most
    cdef size_t commit_size
    cdef readonly uint64_t added
    cdef public uint64_t sent
    cdef readonly list waiting
    cdef readonly object last_subject
    cdef readonly set subjects

    def __init__(self, header: bytes, most: int | None, commit_size: int) -> None:
        self.header = header
        self.most = UINT64_MAX if most is None else most
        self.commit_size = commit_size
        self.waiting = []
        self.subjects = set()
        self.last_subject = ""

    def __repr__(self) -> str:
        return (
            f"<BatchQueue {self.added} added, {self.sent} sent, "
            f"{len(self.waiting)} waiting>"
        )

    @cython.annotation_typing(False)
    def add(
        self,
        subject: str,
        data: "bytes | bytearray | memoryview",
        headers: "HeadersLike | None",
        max_payload: int,
    ) -> BatchMessage:
        entry = self.checked(subject, data, headers, max_payload)
        self.waiting.append(entry)
        self.count(entry)
        return entry

    def add_plain(self, messages: "Iterator[object]", max_payload: int) -> tuple:
        cdef BatchMessage entry
        cdef tuple pair
        for message in messages:
            if type(message) is not tuple or len(<tuple>message) != 2:
                return (message,)
            pair = <tuple>message
            entry = self.checked(pair[0], pair[1], None, max_payload)
            self.waiting.append(entry)
            self.count(entry)
        return ()

    cdef BatchMessage checked(self, subject, data, headers, size_t max_payload):
        """Make the next message. Raises an error if the server would refuse it."""
        cdef BatchMessage entry
        cdef Py_ssize_t n = 0
        cdef size_t size
        if subject is not self.last_subject and subject not in self.subjects:
            publish_subject(subject, &n)
        if self.added >= self.most:
            raise ConfigError(
                f"a batch has at most {self.most} messages; a server that is set up for "
                "more takes them with max_messages=None"
            )
        entry = BatchMessage.__new__(BatchMessage)
        entry.encode(self.header, self.added + 1, subject, data, headers)
        size = entry.sized() + self.commit_size
        if size > max_payload:
            raise MaxPayloadError(
                f"{size} bytes of headers and payload, those of the batch included, "
                f"are more than the server's max_payload of {max_payload}"
            )
        return entry

    cdef int count(self, BatchMessage entry) except -1:
        if entry.subject is not self.last_subject:
            self.subjects.add(entry.subject)
            self.last_subject = entry.subject
        self.added = entry.sequence
        return 0

    def due(self, *, last: bool) -> list:
        entries = self.waiting
        self.waiting = [] if last or not entries else [entries.pop()]
        return entries

    def unstored(self, sequence: int) -> BatchMessage:
        return BatchMessage(self.header, sequence, self.last_subject)


@cython.final
cdef class ThreadGuard:
    """Lets one thread at a time into a batch, and raises an error in the others."""

    cdef int taken

    def __repr__(self) -> str:
        return f"<ThreadGuard {'taken' if self.taken else 'free'}>"

    cdef int take(self) except -1:
        if swap_int(&self.taken, True):
            raise ConcurrentUseError(
                "another call on this batch is under way, or was interrupted"
            )
        return 0

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *exc_info: object) -> None:
        store_int(&self.taken, False)


@cython.no_gc_clear  # a finalizer may still add
cdef class AtomicBatchBase:
    """The part of `AtomicBatch` that runs once for each message."""

    cdef readonly BatchQueue _messages
    cdef readonly ThreadGuard _guard
    cdef WriteBuffer write_buffer
    cdef uint64_t flowing  # `connections` of the write buffer, 0: check each message

    def __init__(self, messages: BatchQueue, write_buffer: WriteBuffer) -> None:
        self._messages = messages
        self._guard = ThreadGuard()
        self.write_buffer = write_buffer

    def _flow(self, connections: int) -> None:
        self.flowing = connections

    @cython.annotation_typing(False)
    def add(
        self,
        subject: str,
        data: "bytes | bytearray | memoryview" = b"",
        *,
        ack: bool = False,
        timeout: float | None = None,
        **options: object,
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
        cdef BatchQueue messages = self._messages
        cdef BatchMessage entry, held
        if (
            options or ack or timeout is not None
            or self.flowing == 0
            or self.flowing != load_number_relaxed(&self.write_buffer.opened)
            or PyList_GET_SIZE(messages.waiting) != 1
        ):
            self._add(subject, data, options, ack, timeout)
            return
        self._guard.take()
        if PARALLEL and PyList_GET_SIZE(messages.waiting) != 1:
            # Another thread added a message between the check and the guard.
            store_int(&self._guard.taken, False)
            self._add(subject, data, options, ack, timeout)
            return
        try:
            held = <BatchMessage>messages.waiting[0]
            entry = messages.checked(
                subject, data, None, load_size_relaxed(&self.write_buffer.most_payload)
            )
            messages.count(entry)
            messages.waiting.append(entry)
            try:
                if put_entry(self.write_buffer, held):
                    messages.sent = held.sequence
                    del messages.waiting[0]
                else:
                    self._send_due(False, timeout)
            except BaseException as error:
                self._fail(error)
                raise
        finally:
            store_int(&self._guard.taken, False)


cdef bint put_entry(WriteBuffer write_buffer, BatchMessage entry) except -1:
    """Write an entry that requests no answer, in chunks. Return False if not connected."""
    cdef PublishFrame frame
    entry.describe(&frame, entry.block, NULL, 0)
    return write_buffer.write_frame(&frame, TRANSIENT, CHUNKED)


def entries_within(entries: list, begin: int, size: int) -> int:
    """Return the end of the entries from `begin` on that make up about `size` bytes."""
    cdef Py_ssize_t end = begin, count = len(entries), left = size
    while end < count and left > 0:
        left -= (<BatchMessage?>entries[end]).sized()
        end += 1
    return end


def write_entries(
    write_buffer: WriteBuffer,
    entries: list,
    begin: int,
    end: int,
    *,
    urgent: bool,
    first_reply: str = "",
    reply: str = "",
    commit: bytes = b"",
) -> None:
    # A copy, because other threads run while the buffer is full.
    cdef list written = entries[begin:end]
    cdef Py_ssize_t last = len(written) - 1, i
    cdef Py_ssize_t first_size = 0, reply_size = 0
    cdef const char* first_subject = utf8(first_reply, &first_size)
    cdef const char* reply_subject = utf8(reply, &reply_size)
    cdef size_t total = 0
    cdef BatchMessage entry
    cdef PublishFrame* frames
    cdef char* out
    cdef bytes closing
    if last < 0:
        return
    closing = (<BatchMessage?>written[last]).block_with(commit)
    frames = <PublishFrame*>PyMem_RawMalloc((last + 1) * sizeof(PublishFrame))
    if frames == NULL:
        raise MemoryError
    try:
        for i in range(last + 1):
            entry = <BatchMessage?>written[i]
            if i == last:
                entry.describe(&frames[i], closing, reply_subject, reply_size)
            else:
                entry.describe(&frames[i], entry.block, first_subject, first_size)
                first_size = 0
            total += publish_size(&frames[i])
        out = write_buffer.lock_and_reserve(total, TRANSIENT)
        if out == NULL:
            raise ConnectionLostError("not connected: reconnecting")
        for i in range(last + 1):
            out = write_buffer.write_locked(out, &frames[i])
        write_buffer.commit_and_unlock(NOW if urgent else AUTO)
    finally:
        PyMem_RawFree(frames)
