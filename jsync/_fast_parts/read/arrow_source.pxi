# Tables of other libraries, read through the Arrow C stream interface to be published.

cdef enum TextKind:
    NARROW  # 32-bit offsets
    WIDE    # 64-bit offsets
    VIEWS   # 16 bytes each: short ones in them, long ones elsewhere
    CODED   # indices into a dictionary

cdef struct View:
    int32_t size
    char prefix[4]
    int32_t buffer, offset


cdef int text_kind(ArrowSchema* schema) noexcept:
    """Return the layout of a text or binary column, or -1 for any other column."""
    cdef bytes form = schema.format
    if schema.dictionary != NULL:
        return CODED if form in b"cCsSiIlL" and len(form) == 1 and text_kind(
            schema.dictionary
        ) >= 0 else -1
    if form in (b"u", b"z"):
        return NARROW
    if form in (b"U", b"Z"):
        return WIDE
    if form in (b"vu", b"vz"):
        return VIEWS
    return -1


cdef inline bint is_null(ArrowArray* array, int64_t row) noexcept:
    cdef const unsigned char* bits
    if array.null_count == 0 or array.n_buffers == 0 or array.buffers[0] == NULL:
        return False
    row += array.offset
    bits = <const unsigned char*>array.buffers[0]
    return not bits[row >> 3] >> (row & 7) & 1


cdef int64_t code_of(ArrowArray* array, const char* form, int64_t row) noexcept:
    """Return the index into the dictionary."""
    cdef const void* codes = array.buffers[1]
    row += array.offset
    if form[0] == c"c":
        return (<const signed char*>codes)[row]
    if form[0] == c"C":
        return (<const unsigned char*>codes)[row]
    if form[0] == c"s":
        return (<const short*>codes)[row]
    if form[0] == c"S":
        return (<const unsigned short*>codes)[row]
    if form[0] == c"i":
        return (<const int32_t*>codes)[row]
    if form[0] == c"I":
        return (<const uint32_t*>codes)[row]
    return (<const int64_t*>codes)[row]


cdef bint text_span(
    ArrowArray* array, ArrowSchema* schema, int64_t row, const char** s, Py_ssize_t* size
) noexcept:
    """Find the value of a text or binary column. Return False for null."""
    cdef int kind = text_kind(schema)
    cdef const int32_t* narrow
    cdef const int64_t* wide
    cdef const View* view
    cdef int64_t at
    if is_null(array, row):
        return False
    if kind == CODED:
        return text_span(
            array.dictionary, schema.dictionary, code_of(array, schema.format, row),
            s, size,
        )
    at = row + array.offset
    if kind == NARROW:
        narrow = <const int32_t*>array.buffers[1]
        s[0] = <const char*>array.buffers[2] + narrow[at]
        size[0] = narrow[at + 1] - narrow[at]
    elif kind == WIDE:
        wide = <const int64_t*>array.buffers[1]
        s[0] = <const char*>array.buffers[2] + wide[at]
        size[0] = <Py_ssize_t>(wide[at + 1] - wide[at])
    else:
        view = <const View*>array.buffers[1] + at
        size[0] = view.size
        if view.size <= 12:
            s[0] = view.prefix
        else:
            s[0] = <const char*>array.buffers[2 + view.buffer] + view.offset
    return True


cdef bytes text_at(ArrowArray* array, ArrowSchema* schema, int64_t row):
    """Return the value of a text or binary column, or None for null."""
    cdef const char* s = NULL
    cdef Py_ssize_t size = 0
    if not text_span(array, schema, row, &s, &size):
        return None
    return PyBytes_FromStringAndSize(s, size)


cdef bint is_whole(ArrowSchema* schema) noexcept:
    """Return whether it is a column of whole numbers."""
    cdef bytes form = schema.format
    return len(form) == 1 and form in b"cCsSiIlL"


cdef uint64_t whole_at(
    ArrowArray* array, ArrowSchema* schema, int64_t row, bint* negative
) noexcept:
    """Return a value, not null, of a column of whole numbers, and set `negative`."""
    cdef char form = schema.format[0]
    cdef int64_t value
    if form == c"L":  # "L": up to 2**64
        return (<const uint64_t*>array.buffers[1])[row + array.offset]
    value = code_of(array, schema.format, row)
    negative[0] = value < 0
    return <uint64_t>value


cdef int list_span(
    ArrowArray* array, ArrowSchema* schema, int64_t row, int64_t* begin, int64_t* end
) noexcept:
    """Find the elements of the child that belong to a row of a list or map."""
    row += array.offset
    if schema.format[1] == c"L":  # "+L"
        begin[0] = (<const int64_t*>array.buffers[1])[row]
        end[0] = (<const int64_t*>array.buffers[1])[row + 1]
    else:
        begin[0] = (<const int32_t*>array.buffers[1])[row]
        end[0] = (<const int32_t*>array.buffers[1])[row + 1]
    return 0


cdef bint is_list(ArrowSchema* schema) noexcept:
    return bytes(schema.format) in (b"+m", b"+l", b"+L")


cdef bint are_headers(ArrowSchema* schema) noexcept:
    """Return whether it is a map, or a list of pairs, of names and one or more values."""
    cdef ArrowSchema* pairs
    cdef ArrowSchema* values
    if not is_list(schema):
        return False
    pairs = schema.children[0]
    if bytes(pairs.format) != b"+s" or pairs.n_children != 2:
        return False
    values = pairs.children[1]
    if is_list(values):
        values = values.children[0]
    return text_kind(pairs.children[0]) >= 0 and text_kind(values) >= 0


cdef object as_text(bytes raw):
    return PyUnicode_DecodeUTF8(
        PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), "surrogateescape"
    )


@cython.final
cdef class HeaderBlockWriter:
    """Writes header blocks, one after the other, into the same buffer."""

    cdef char* data
    cdef size_t size, capacity

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    cdef int put(self, const char* s, size_t n) except -1:
        cdef size_t capacity = self.capacity if self.capacity else 512
        cdef void* resized
        if self.size + n > self.capacity:
            while capacity < self.size + n:
                capacity *= 2
            resized = PyMem_RawRealloc(self.data, capacity)
            if resized == NULL:
                raise MemoryError
            self.data = <char*>resized
            self.capacity = capacity
        memcpy(self.data + self.size, s, n)
        self.size += n
        return 0

    cdef int line(
        self, const char* name, size_t name_size, const char* s, size_t n
    ) except -1:
        if self.size == 0:
            self.put(b"NATS/1.0\r\n", 10)
        self.put(name, name_size)
        self.put(b": ", 2)
        self.put(s, n)
        self.put(b"\r\n", 2)
        return 0

    cdef bytes take(self):
        """Return the block, or None if it has no line, and begin the next one."""
        cdef bytes block = None
        if self.size:
            self.put(b"\r\n", 2)
            block = PyBytes_FromStringAndSize(self.data, self.size)
        self.size = 0
        return block


cdef enum OptionKind:
    ID        # a message id, without control characters and without blanks around it
    WORD      # other text, with the same restrictions
    SEQUENCE
    LIFETIME  # whole seconds, or "never"

cdef struct OptionColumn:
    int column  # -1: all rows have the value `ArrowSource.constant`
    int which   # index into OPTION_COLUMNS
    OptionKind kind
    const char* header
    size_t header_size

cdef tuple OPTION_COLUMNS = (
    ("msg_id", ID, b"Nats-Msg-Id"),
    ("expected_stream", WORD, b"Nats-Expected-Stream"),
    ("expected_last_sequence", SEQUENCE, b"Nats-Expected-Last-Sequence"),
    (
        "expected_last_subject_sequence", SEQUENCE,
        b"Nats-Expected-Last-Subject-Sequence",
    ),
    ("expected_last_msg_id", WORD, b"Nats-Expected-Last-Msg-Id"),
    ("ttl", LIFETIME, b"Nats-TTL"),
)

cdef enum:
    MAX_OPTIONS = 6
    MAX_TTL = 9223372036  # seconds: the most that Go counts in nanoseconds


@cython.final
cdef class ArrowSource:
    """The messages in a table: any object with `__arrow_c_stream__`.

    `subject`, `data` and `headers` are names of its columns, and so are the `options` of a
    message. Where the table has no such column, `subject` and `expected_stream` are the
    value for all messages. `check_header` raises for names that `headers` may not have.
    For one thread at a time.
    """

    cdef object capsule
    cdef ArrowArrayStream* stream
    cdef ArrowSchema schema
    cdef ArrowArray batch
    cdef int64_t row     # the next one of `batch`
    cdef int64_t number  # the next one of the whole table
    cdef object subject, check_header
    cdef dict checked    # header names that have been checked, as keys
    cdef int subjects, payloads, headers  # columns, -1: none
    cdef OptionColumn options[MAX_OPTIONS]
    cdef int option_count
    cdef bint has_ids    # one option is a column of message ids
    cdef bytes constant
    cdef HeaderBlockWriter block

    @cython.annotation_typing(False)
    def __init__(
        self,
        table: object,
        *,
        subject: str,
        data: str,
        headers: str | None = None,
        check_header: object = None,
        **options: str | None,
    ) -> None:
        cdef Py_ssize_t size = 0
        if self.stream != NULL:
            raise RuntimeError("a source is made once")
        give = getattr(table, "__arrow_c_stream__", None)
        if give is None:
            raise ConfigError(
                f"not a table: {type(table).__name__} has no __arrow_c_stream__"
            )
        self.capsule = give()
        self.stream = <ArrowArrayStream*>PyCapsule_GetPointer(
            self.capsule, "arrow_array_stream"
        )
        if self.stream.release == NULL:
            raise ConfigError("this stream of a table has been read already")
        self.check(self.stream.get_schema(self.stream, &self.schema))
        if bytes(self.schema.format) != b"+s":
            raise ConfigError("a table has columns: this is a single one")
        self.block = HeaderBlockWriter()
        self.checked = {}
        self.check_header = check_header
        self.subject = subject
        self.subjects = self.find(subject)
        if self.subjects < 0:
            publish_subject(subject, &size)
        else:
            self.check_text(self.subjects, "subject")
        self.payloads = self.need(data, "data")
        self.check_text(self.payloads, "data")
        self.headers = -1
        if headers is not None:
            self.headers = self.need(headers, "headers")
            if not are_headers(self.schema.children[self.headers]):
                raise ConfigError(
                    f"headers: column {headers!r} is neither a map of names to "
                    "values nor a list of such pairs"
                )
        for which, (name, kind, header) in enumerate(OPTION_COLUMNS):
            value = options.pop(name, None)
            if value is not None:
                self.add_option(which, name, kind, header, value)
        for name in options:
            raise TypeError(f"{name!r} is not an option that a column can hold")

    cdef int add_option(
        self, int which, str name, OptionKind kind, bytes header, object value
    ) except -1:
        cdef OptionColumn* option = &self.options[self.option_count]
        cdef ArrowSchema* schema
        cdef bytes raw
        option.which, option.kind = which, kind
        option.header = PyBytes_AS_STRING(header)  # OPTION_COLUMNS keeps it alive
        option.header_size = PyBytes_GET_SIZE(header)
        option.column = self.find(value)
        if option.column < 0 and name == "expected_stream":
            self.constant = raw = header_bytes(value, name)
            self.check_word(which, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        else:
            option.column = self.need(value, name)
            schema = self.schema.children[option.column]
            if kind == SEQUENCE or kind == LIFETIME and text_kind(schema) < 0:
                if not is_whole(schema) or schema.dictionary != NULL:
                    raise ConfigError(
                        f"{name}: column {value!r} does not hold whole numbers "
                        f"({schema.format.decode()!r}): cast it"
                    )
            else:
                self.check_text(option.column, name)
        self.has_ids |= kind == ID
        self.option_count += 1
        return 0

    def __dealloc__(self):
        if self.batch.release != NULL:
            self.batch.release(&self.batch)
        if self.schema.release != NULL:
            self.schema.release(&self.schema)

    def __repr__(self) -> str:
        return f"<ArrowSource at row {self.number}>"

    cdef int check(self, int failed) except -1:
        cdef const char* why
        if failed:
            why = self.stream.get_last_error(self.stream)
            raise OSError(
                failed, decode_text(why, strlen(why)) if why != NULL else "no table"
            )
        return 0

    cdef int find(self, object name) except -2:
        cdef int64_t i
        if not isinstance(name, str):
            raise ConfigError(f"not the name of a column: {name!r}")
        raw = (<str>name).encode("utf-8", "surrogateescape")
        for i in range(self.schema.n_children):
            if self.schema.children[i].name == <bytes>raw:
                return <int>i
        return -1

    cdef int need(self, object name, str what) except -2:
        cdef int found = self.find(name)
        if found < 0:
            those = [
                self.schema.children[i].name.decode("utf-8", "replace")
                for i in range(self.schema.n_children)
            ]
            raise ConfigError(f"{what}: no column {name!r}; there are {', '.join(those)}")
        return found

    cdef int check_text(self, int column, str what) except -1:
        cdef ArrowSchema* schema = self.schema.children[column]
        if text_kind(schema) < 0:
            raise ConfigError(
                f"{what}: column {schema.name.decode()!r} is neither text nor binary "
                f"({schema.format.decode()!r}): cast it"
            )
        return 0

    cdef bint next_batch(self) except -1:
        """Get the next batch once this one is used up. Return False at the end."""
        cdef int failed
        while self.batch.release == NULL or self.row >= self.batch.length:
            if self.batch.release != NULL:
                self.batch.release(&self.batch)
            self.row = 0
            memset(&self.batch, 0, sizeof(ArrowArray))
            # The stream may compute its rows on other threads, which need the GIL.
            with nogil:
                failed = self.stream.get_next(self.stream, &self.batch)
            self.check(failed)
            if self.batch.release == NULL:
                return False
        return True

    def take(self, most: int) -> "Rows | None":
        """Return the next subjects, payloads, header blocks, and whether all have an id.

        Return None at the end. Without a column of subjects the one subject for all comes
        instead of a list, and without columns for headers None instead of blocks. A row
        without headers has None as its block.
        """
        cdef int64_t row
        cdef list subjects, payloads, blocks
        cdef bint headed = self.headers >= 0 or self.option_count
        cdef bint all_ids = self.has_ids
        if not self.next_batch():
            return None
        subjects, payloads, blocks = [], [], []
        for _ in range(min(<int64_t>most, self.batch.length - self.row)):
            # The array of the struct has an offset, too.
            row = self.row + self.batch.offset
            payloads.append(self.needed(self.payloads, row, "data"))
            if self.subjects >= 0:
                subjects.append(as_text(self.needed(self.subjects, row, "subject")))
            if headed:
                self.block.size = 0
                if self.headers >= 0:
                    self.put_headers(row)
                all_ids &= self.put_options(row)
                blocks.append(self.block.take())
            self.row += 1
            self.number += 1
        return (
            subjects if self.subjects >= 0 else self.subject,
            payloads,
            blocks if headed else None,
            all_ids,
        )

    cdef bytes needed(self, int column, int64_t row, str what):
        cdef bytes value = text_at(
            self.batch.children[column], self.schema.children[column], row
        )
        if value is None:
            raise ConfigError(f"{what}: row {self.number} is null")
        return value

    # Header blocks --------------------------------------------------------------------

    cdef int put_headers(self, int64_t row) except -1:
        cdef ArrowArray* array = self.batch.children[self.headers]
        cdef ArrowSchema* schema = self.schema.children[self.headers]
        cdef ArrowArray* pairs = array.children[0]
        cdef ArrowArray* values = pairs.children[1]
        cdef ArrowSchema* names_form = schema.children[0].children[0]
        cdef ArrowSchema* form = schema.children[0].children[1]
        cdef int64_t i, j, begin = 0, end = 0, first = 0, last = 0
        cdef bytes name
        if is_null(array, row):
            return 0
        list_span(array, schema, row, &begin, &end)
        for i in range(begin + pairs.offset, end + pairs.offset):
            name = text_at(pairs.children[0], names_form, i)
            if name is None:
                raise ConfigError(f"headers: a name of row {self.number} is null")
            if name not in self.checked:
                self.check_name(name)
            if not is_list(form):
                self.put_value(name, values, form, i)
            elif not is_null(values, i):
                list_span(values, form, i, &first, &last)
                for j in range(first, last):
                    self.put_value(name, values.children[0], form.children[0], j)
        return 0

    cdef int check_name(self, bytes name) except -1:
        encode_headers({as_text(name): ""})
        if self.check_header is not None:
            self.check_header(as_text(name))
        if len(self.checked) < 1000:
            self.checked[name] = None
        return 0

    cdef int put_value(
        self, bytes name, ArrowArray* array, ArrowSchema* schema, int64_t row
    ) except -1:
        cdef const char* s = NULL
        cdef Py_ssize_t size = 0
        if not text_span(array, schema, row, &s, &size):
            return 0
        if memchr(s, c"\r", size) != NULL or memchr(s, c"\n", size) != NULL:
            raise InvalidHeaderError(
                f"the value of header {as_text(name)!r} of row {self.number} has a line "
                "break"
            )
        self.block.line(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), s, size)
        return 0

    cdef bint put_options(self, int64_t row) except -1:
        """Write the options of the row as headers. Return whether it has a message id."""
        cdef OptionColumn* option
        cdef ArrowArray* array
        cdef ArrowSchema* schema
        cdef const char* s
        cdef Py_ssize_t size
        cdef char digits[24]
        cdef char* end
        cdef uint64_t value
        cdef bint negative, has_id = False
        cdef int i
        for i in range(self.option_count):
            option = &self.options[i]
            if option.column < 0:
                self.block.line(
                    option.header, option.header_size,
                    PyBytes_AS_STRING(self.constant), PyBytes_GET_SIZE(self.constant),
                )
                continue
            array = self.batch.children[option.column]
            schema = self.schema.children[option.column]
            if is_null(array, row):
                continue
            if option.kind == SEQUENCE or text_kind(schema) < 0:
                negative = False
                value = whole_at(array, schema, row, &negative)
                if negative or option.kind == LIFETIME and not 1 <= value <= MAX_TTL:
                    raise self.bad_option(option.which, "is out of range")
                end = write_number(digits, value)
                if option.kind == LIFETIME:
                    end[0] = c"s"
                    end += 1
                s, size = digits, end - digits
            else:
                s, size = NULL, 0
                if not text_span(array, schema, row, &s, &size):
                    continue  # an entry of a dictionary may be null
                self.check_word(option.which, s, size)
                if option.kind == LIFETIME and not (
                    size == 5 and memcmp(s, b"never", 5) == 0
                ):
                    raise self.bad_option(
                        option.which, 'is text other than "never": seconds are numbers'
                    )
                has_id |= option.kind == ID
            self.block.line(option.header, option.header_size, s, size)
        return has_id

    cdef int check_word(self, int which, const char* s, Py_ssize_t size) except -1:
        cdef Py_ssize_t i
        cdef unsigned char c
        if size == 0 or s[0] == c" " or s[size - 1] == c" ":
            raise self.bad_option(which, "is empty, or has blanks around it")
        for i in range(size):
            c = <unsigned char>s[i]
            if c < c" " or c == DELETE:
                raise self.bad_option(which, "has a control character")
        return 0

    cdef object bad_option(self, int which, str why):
        name = OPTION_COLUMNS[which][0]
        if self.constant is not None and name == "expected_stream":
            return ConfigError(f"{name} {why}")
        return ConfigError(f"{name}: row {self.number} {why}")
