# Columns of others, read through the Arrow C stream interface, to be published.

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
    """How values of a text or binary column lie, or -1 for another column."""
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
    """The index into the dictionary."""
    cdef const void* codes = array.buffers[1]
    row += array.offset
    if form[0] == 99:  # "c"
        return (<const signed char*>codes)[row]
    if form[0] == 67:
        return (<const unsigned char*>codes)[row]
    if form[0] == 115:  # "s"
        return (<const short*>codes)[row]
    if form[0] == 83:
        return (<const unsigned short*>codes)[row]
    if form[0] == 105:  # "i"
        return (<const int32_t*>codes)[row]
    if form[0] == 73:
        return (<const uint32_t*>codes)[row]
    return (<const int64_t*>codes)[row]


cdef bytes text_at(ArrowArray* array, ArrowSchema* schema, int64_t row):
    """The value of a text or binary column, or None."""
    cdef int kind = text_kind(schema)
    cdef const int32_t* narrow
    cdef const int64_t* wide
    cdef const View* view
    cdef int64_t at
    if is_null(array, row):
        return None
    if kind == CODED:
        return text_at(array.dictionary, schema.dictionary, code_of(
            array, schema.format, row
        ))
    at = row + array.offset
    if kind == NARROW:
        narrow = <const int32_t*>array.buffers[1]
        return PyBytes_FromStringAndSize(
            <const char*>array.buffers[2] + narrow[at], narrow[at + 1] - narrow[at]
        )
    if kind == WIDE:
        wide = <const int64_t*>array.buffers[1]
        return PyBytes_FromStringAndSize(
            <const char*>array.buffers[2] + wide[at], wide[at + 1] - wide[at]
        )
    view = <const View*>array.buffers[1] + at
    if view.size <= 12:
        return PyBytes_FromStringAndSize(view.prefix, view.size)
    return PyBytes_FromStringAndSize(
        <const char*>array.buffers[2 + view.buffer] + view.offset, view.size
    )


cdef int list_span(
    ArrowArray* array, ArrowSchema* schema, int64_t row, int64_t* begin, int64_t* end
) noexcept:
    """Which elements of its child a row of a list or map has."""
    row += array.offset
    if schema.format[1] == 76:  # "+L"
        begin[0] = (<const int64_t*>array.buffers[1])[row]
        end[0] = (<const int64_t*>array.buffers[1])[row + 1]
    else:
        begin[0] = (<const int32_t*>array.buffers[1])[row]
        end[0] = (<const int32_t*>array.buffers[1])[row + 1]
    return 0


cdef bint is_list(ArrowSchema* schema) noexcept:
    return bytes(schema.format) in (b"+m", b"+l", b"+L")


cdef bint are_headers(ArrowSchema* schema) noexcept:
    """Whether it is a map, or a list of pairs, of names and one or several values."""
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


cdef dict headers_at(ArrowArray* array, ArrowSchema* schema, int64_t row):
    """The headers of a row, or None."""
    cdef ArrowArray* pairs = array.children[0]
    cdef ArrowArray* values = pairs.children[1]
    cdef ArrowSchema* form = schema.children[0].children[1]
    cdef int64_t i, j, begin = 0, end = 0, first = 0, last = 0
    cdef dict headers = {}
    cdef bytes name, value
    if is_null(array, row):
        return None
    list_span(array, schema, row, &begin, &end)
    for i in range(begin, end):
        name = text_at(
            pairs.children[0], schema.children[0].children[0], i + pairs.offset
        )
        if name is None:
            raise ConfigError(f"headers: a name of row {row} is null")
        those = headers.setdefault(as_text(name), [])
        j = i + pairs.offset
        if is_list(form):
            if is_null(values, j):
                continue
            list_span(values, form, j, &first, &last)
            for j in range(first, last):
                value = text_at(values.children[0], form.children[0], j)
                if value is not None:
                    those.append(as_text(value))
        else:
            value = text_at(values, form, j)
            if value is not None:
                those.append(as_text(value))
    return {key: found for key, found in headers.items() if found}


@cython.final
cdef class ArrowSource:
    """The messages in a table: any object with `__arrow_c_stream__`.

    `subject`, `msg_id`, `headers` and `data` are names of its columns, `subject` a
    subject for all where it has no such column. For one thread at a time.
    """

    cdef object capsule
    cdef ArrowArrayStream* stream
    cdef ArrowSchema schema
    cdef ArrowArray batch
    cdef int64_t row     # the next one of the batch
    cdef int64_t number  # and of all
    cdef object subject
    cdef int subjects, payloads, msg_ids, headers  # columns, -1: none

    @cython.annotation_typing(False)
    def __init__(
        self,
        table: object,
        *,
        subject: str,
        data: str,
        msg_id: str | None = None,
        headers: str | None = None,
    ) -> None:
        cdef Py_ssize_t size = 0
        if self.stream != NULL:
            raise RuntimeError("a source is made once")
        give = getattr(table, "__arrow_c_stream__", None)
        if give is None:
            raise ConfigError(
                f"a table has __arrow_c_stream__, which {type(table).__name__} has not"
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
        self.subject = subject
        self.subjects = self.find(subject)
        if self.subjects < 0:
            publish_subject(subject, &size)
        else:
            self.check_text(self.subjects, "subject")
        self.payloads = self.need(data, "data")
        self.check_text(self.payloads, "data")
        self.msg_ids = self.headers = -1
        if msg_id is not None:
            self.msg_ids = self.need(msg_id, "msg_id")
            self.check_text(self.msg_ids, "msg_id")
        if headers is not None:
            self.headers = self.need(headers, "headers")
            if not are_headers(self.schema.children[self.headers]):
                raise ConfigError(
                    f"headers: column {headers!r} is no map of names to values, and no "
                    "list of such pairs"
                )

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
            raise ConfigError(f"a column has a name, which {name!r} is not")
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
            raise ConfigError(f"{what}: no column {name!r}, but {', '.join(those)}")
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
        """Have rows, or False at the end."""
        cdef int failed
        while self.batch.release == NULL or self.row >= self.batch.length:
            if self.batch.release != NULL:
                self.batch.release(&self.batch)
            self.row = 0
            memset(&self.batch, 0, sizeof(ArrowArray))
            # It may compute, on threads of its own that want the GIL.
            with nogil:
                failed = self.stream.get_next(self.stream, &self.batch)
            self.check(failed)
            if self.batch.release == NULL:
                return False
        return True

    def take(self, most: int) -> "Rows | None":
        """The next rows: subjects, payloads, message ids and headers; None at the end.

        Subjects are one for all, ids and headers None, where there are no such columns.
        """
        cdef int64_t row
        cdef list subjects, payloads, msg_ids, headers
        if not self.next_batch():
            return None
        subjects, payloads, msg_ids, headers = [], [], [], []
        for _ in range(min(<int64_t>most, self.batch.length - self.row)):
            # The struct has an offset of its own.
            row = self.row + self.batch.offset
            payloads.append(self.needed(self.payloads, row, "data"))
            if self.subjects >= 0:
                subjects.append(as_text(self.needed(self.subjects, row, "subject")))
            if self.msg_ids >= 0:
                raw = self.value(self.msg_ids, row)
                msg_ids.append(None if raw is None else as_text(raw))
            if self.headers >= 0:
                headers.append(headers_at(
                    self.batch.children[self.headers],
                    self.schema.children[self.headers], row,
                ))
            self.row += 1
            self.number += 1
        return (
            subjects if self.subjects >= 0 else self.subject,
            payloads,
            msg_ids if self.msg_ids >= 0 else None,
            headers if self.headers >= 0 else None,
        )

    cdef bytes value(self, int column, int64_t row):
        return text_at(self.batch.children[column], self.schema.children[column], row)

    cdef bytes needed(self, int column, int64_t row, str what):
        cdef bytes value = self.value(column, row)
        if value is None:
            raise ConfigError(f"{what}: row {self.number} is null")
        return value
