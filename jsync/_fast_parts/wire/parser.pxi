# From bytes to frames. The parser owns its buffer, remembers how far it has searched it,
# and moves the payload of a large message once, into the object that will hold it.

cdef enum:
    CONTROL_LINE = 64 * 1024
    MAX_LINE = 1024 * 1024  # INFO and -ERR
    READ_SIZE = 256 * 1024
    MAX_FIELDS = 5  # of a message line

MAX_CONTROL_LINE = CONTROL_LINE

cdef enum DeliveryMode:
    SKIPPED
    PLAIN
    JETSTREAM
    COLUMNAR


cdef class Parser(AbstractIOLoop):
    cdef char* buffer
    cdef size_t capacity, begin, end, searched
    cdef uint64_t max_message
    cdef str fault  # why it refuses to continue

    # The message whose payload is not complete yet.
    cdef Msg message
    cdef uint64_t sid
    cdef size_t block_size, total, have  # `have` is of `total` + 2, the CRLF included
    cdef bint in_payload

    cdef WriteBuffer write_buffer  # messages answer through this one
    cdef uint64_t in_msgs, in_bytes
    cdef Frames frames  # of a WebSocket, if the stream comes in frames
    cdef object inflate  # decompresses a part of a message, None: no part is compressed

    def __cinit__(self):
        self.events = []

    def __init__(
        self, max_message: int = 64 << 20, *, framed: bool = False,
        inflate: "Callable[[bytes, bool], Iterable[bytes]] | None" = None,
    ) -> None:
        self.max_message = min(max_message, 1 << 62)
        self.frames.on = framed
        self.inflate = inflate

    def __dealloc__(self):
        PyMem_RawFree(self.buffer)

    # Decided by a subclass: which messages are wanted, and where they go. ---------------

    cdef DeliveryMode delivery_mode(self, uint64_t sid) noexcept:
        return PLAIN

    cdef int complete(self, Msg msg) except -1:
        self.events.append(("MSG", (self.sid, msg)))
        return 0

    cdef bint take_row(self, Frame* frame) except -1:
        """Take a columnar message without an object. Return False if it needs one."""
        return False

    # --------------------------------------------------------------------------------

    def feed(self, data: "bytes | bytearray | memoryview") -> list:
        """Parse more of the stream. Return the events in it, each of them once."""
        self.events = []
        self.absorb(data)
        events, self.events = self.events, []
        return events

    cdef int absorb(self, object data) except -1:
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.check_usable()
            self.take_in(<const char*>view.buf, view.len, self.frames.on)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int take_in(self, const char* s, size_t size, bint framed) except -1:
        cdef size_t at = 0, n
        while at < size:
            self.room()
            n = min(self.capacity - self.end, size - at)
            memcpy(self.buffer + self.end, s + at, n)
            at += n
            if framed:
                self.unframe(n)
            else:
                self.end += n
                self.parse()
        return 0

    cdef inline int arrived(self, size_t n) except -1:
        """Parse `n` bytes that came behind `end`."""
        if self.frames.on:
            return self.unframe(n)
        self.end += n
        return self.parse()

    cdef int unframe(self, size_t n) except -1:
        """Parse the content of the frames among `n` bytes that came behind `end`."""
        cdef char* s = self.buffer + self.end
        cdef char* end
        cdef size_t part
        cdef Frames* frames = &self.frames
        cdef bint inflates = self.inflate is not None
        cdef bytes held
        if inflates:  # the content of the frames takes their place
            held = PyBytes_FromStringAndSize(s, n)
            s = PyBytes_AS_STRING(held)
        end = s + n
        while (s < end or frames.inside) and not frames.closed:
            if not frames.inside:
                s += frames_head(frames, s, end - s, inflates)
                if frames.fault != NULL:
                    words = decode_text(frames.fault, strlen(frames.fault))
                    self.refuse(f"WebSocket: {words}")
                continue
            part = min(<uint64_t>(end - s), frames.left)
            frames.left -= part
            if frames.opcode >= CLOSING:
                memcpy(frames.control + frames.control_size, s, part)
                frames.control_size += part
                if frames.left == 0:
                    self.controlled()
            elif frames.compressed:
                self.inflated(s, part, frames.final and frames.left == 0)
            elif part == 0:
                pass
            elif inflates:
                self.take_in(s, part, False)
            else:
                self.slide(s, part)
            s += part
            if frames.left:
                break
            frames.inside = False
        return 0

    cdef int slide(self, char* s, size_t n) except -1:
        """Parse `n` bytes further on in the buffer, and move the unparsed rest up to them.

        The rest is no more than the beginning of a line, while the new bytes may be many.
        """
        cdef size_t left = self.end - self.begin
        if left:
            memmove(s - left, self.buffer + self.begin, left)
        self.begin = s - left - self.buffer
        self.end = self.begin + left + n
        return self.parse()

    cdef int inflated(self, const char* s, size_t n, bint last) except -1:
        for part in self.inflate(PyBytes_FromStringAndSize(s, n), last):
            self.take_in(PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part), False)
        return 0

    cdef int controlled(self) except -1:
        """Handle a whole control frame. The write buffer sends the answer, if any."""
        cdef const char* s = self.frames.control
        cdef int n = self.frames.control_size
        if self.frames.opcode == PONGED:
            return 0
        if self.frames.opcode == PINGED:
            if self.write_buffer is not None:
                self.write_buffer.queue_control(PONGED, s, n)
            return 0
        self.frames.closed = True
        if self.write_buffer is not None:
            self.write_buffer.queue_control(CLOSING, s, n if n < 2 else 2)
        words = "without a reason"
        if n >= 2:
            code = (<unsigned char>s[0]) << 8 | <unsigned char>s[1]
            words = f"{code} {decode_text(s + 2, n - 2)}".strip()
        self.events.append((EVENT_BROKEN, ConnectionLostError(
            f"the server closed the WebSocket: {words}"
        )))
        return 0

    cdef int check_usable(self) except -1:
        if self.fault is not None:
            raise ProtocolError(self.fault)
        return 0

    cdef int refuse(self, str why) except -1:
        self.fault = why
        self.message = None
        raise ProtocolError(why)

    cdef int clear(self) except -1:
        """Forget everything: the next byte begins a new stream, without frames."""
        self.begin = self.end = self.searched = 0
        memset(&self.frames, 0, sizeof(Frames))
        self.inflate = None
        self.in_payload = False
        self.message = None
        self.fault = None
        return 0

    cdef int room(self) except -1:
        """Make room behind `end`. The rest of an incomplete line moves to the front."""
        if self.begin:
            memmove(self.buffer, self.buffer + self.begin, self.end - self.begin)
            self.end -= self.begin
            self.begin = 0
        if self.end == self.capacity:
            self.grow()
        return 0

    cdef int grow(self) except -1:
        cdef size_t capacity = self.capacity * 2 if self.capacity else READ_SIZE
        cdef void* resized = PyMem_RawRealloc(self.buffer, capacity)
        if resized == NULL:
            raise MemoryError
        self.buffer = <char*>resized
        self.capacity = capacity
        return 0

    cdef int parse(self) except -1:
        cdef const char* line
        cdef const char* newline
        cdef size_t n, longest
        while self.begin < self.end:
            if self.in_payload:
                if not self.collect():
                    return 0
                continue
            line = self.buffer + self.begin
            n = self.end - self.begin
            newline = <const char*>memchr(line + self.searched, c"\n", n - self.searched)
            longest = CONTROL_LINE if line[0] == c"M" or line[0] == c"H" else MAX_LINE
            if newline == NULL:
                if n > longest:
                    self.refuse(f"a control line is longer than {longest} bytes")
                self.searched = n
                return 0
            n = newline - line
            self.searched = 0
            if n > longest:
                self.refuse(f"a control line is longer than {longest} bytes")
            if n == 0 or line[n - 1] != c"\r":
                self.refuse(f"a line does not end in CRLF: {excerpt(line, n)}")
            self.begin += n + 1
            self.dispatch(line, n - 1)
        self.begin = self.end = 0
        return 0

    cdef int dispatch(self, const char* line, size_t n) except -1:
        if line[0] == c"M" and n > 4 and memcmp(line, b"MSG", 3) == 0 and is_blank(line[3]):
            self.message_line(line + 4, n - 4, False)
        elif (
            line[0] == c"H" and n > 5 and memcmp(line, b"HMSG", 4) == 0
            and is_blank(line[4])
        ):
            self.message_line(line + 5, n - 5, True)
        elif n == 4 and memcmp(line, b"PING", 4) == 0:
            self.events.append((EVENT_PING, None))
        elif n == 4 and memcmp(line, b"PONG", 4) == 0:
            self.events.append((EVENT_PONG, None))
        elif n == 3 and memcmp(line, b"+OK", 3) == 0:
            self.events.append((EVENT_OK, None))
        elif n >= 5 and memcmp(line, b"INFO", 4) == 0 and is_blank(line[4]):
            self.events.append((
                EVENT_INFO, PyBytes_FromStringAndSize(line + 5, n - 5)
            ))
        elif n >= 5 and memcmp(line, b"-ERR", 4) == 0 and is_blank(line[4]):
            text = decode_text(line + 5, n - 5).strip()
            if len(text) >= 2 and text.startswith("'") and text.endswith("'"):
                text = text[1:len(text) - 1]
            self.events.append((EVENT_ERR, text))
        else:
            self.refuse(f"not a line of the NATS protocol: {excerpt(line, n)}")
        return 0

    cdef int message_line(self, const char* s, size_t n, bint with_headers) except -1:
        """Read the line `subject sid [reply] [header size] total size` of a message."""
        cdef const char* token[MAX_FIELDS]
        cdef size_t size[MAX_FIELDS]
        cdef int count
        cdef int numbers = 2 if with_headers else 1
        cdef uint64_t block = 0, total = 0
        cdef DeliveryMode delivery_mode
        cdef Msg msg
        cdef Frame frame
        cdef const char* subject
        cdef const char* reply = NULL
        cdef size_t reply_size = 0
        count = split_at_spaces(s, n, token, size)
        if count == 0:
            count = split_at_blanks(s, n, token, size)
        if count != 2 + numbers and count != 3 + numbers:
            self.refuse(f"a message line has {count} fields: {excerpt(s, n)}")
        if count == 3 + numbers:
            reply = token[2]
            reply_size = size[2]
        if not (
            parse_number(token[1], size[1], &self.sid)
            and parse_number(token[count - 1], size[count - 1], &total)
            and (not with_headers or parse_number(
                token[count - 2], size[count - 2], &block
            ))
            and block <= total
        ):
            self.refuse(f"a message line has a bad number: {excerpt(s, n)}")
        if total > self.max_message:
            self.refuse(
                f"a message of {total} bytes is larger than the {self.max_message} "
                "that can be"
            )
        self.block_size = block
        self.total = total
        self.have = 0
        self.in_payload = True
        delivery_mode = self.delivery_mode(self.sid)
        if delivery_mode == SKIPPED:
            self.message = None
            return 0
        subject = token[0]
        if delivery_mode == COLUMNAR and self.is_whole():
            frame.subject, frame.subject_size = subject, size[0]
            frame.reply, frame.reply_size = reply, reply_size
            frame.block, frame.block_size = self.buffer + self.begin, block
            frame.data, frame.data_size = frame.block + block, total - block
            if self.take_row(&frame):
                self.begin += total + 2
                self.in_payload = False
                store_number_relaxed(&self.in_msgs, self.in_msgs + 1)
                store_number_relaxed(&self.in_bytes, self.in_bytes + total)
                return 0
        if delivery_mode != PLAIN:
            msg = JetStreamMsg.__new__(JetStreamMsg)
        else:
            msg = Msg.__new__(Msg)
        msg.set_head(subject, size[0], reply, reply_size)
        msg.write_buffer = self.write_buffer
        msg.payload = PyBytes_FromStringAndSize(NULL, total - block)
        if block:
            msg.block = PyBytes_FromStringAndSize(NULL, block)
        self.message = msg
        return 0

    cdef inline bint is_whole(self) noexcept:
        """Return whether all of the payload is in the buffer, and ends in CRLF."""
        cdef const char* end = self.buffer + self.begin + self.total
        return (
            self.end - self.begin >= self.total + 2 and end[0] == c"\r" and end[1] == c"\n"
        )

    cdef bint collect(self) except -1:
        """Move the bytes of the payload that have come. Return True when it is complete."""
        cdef size_t n = min(self.end - self.begin, self.total + 2 - self.have)
        cdef const char* s = self.buffer + self.begin
        cdef size_t part
        cdef Msg msg = self.message
        self.begin += n
        if self.have < self.block_size:
            part = min(n, self.block_size - self.have)
            if msg is not None:
                memcpy(PyBytes_AS_STRING(msg.block) + self.have, s, part)
            self.have += part
            s += part
            n -= part
        if n and self.have < self.total:
            part = min(n, self.total - self.have)
            if msg is not None:
                memcpy(
                    PyBytes_AS_STRING(msg.payload) + (self.have - self.block_size), s, part
                )
            self.have += part
            s += part
            n -= part
        while n:
            if s[0] != (c"\r" if self.have == self.total else c"\n"):
                self.refuse("a payload does not end in CRLF")
            self.have += 1
            s += 1
            n -= 1
        if self.have < self.total + 2:
            return False
        self.in_payload = False
        self.message = None
        store_number_relaxed(&self.in_msgs, self.in_msgs + 1)
        store_number_relaxed(&self.in_bytes, self.in_bytes + self.total)
        if msg is not None:
            self.complete(msg)
        return True


cdef int split_at_spaces(
    const char* s, size_t n, const char** token, size_t* size
) noexcept nogil:
    """Split a line at single spaces. Return the number of fields, 0 for any other line."""
    cdef const char* end = s + n
    cdef const char* space
    cdef int count = 0
    if n == 0 or memchr(s, c"\t", n) != NULL:
        return 0
    while True:
        space = <const char*>memchr(s, c" ", end - s)
        if space == NULL:
            space = end
        if space == s or count == MAX_FIELDS:
            return 0
        token[count] = s
        size[count] = space - s
        count += 1
        if space == end:
            return count
        s = space + 1
        if s == end:
            return 0


cdef int split_at_blanks(
    const char* s, size_t n, const char** token, size_t* size
) noexcept nogil:
    """Split a line at blanks. Return the number of fields, of which five are stored."""
    cdef size_t i = 0, a
    cdef int count = 0
    while True:
        while i < n and is_blank(s[i]):
            i += 1
        if i == n:
            return count
        a = i
        while i < n and not is_blank(s[i]):
            i += 1
        if count < MAX_FIELDS:
            token[count] = s + a
            size[count] = i - a
        count += 1


cdef str excerpt(const char* s, size_t n):
    return repr(PyBytes_FromStringAndSize(s, n if n < 60 else 60))[1:]
