# Columns of messages, filled from the wire without an object for each.
#
# A chunk is plain memory with a count of its users, so that each of them can release it on
# any thread and without the GIL.

cdef extern from *:
    """
    static void jsync_hold(long* count) {
        __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
    }
    static int jsync_let_go(long* count) {
        return __atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL) == 0;
    }
    """
    void jsync_hold(long*) nogil
    bint jsync_let_go(long*) nogil

cdef enum:  # columns
    SUBJECTS
    PAYLOADS
    SEQUENCES
    TIMESTAMPS
    HEADERS
    COLUMNS_IN_ALL

cdef tuple COLUMN_NAMES = ("subject", "data", "sequence", "timestamp", "headers")

cdef enum:
    # Offsets have 32 bits. Text that is not UTF-8 may grow threefold when it is repaired.
    MAX_DATA = 0x7FFFFFFF
    MAX_TEXT = 0x1FFFFFFF
    FIRST_ROWS = 256
    FIRST_BYTES = 16 * 1024

cdef struct ValueBuffer:  # values of variable length, one behind the other
    int32_t* ends    # where each value begins, and then where the last one ends
    char* bytes
    size_t size, room

cdef struct ColumnChunk:
    long holders
    ColumnChunk* next
    size_t rows, room
    size_t wire          # bytes, as the server counts them
    uint64_t* sequences
    int64_t* timestamps
    ValueBuffer subjects, payloads, blocks, replies
    bint plain           # all subjects are ASCII
    uint64_t highest     # highest stream sequence
    size_t highest_row
    # The headers, once the chunk is taken and its blocks are read. The entries of a row lie
    # between two `entry_ends`. Each has a name, and its values between two `value_ends`.
    unsigned char* has_headers
    size_t without_headers, unreadable, entries, entry_room, value_count, value_room
    int32_t* entry_ends
    int32_t* value_ends
    ValueBuffer names, values

cdef struct Frame:  # a message in the parser's buffer or in an object
    const char* subject
    const char* reply
    const char* block
    const char* data
    size_t subject_size, reply_size, block_size, data_size

cdef struct ColumnLayout:  # the columns that are wanted, in order
    int width
    int column[COLUMNS_IN_ALL]
    bint has[COLUMNS_IN_ALL]


cdef void values_free(ValueBuffer* values) noexcept nogil:
    PyMem_RawFree(values.ends)
    PyMem_RawFree(values.bytes)


cdef void chunk_unref(ColumnChunk* chunk) noexcept nogil:
    if chunk == NULL or not jsync_let_go(&chunk.holders):
        return
    PyMem_RawFree(chunk.sequences)
    PyMem_RawFree(chunk.timestamps)
    PyMem_RawFree(chunk.has_headers)
    PyMem_RawFree(chunk.entry_ends)
    PyMem_RawFree(chunk.value_ends)
    values_free(&chunk.subjects)
    values_free(&chunk.payloads)
    values_free(&chunk.blocks)
    values_free(&chunk.replies)
    values_free(&chunk.names)
    values_free(&chunk.values)
    PyMem_RawFree(chunk)


cdef bint resize(void** block, size_t size) noexcept nogil:
    cdef void* resized = PyMem_RawRealloc(block[0], size if size else 1)
    if resized == NULL:
        return False
    block[0] = resized
    return True


cdef bint values_rows(ValueBuffer* values, size_t rows) noexcept nogil:
    """Make room for the ends of `rows` values."""
    cdef bint first = values.ends == NULL
    if not resize(<void**>&values.ends, (rows + 1) * sizeof(int32_t)):
        return False
    if first:
        values.ends[0] = 0
    return True


cdef bint values_room(ValueBuffer* values, size_t more) noexcept nogil:
    cdef size_t room = values.room * 2 if values.room else FIRST_BYTES
    if values.size + more <= values.room:
        return True
    while room < values.size + more:
        room *= 2
    if not resize(<void**>&values.bytes, room):
        return False
    values.room = room
    return True


cdef inline void values_add(
    ValueBuffer* values, size_t row, const char* s, size_t n
) noexcept nogil:
    """Add a value. The caller has made room for it."""
    if n:
        memcpy(values.bytes + values.size, s, n)
        values.size += n
    values.ends[row + 1] = <int32_t>values.size


cdef bint values_fit(ValueBuffer* values) noexcept nogil:
    """Give back the room that is not used, if it is much."""
    if values.room - values.size > values.room // 4:
        if not resize(<void**>&values.bytes, values.size):
            return False
        values.room = values.size
    return True


cdef bint is_ascii(const char* s, size_t n) noexcept nogil:
    cdef uint64_t bits = 0, eight = 0
    cdef size_t i = 0
    while i + 8 <= n:
        memcpy(&eight, s + i, 8)
        bits |= eight
        i += 8
    while i < n:
        bits |= <unsigned char>s[i]
        i += 1
    return bits & 0x8080808080808080ULL == 0


cdef bytes repair_utf8(const char* s, size_t n):
    """Return the text as UTF-8, with U+FFFD instead of invalid bytes."""
    return decode_text(s, n).encode("utf-8", "surrogateescape").decode(
        "utf-8", "replace"
    ).encode()


cdef bint chunk_rows(
    ColumnChunk* chunk, ColumnLayout* shape, bint replies, size_t rows
) noexcept nogil:
    """Make room for `rows` rows."""
    if (
        shape.has[SEQUENCES]
        and not resize(<void**>&chunk.sequences, rows * sizeof(uint64_t))
        or shape.has[TIMESTAMPS]
        and not resize(<void**>&chunk.timestamps, rows * sizeof(int64_t))
        or shape.has[SUBJECTS] and not values_rows(&chunk.subjects, rows)
        or shape.has[PAYLOADS] and not values_rows(&chunk.payloads, rows)
        or shape.has[HEADERS] and not values_rows(&chunk.blocks, rows)
        or replies and not values_rows(&chunk.replies, rows)
    ):
        return False
    chunk.room = rows
    return True


# The headers ---------------------------------------------------------------------------

cdef enum:
    MAX_LINES = 64  # of a header block that is read without objects


cdef int add_text(ValueBuffer* values, size_t row, const char* s, size_t n) except -1:
    """Add text that must be UTF-8, and mend it if it is not."""
    cdef bytes text
    if not is_ascii(s, n):
        text = repair_utf8(s, n)
        s, n = PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
    if not values_room(values, n):
        raise MemoryError
    values_add(values, row, s, n)
    return 0


cdef int add_entry(ColumnChunk* chunk, const char* name, size_t size) except -1:
    cdef size_t room = chunk.entry_room * 2 if chunk.entry_room else FIRST_ROWS
    if chunk.entries == chunk.entry_room:
        if not resize(
            <void**>&chunk.value_ends, (room + 1) * sizeof(int32_t)
        ) or not values_rows(&chunk.names, room):
            raise MemoryError
        chunk.entry_room = room
        chunk.value_ends[0] = 0
    add_text(&chunk.names, chunk.entries, name, size)
    chunk.entries += 1
    return 0


cdef int add_header(ColumnChunk* chunk, const char* value, size_t size) except -1:
    """Add a value to the last entry."""
    cdef size_t room = chunk.value_room * 2 if chunk.value_room else FIRST_ROWS
    if chunk.value_count == chunk.value_room:
        if not values_rows(&chunk.values, room):
            raise MemoryError
        chunk.value_room = room
    add_text(&chunk.values, chunk.value_count, value, size)
    chunk.value_count += 1
    chunk.value_ends[chunk.entries] = <int32_t>chunk.value_count
    return 0


cdef int add_headers(ColumnChunk* chunk, const char* s, Py_ssize_t n) except -1:
    """Add the headers of one message, with the names in the order of first appearance."""
    cdef HeaderLine lines[MAX_LINES]
    cdef bint done[MAX_LINES]
    cdef int count = 0, i, j
    cdef Py_ssize_t begin, at = line_end(s, n, 0) + 1
    cdef bint found, whole = True
    while count < MAX_LINES:
        begin = at
        found = next_header(s, n, &at, &lines[count])
        if (lines[count].name - s if found else at) != begin:
            whole = False  # a line without a name and a colon was skipped
        if not found:
            break
        done[count] = False
        count += 1
    if count == MAX_LINES:
        return add_many_headers(chunk, s, n)
    if not whole or at < n and line_end(s, n, at) + 1 < n:
        chunk.unreadable += 1
    for i in range(count):
        if done[i]:
            continue
        add_entry(chunk, lines[i].name, lines[i].name_size)
        for j in range(i, count):
            if lines[j].name_size == lines[i].name_size and memcmp(
                lines[j].name, lines[i].name, lines[i].name_size
            ) == 0:
                done[j] = True
                add_header(chunk, lines[j].value, lines[j].value_size)
    return 0


cdef int add_many_headers(ColumnChunk* chunk, const char* s, Py_ssize_t n) except -1:
    cdef bytes raw
    _, _, headers, error = parse_headers(PyBytes_FromStringAndSize(s, n))
    if error is not None:
        chunk.unreadable += 1
    for name, values in headers._values.items():
        raw = name.encode("utf-8", "surrogateescape")
        add_entry(chunk, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        for value in values:
            raw = value.encode("utf-8", "surrogateescape")
            add_header(chunk, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
    return 0


cdef int chunk_headers(ColumnChunk* chunk) except -1:
    """Turn the header blocks into a column: null without a readable block."""
    cdef size_t row, bitmap = (chunk.rows + 7) // 8
    cdef const char* s
    cdef Py_ssize_t n
    chunk.has_headers = <unsigned char*>PyMem_RawCalloc(bitmap if bitmap else 1, 1)
    chunk.entry_ends = <int32_t*>PyMem_RawCalloc(chunk.rows + 1, sizeof(int32_t))
    if chunk.has_headers == NULL or chunk.entry_ends == NULL:
        raise MemoryError
    if chunk.blocks.size == 0:
        chunk.without_headers = chunk.rows
        return 0
    for row in range(chunk.rows):
        s = chunk.blocks.bytes + chunk.blocks.ends[row]
        n = chunk.blocks.ends[row + 1] - chunk.blocks.ends[row]
        if is_header_block(s, n):
            chunk.has_headers[row // 8] |= <unsigned char>(1 << (row % 8))
            add_headers(chunk, s, n)
        else:
            chunk.without_headers += 1
            chunk.unreadable += n > 0
        chunk.entry_ends[row + 1] = <int32_t>chunk.entries
    return 0


cdef int repair_subjects(ColumnChunk* chunk) except -1:
    cdef ValueBuffer whole = chunk.subjects
    cdef size_t row
    if chunk.plain or whole.ends == NULL:
        return 0
    memset(&chunk.subjects, 0, sizeof(ValueBuffer))
    try:
        if not values_rows(&chunk.subjects, chunk.rows):
            raise MemoryError
        for row in range(chunk.rows):
            add_text(
                &chunk.subjects, row, whole.bytes + whole.ends[row],
                whole.ends[row + 1] - whole.ends[row],
            )
    finally:
        values_free(&whole)
    chunk.plain = True
    return 0


cdef int chunk_finish(ColumnChunk* chunk, ColumnLayout* shape) except -1:
    """Complete a chunk: read the headers, mend the text, and give back spare memory."""
    repair_subjects(chunk)
    if shape.has[HEADERS]:
        chunk_headers(chunk)
    values_free(&chunk.blocks)
    memset(&chunk.blocks, 0, sizeof(ValueBuffer))
    if not (
        values_fit(&chunk.subjects) and values_fit(&chunk.payloads)
        and values_fit(&chunk.replies) and values_fit(&chunk.names)
        and values_fit(&chunk.values)
        and (chunk.room - chunk.rows <= chunk.room // 4 or chunk_rows(
            chunk, shape, chunk.replies.ends != NULL, chunk.rows
        ))
    ):
        raise MemoryError
    return 0


# The builder ---------------------------------------------------------------------------

@cython.final
cdef class RowBuffer:
    """Takes messages as rows of the wanted columns, in chunks of `max_rows`.

    With `acks` the rows can be acknowledged, and `together` means that one ack covers all
    before it. `limit` is the maximum number of bytes of payloads in a chunk, and of each
    other kind of data as well.
    """

    cdef ColumnLayout shape
    cdef bint acks, together
    cdef size_t max_rows, most_data, most_text
    cdef AckSubjectReader reader
    cdef ColumnChunk* first
    cdef ColumnChunk* last
    cdef size_t rows_hint, subject_hint, payload_hint, reply_hint

    def __init__(
        self,
        columns: "Sequence[str] | None" = None,
        *,
        max_rows: int = 0,
        acks: bool = False,
        together: bool = False,
        limit: int = MAX_DATA,
    ) -> None:
        cdef int i
        if isinstance(columns, str):
            columns = (columns,)
        for name in COLUMN_NAMES if columns is None else columns:
            if name not in COLUMN_NAMES:
                raise ConfigError(
                    f"columns: {name!r} is not one of {', '.join(COLUMN_NAMES)}"
                )
            i = COLUMN_NAMES.index(name)
            if self.shape.has[i]:
                raise ConfigError(f"columns: {name!r} is given twice")
            self.shape.has[i] = True
            self.shape.column[self.shape.width] = i
            self.shape.width += 1
        if self.shape.width == 0:
            raise ConfigError("columns: none given")
        self.max_rows = max_rows if max_rows else <size_t>INT64_MAX
        self.acks = acks
        self.together = together
        self.most_data = min(limit, MAX_DATA)
        self.most_text = min(limit, MAX_TEXT)
        self.rows_hint = FIRST_ROWS

    def __dealloc__(self):
        self.clear()

    def __repr__(self) -> str:
        return f"<RowBuffer {', '.join(self.names())}>"

    cdef list names(self):
        return [COLUMN_NAMES[self.shape.column[i]] for i in range(self.shape.width)]

    cdef void clear(self) noexcept:
        cdef ColumnChunk* chunk
        while self.first != NULL:
            chunk = self.first
            self.first = chunk.next
            chunk_unref(chunk)
        self.last = NULL

    cdef ColumnChunk* begin_empty(self) except NULL:
        cdef ColumnChunk* chunk = <ColumnChunk*>PyMem_RawCalloc(1, sizeof(ColumnChunk))
        if chunk == NULL:
            raise MemoryError
        chunk.holders = 1
        chunk.plain = True
        if not chunk_rows(chunk, &self.shape, self.acks, self.rows_hint):
            chunk_unref(chunk)
            raise MemoryError
        return chunk

    cdef ColumnChunk* begin(self) except NULL:
        """Begin a chunk, which is likely to become as large as the one before."""
        cdef ColumnChunk* chunk = self.begin_empty()
        if not (
            (not self.shape.has[SUBJECTS]
             or values_room(&chunk.subjects, self.subject_hint))
            and (not self.shape.has[PAYLOADS]
                 or values_room(&chunk.payloads, self.payload_hint))
            and (not self.acks or values_room(&chunk.replies, self.reply_hint))
        ):
            chunk_unref(chunk)
            raise MemoryError
        if self.first == NULL:
            self.first = chunk
        else:
            self.last.next = chunk
        self.last = chunk
        return chunk

    cdef int append(self, Frame* frame, AckNumbers* ack, size_t wire) except -1:
        cdef ColumnChunk* chunk = self.last
        cdef size_t row
        if chunk == NULL or chunk.rows >= self.max_rows or (
            chunk.rows and (
                chunk.payloads.size + frame.data_size > self.most_data
                or chunk.subjects.size + frame.subject_size > self.most_text
                or chunk.blocks.size + frame.block_size > self.most_text
                or chunk.replies.size + frame.reply_size > self.most_text
            )
        ):
            chunk = self.begin()
        row = chunk.rows
        if row == chunk.room and not chunk_rows(
            chunk, &self.shape, self.acks, min(row * 2, self.max_rows)
        ):
            raise MemoryError
        if self.shape.has[SUBJECTS]:
            if not values_room(&chunk.subjects, frame.subject_size):
                raise MemoryError
            values_add(&chunk.subjects, row, frame.subject, frame.subject_size)
            if chunk.plain:
                chunk.plain = is_ascii(frame.subject, frame.subject_size)
        if self.shape.has[PAYLOADS]:
            if not values_room(&chunk.payloads, frame.data_size):
                raise MemoryError
            values_add(&chunk.payloads, row, frame.data, frame.data_size)
        if self.shape.has[HEADERS]:
            if frame.block_size:
                if not values_room(&chunk.blocks, frame.block_size):
                    raise MemoryError
                values_add(&chunk.blocks, row, frame.block, frame.block_size)
            else:
                chunk.blocks.ends[row + 1] = <int32_t>chunk.blocks.size
        if self.acks:
            if not values_room(&chunk.replies, frame.reply_size):
                raise MemoryError
            values_add(&chunk.replies, row, frame.reply, frame.reply_size)
        if self.shape.has[SEQUENCES]:
            chunk.sequences[row] = ack.stream_sequence
        if self.shape.has[TIMESTAMPS]:
            chunk.timestamps[row] = <int64_t>ack.timestamp
        if ack.stream_sequence > chunk.highest:
            chunk.highest = ack.stream_sequence
            chunk.highest_row = row
        chunk.wire += wire
        chunk.rows = row + 1
        return 0

    cdef ColumnChunk* take(self) noexcept:
        """Take the oldest chunk. Return NULL if there is none."""
        cdef ColumnChunk* chunk = self.first
        if chunk != NULL:
            self.first = chunk.next
            chunk.next = NULL
            if self.first == NULL:
                self.last = NULL
            self.rows_hint = max(<size_t>FIRST_ROWS, chunk.rows)
            self.subject_hint = chunk.subjects.size
            self.payload_hint = chunk.payloads.size
            self.reply_hint = chunk.replies.size
        return chunk

    cdef void put_back(self, ColumnChunk* chunks) noexcept:
        """Put chunks that were taken, in their order, back in front of the others."""
        cdef ColumnChunk* last = chunks
        if chunks == NULL:
            return
        while last.next != NULL:
            last = last.next
        last.next = self.first
        self.first = chunks
        if self.last == NULL:
            self.last = last


cdef int frame_of(Msg msg, Frame* frame) except -1:
    """Point to the parts of `msg`, which are valid as long as `msg` lives."""
    frame.subject = msg.head
    frame.subject_size = msg.subject_size
    frame.reply = msg.head + msg.subject_size
    frame.reply_size = msg.reply_size
    frame.block = PyBytes_AS_STRING(msg.block) if msg.block is not None else NULL
    frame.block_size = PyBytes_GET_SIZE(msg.block) if msg.block is not None else 0
    frame.data = PyBytes_AS_STRING(msg.payload)
    frame.data_size = PyBytes_GET_SIZE(msg.payload)
    return 0


cdef int add_row(RowBuffer columns, Msg msg, size_t size, size_t* bytes_in_all) except -1:
    """Add a message that came earlier. Return 1, or 0 for a message of no stream."""
    cdef AckNumbers ack
    cdef Frame frame
    frame_of(msg, &frame)
    if not read_ack(&columns.reader, frame.reply, frame.reply_size, &ack):
        return 0
    columns.append(&frame, &ack, size)
    bytes_in_all[0] += size
    return 1
