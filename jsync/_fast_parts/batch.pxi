# Messages of atomic batches (ADR-50): encoded but for what is known when they are sent.

cdef struct Trailer:  # what a frame has besides its message
    const char* reply
    const char* commit
    Py_ssize_t reply_size, commit_size


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
        cdef bytes fixed = header, own = b"NATS/1.0\r\n\r\n"
        cdef char number[24]
        cdef char* out
        cdef Py_ssize_t own_size, size
        check_buffer(data)
        if headers:
            own = encode_headers(headers)
        self.sequence = sequence
        self.subject = subject
        self.utf8_subject = utf8(subject, &self.subject_size)
        self.data = data if PyBytes_CheckExact(data) else PyBytes_FromObject(data)
        own_size = PyBytes_GET_SIZE(own) - 2  # its end comes when it is sent
        size = write_number(number, self.sequence) - number
        self.block = PyBytes_FromStringAndSize(
            NULL, own_size + PyBytes_GET_SIZE(fixed) + size + 2
        )
        out = put(PyBytes_AS_STRING(self.block), PyBytes_AS_STRING(own), own_size)
        out = put(out, PyBytes_AS_STRING(fixed), PyBytes_GET_SIZE(fixed))
        out = put(out, number, size)
        put(out, b"\r\n", 2)

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
