# Messages of atomic batches (ADR-50): encoded but for what is known when they are sent.

cdef struct Trailer:  # what a frame has besides its message
    const char* reply
    const char* commit
    Py_ssize_t reply_size, commit_size


cdef bytes NO_HEADERS = b"NATS/1.0\r\n\r\n"


@cython.final
@cython.freelist(64)
cdef class BatchEntry:
    """A message of an atomic batch."""

    cdef readonly uint64_t sequence
    cdef readonly object subject
    cdef readonly bytes data
    cdef bytes block  # the header block, without its end
    cdef const char* utf8_subject  # the subject has it
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
        # Its end comes when it is sent.
        cdef Py_ssize_t own_size = PyBytes_GET_SIZE(own) - 2
        cdef Py_ssize_t size = write_number(number, sequence) - number
        self.sequence = sequence
        self.subject = subject
        self.utf8_subject = utf8(subject, &self.subject_size)
        self.data = <bytes>data if PyBytes_CheckExact(data) else payload_bytes(data)
        self.block = PyBytes_FromStringAndSize(
            NULL, own_size + PyBytes_GET_SIZE(header) + size + 2
        )
        out = put(PyBytes_AS_STRING(self.block), PyBytes_AS_STRING(own), own_size)
        out = put(out, PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))
        out = put(out, number, size)
        put(out, b"\r\n", 2)
        return 0

    def __repr__(self) -> str:
        return f"<BatchEntry {self.sequence} on {self.subject!r}, {self.size} bytes>"

    @property
    def size(self) -> int:
        return self.sized()

    cdef inline Py_ssize_t sized(self) noexcept:
        return PyBytes_GET_SIZE(self.block) + 2 + PyBytes_GET_SIZE(self.data)

    def frame(self, reply: str = "", commit: bytes = b"") -> bytes:
        cdef Trailer trailer
        cdef bytes frame
        trailer.reply = utf8(reply, &trailer.reply_size)
        trailer.commit = PyBytes_AS_STRING(commit)
        trailer.commit_size = PyBytes_GET_SIZE(commit)
        frame = PyBytes_FromStringAndSize(NULL, self.frame_size(&trailer))
        self.put(PyBytes_AS_STRING(frame), &trailer)
        return frame

    cdef Py_ssize_t frame_size(self, Trailer* trailer) noexcept:
        cdef char line[48]
        return (
            5 + self.subject_size + 1
            + (trailer.reply_size + 1 if trailer.reply_size else 0)
            + self.put_sizes(line, trailer) + self.sized() + trailer.commit_size + 2
        )

    cdef Py_ssize_t put_sizes(self, char* line, Trailer* trailer) noexcept:
        cdef Py_ssize_t headers = PyBytes_GET_SIZE(self.block) + trailer.commit_size + 2
        return put_sizes(line, True, headers, PyBytes_GET_SIZE(self.data))

    cdef char* put(self, char* out, Trailer* trailer) noexcept:
        """Write the HPUB, the `commit` header behind the message's own."""
        out = put(out, b"HPUB ", 5)
        out = put(out, self.utf8_subject, self.subject_size)
        out = put(out, b" ", 1)
        if trailer.reply_size:
            out = put(out, trailer.reply, trailer.reply_size)
            out = put(out, b" ", 1)
        out += self.put_sizes(out, trailer)
        out = put(out, PyBytes_AS_STRING(self.block), PyBytes_GET_SIZE(self.block))
        out = put(out, trailer.commit, trailer.commit_size)
        out = put(out, b"\r\n", 2)
        out = put(out, PyBytes_AS_STRING(self.data), PyBytes_GET_SIZE(self.data))
        return put(out, b"\r\n", 2)


@cython.final
cdef class BatchMessages:
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
            f"<BatchMessages {self.added} added, {self.sent} sent, "
            f"{len(self.waiting)} waiting>"
        )

    @cython.annotation_typing(False)
    def add(
        self,
        subject: str,
        data: "bytes | bytearray | memoryview",
        headers: "HeadersLike | None",
        max_payload: int,
    ) -> BatchEntry:
        entry = self.checked(subject, data, headers, max_payload)
        self.waiting.append(entry)
        self.count(entry)
        return entry

    def add_plain(self, messages: "Iterator[object]", max_payload: int) -> tuple:
        cdef BatchEntry entry
        cdef tuple pair
        for message in messages:
            if type(message) is not tuple or len(<tuple>message) != 2:
                return (message,)
            pair = <tuple>message
            entry = self.checked(pair[0], pair[1], None, max_payload)
            self.waiting.append(entry)
            self.count(entry)
        return ()

    cdef BatchEntry checked(self, subject, data, headers, size_t max_payload):
        """The next message; raises for what the server would refuse."""
        cdef BatchEntry entry
        cdef Py_ssize_t n = 0
        cdef size_t size
        if subject is not self.last_subject and subject not in self.subjects:
            publish_subject(subject, &n)
        if self.added >= self.most:
            raise ConfigError(
                f"a batch has at most {self.most} messages; a server that is set up for "
                "more takes them with max_messages=None"
            )
        entry = BatchEntry.__new__(BatchEntry)
        entry.encode(self.header, self.added + 1, subject, data, headers)
        size = entry.sized() + self.commit_size
        if size > max_payload:
            raise MaxPayloadError(
                f"{size} bytes of headers and payload, those of the batch included, "
                f"are more than the server's max_payload of {max_payload}"
            )
        return entry

    cdef int count(self, BatchEntry entry) except -1:
        if entry.subject is not self.last_subject:
            self.subjects.add(entry.subject)
            self.last_subject = entry.subject
        self.added = entry.sequence
        return 0

    def due(self, *, last: bool) -> list:
        entries = self.waiting
        self.waiting = [] if last or not entries else [entries.pop()]
        return entries

    def unstored(self, sequence: int) -> BatchEntry:
        return BatchEntry(self.header, sequence, self.last_subject)


@cython.final
cdef class Turn:
    """Lets one thread at a time into a batch, and tells the others."""

    cdef bint taken

    def __repr__(self) -> str:
        return f"<Turn {'taken' if self.taken else 'free'}>"

    cdef int take(self) except -1:
        if self.taken:
            raise ConcurrentUseError(
                "another call on this batch is under way, or was interrupted"
            )
        self.taken = True
        return 0

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *exc_info: object) -> None:
        self.taken = False


@cython.no_gc_clear  # a finaliser may still add
cdef class AtomicAdder:
    """The part of `AtomicBatch` that is done once a message."""

    cdef readonly BatchMessages _messages
    cdef readonly Turn _turn
    cdef Outbox outbox
    cdef uint64_t flowing  # on which connection of the outbox; 0: each has to be looked at

    def __init__(self, messages: BatchMessages, outbox: Outbox) -> None:
        self._messages = messages
        self._turn = Turn()
        self.outbox = outbox

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
        cdef BatchMessages messages = self._messages
        cdef BatchEntry entry, held
        if (
            options or ack or timeout is not None
            or self.flowing == 0 or self.flowing != self.outbox.connections
            or PyList_GET_SIZE(messages.waiting) != 1
        ):
            self._add(subject, data, options, ack, timeout)
            return
        self._turn.take()
        try:
            held = <BatchEntry>messages.waiting[0]
            entry = messages.checked(subject, data, None, self.outbox.max_payload)
            messages.count(entry)
            messages.waiting.append(entry)
            try:
                if put_entry(self.outbox, held):
                    messages.sent = held.sequence
                    del messages.waiting[0]
                else:
                    self._send_due(False, timeout)
            except BaseException as error:
                self._fail(error)
                raise
        finally:
            self._turn.taken = False


cdef bint put_entry(Outbox outbox, BatchEntry entry) except -1:
    """Write one that asks for no answer, in company; False: not connected."""
    cdef Trailer plain
    cdef char* out
    memset(&plain, 0, sizeof(plain))
    out = outbox.begin(entry.frame_size(&plain), False, False)
    if out == NULL:
        return False
    entry.put(out, &plain)
    outbox.out_msgs += 1
    outbox.out_bytes += entry.sized()
    outbox.finish_lazy(SELF_SEND_BYTES, True)
    return True


def entries_within(entries: list, begin: int, size: int) -> int:
    """The end of the entries from `begin` on that make up a write of about `size` bytes."""
    cdef Py_ssize_t end = begin, count = len(entries), left = size
    while end < count and left > 0:
        left -= (<BatchEntry?>entries[end]).sized()
        end += 1
    return end


def write_entries(
    outbox: Outbox,
    entries: list,
    begin: int,
    end: int,
    *,
    urgent: bool,
    first_reply: str = "",
    reply: str = "",
    commit: bytes = b"",
) -> None:
    # A copy: while the buffer is full others run.
    cdef list written = entries[begin:end]
    cdef Py_ssize_t last = len(written) - 1, i
    cdef size_t total = 0, size = PyBytes_GET_SIZE(commit)
    cdef Trailer opening, plain, closing
    cdef Trailer* trailer
    cdef BatchEntry entry
    cdef char* out
    memset(&plain, 0, sizeof(plain))
    opening = closing = plain
    opening.reply = utf8(first_reply, &opening.reply_size)
    closing.reply = utf8(reply, &closing.reply_size)
    closing.commit = PyBytes_AS_STRING(commit)
    closing.commit_size = PyBytes_GET_SIZE(commit)
    for i in range(last + 1):
        entry = <BatchEntry?>written[i]
        trailer = &closing if i == last else (&plain if i else &opening)
        total += entry.frame_size(trailer)
        size += entry.sized()
    out = outbox.begin(total, False, False)
    if out == NULL:
        raise ConnectionLostError("not connected: reconnecting")
    # With the mutex held nothing may be raised, and no reference dropped.
    for i in range(last + 1):
        trailer = &closing if i == last else (&plain if i else &opening)
        out = (<BatchEntry>PyList_GET_ITEM(written, i)).put(out, trailer)
    outbox.out_msgs += last + 1
    outbox.out_bytes += size
    outbox.finish(urgent)
