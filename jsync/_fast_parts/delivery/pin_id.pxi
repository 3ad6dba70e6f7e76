# The pin id of a pinned client, which the messages to it carry (ADR-42).

cdef enum:
    PIN_NAME = 13  # of b"Nats-Pin-Id: "
    EMPTY_BLOCK = 12  # of b"NATS/1.0\r\n\r\n"


cdef Py_ssize_t pin_line(bytes block) noexcept:
    """Return the length of the `Nats-Pin-Id` line, which servers add at the end, or 0."""
    cdef const char* s
    cdef Py_ssize_t n, i
    if block is None:
        return 0
    s = PyBytes_AS_STRING(block)
    n = PyBytes_GET_SIZE(block) - 4  # where its \r\n\r\n begins
    i = n
    while i > 0 and s[i - 1] != c"\n":
        i -= 1
    if i == 0 or n - i <= PIN_NAME or memcmp(s + i, b"Nats-Pin-Id: ", PIN_NAME) != 0:
        return 0
    return n + 2 - i


cdef size_t pin_size(bytes block) noexcept:
    """Return by how many bytes that line has made a message larger."""
    cdef Py_ssize_t size = pin_line(block)
    if size and size + EMPTY_BLOCK == PyBytes_GET_SIZE(block):
        size += EMPTY_BLOCK  # the whole block was made for it
    return <size_t>size


@cython.final
cdef class PinId:
    """The id by which a server knows its pinned client (ADR-42), learned on arrival."""

    cdef bytes raw  # None: not pinned

    @property
    def id(self) -> str:
        """The id to send along with pulls. Empty when not pinned."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self.text()
        finally:
            leave(&section)

    cdef str text(self):
        if self.raw is None:
            return ""
        return decode_text(PyBytes_AS_STRING(self.raw), PyBytes_GET_SIZE(self.raw))

    def clear(self, refused: str) -> None:
        """Forget an id that the server has refused, but keep a newer one."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.text() == refused:
                self.raw = None
        finally:
            leave(&section)

    cdef int update(self, Msg msg) except -1:
        cdef Py_ssize_t size = pin_line(msg.block)
        cdef const char* at
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if size == 0:
                return 0
            at = PyBytes_AS_STRING(msg.block) + PyBytes_GET_SIZE(msg.block) - 2 - size
            at += PIN_NAME
            size -= PIN_NAME + 2
            if (
                self.raw is None or PyBytes_GET_SIZE(self.raw) != size
                or memcmp(PyBytes_AS_STRING(self.raw), at, size) != 0
            ):
                self.raw = PyBytes_FromStringAndSize(at, size)
            return 0
        finally:
            leave(&section)

    def __repr__(self) -> str:
        return f"<PinId {self.id or 'none'}>"
