# Header blocks (ADR-4): "NATS/1.0[ status[ text]]", lines "name: value", a blank line.

from cpython.unicode cimport PyUnicode_AsUTF8String

cdef bytes HEADER_VERSION = b"NATS/1.0"


cdef inline bint is_blank(char c) noexcept nogil:
    return c == c" " or c == c"\t"


cdef inline bint is_word(
    const char* s, Py_ssize_t n, const char* word, Py_ssize_t size
) noexcept nogil:
    return n == size and memcmp(s, word, size) == 0


cdef str decode_text(const char* s, Py_ssize_t n):
    return PyUnicode_DecodeUTF8(s, n, "surrogateescape")


cdef int header_status(const char* s, Py_ssize_t n) noexcept nogil:
    """Return the status number of a block, 0 if its first line has none."""
    if n < 12 or memcmp(s, b"NATS/1.0", 8) != 0 or not is_blank(s[8]):
        return 0
    cdef Py_ssize_t i = 9
    while i < n and is_blank(s[i]):
        i += 1
    cdef uint64_t number = 0
    if n - i < 3 or not parse_number(s + i, 3, &number):
        return 0
    i += 3
    if i < n and s[i] == c"\r":
        i += 1
        if i < n and s[i] != c"\n":
            return 0
    if i < n and s[i] != c"\n" and not is_blank(s[i]):
        return 0
    return <int>number


cdef struct HeaderLine:
    const char* name
    const char* value
    Py_ssize_t name_size, value_size


cdef bint is_header_block(const char* s, Py_ssize_t n) noexcept nogil:
    return n >= 8 and memcmp(s, b"NATS/1.0", 8) == 0 and (
        n == 8 or is_blank(s[8]) or s[8] == c"\n"
        or s[8] == c"\r" and (n == 9 or s[9] == c"\n")
    )


cdef Py_ssize_t line_end(const char* s, Py_ssize_t n, Py_ssize_t i) noexcept nogil:
    cdef const char* found = <const char*>memchr(s + i, c"\n", n - i)
    return found - s if found != NULL else n


cdef inline bint next_header(
    const char* s, Py_ssize_t n, Py_ssize_t* at, HeaderLine* line
) noexcept nogil:
    """Read the next header of a block, from its second line on. Return False at the end."""
    return next_header_in(s, n, at, line, False)


cdef inline bint next_header_in(
    const char* s, Py_ssize_t n, Py_ssize_t* at, HeaderLine* line, bint beyond
) noexcept nogil:
    """Read the next header, with `beyond` also behind blank lines, up to the last byte."""
    cdef Py_ssize_t a, b, end
    cdef const char* colon
    while at[0] < n:
        a = at[0]
        b = end = line_end(s, n, a)
        if b > a and s[b - 1] == c"\r":
            b -= 1
        if a == b:
            if not beyond:
                return False
            at[0] = end + 1
            continue
        at[0] = end + 1
        colon = <const char*>memchr(s + a, c":", b - a)
        if colon == NULL or colon == s + a:
            continue
        line.name = s + a
        line.name_size = colon - line.name
        a += line.name_size + 1
        while a < b and is_blank(s[a]):
            a += 1
        while b > a and is_blank(s[b - 1]):
            b -= 1
        line.value = s + a
        line.value_size = b - a
        return True
    return False


cdef str status_words(const char* s, Py_ssize_t end):
    """Return the text behind the number of a status."""
    cdef Py_ssize_t a = 9, b = end
    if b > a and s[b - 1] == c"\r":
        b -= 1
    while is_blank(s[a]):
        a += 1
    a += 3
    while a < b and is_blank(s[a]):
        a += 1
    while b > a and is_blank(s[b - 1]):
        b -= 1
    return decode_text(s + a, b - a)


def parse_headers(block: bytes) -> "tuple[int | None, str, Headers | None, str | None]":
    cdef const char* s = PyBytes_AS_STRING(block)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(block)
    cdef Py_ssize_t i, begin
    cdef bint found
    cdef HeaderLine line
    cdef dict values = {}
    cdef str name, text = "", error = None
    if not is_header_block(s, n):
        return None, "", None, "the header block does not begin with NATS/1.0"
    cdef int status = header_status(s, n)
    i = line_end(s, n, 0)
    if status:
        text = status_words(s, i)
    i += 1
    while True:
        begin = i
        found = next_header(s, n, &i, &line)
        if (line.name - s if found else i) != begin:
            error = "a line of the header block has no name and colon"
        if not found:
            break
        name = decode_text(line.name, line.name_size)
        value = decode_text(line.value, line.value_size)
        if name in values:
            (<list>values[name]).append(value)
        else:
            values[name] = [value]
    if i < n and line_end(s, n, i) + 1 < n:
        error = "the header block has a blank line before its end"
    headers = Headers.__new__(Headers)
    headers._values = values
    return (status or None), text, headers, error


cdef bytes header_bytes(object text, object name):
    try:
        return PyUnicode_AsUTF8String(text)
    except UnicodeEncodeError:
        try:
            return text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            # Without the value, which may be a secret. The cause would contain it, too.
            raise InvalidHeaderError(f"header {name!r} is not valid Unicode") from None


def encode_headers(headers: "HeadersLike") -> bytes:
    cdef list block = [b"NATS/1.0\r\n"]
    cdef bytes raw_name, raw
    cdef Py_ssize_t i
    cdef unsigned char c
    try:
        pairs = (
            (<object>headers)._values if isinstance(headers, Headers) else headers
        ).items()
    except AttributeError:
        raise InvalidHeaderError(
            f"headers are a mapping of names to values, not {type(headers).__name__}"
        ) from None
    for name, values in pairs:
        if not isinstance(name, str):
            raise InvalidHeaderError(f"header name {name!r} is not a str")
        raw_name = header_bytes(name, name)
        if not raw_name:
            raise InvalidHeaderError("a header name cannot be empty")
        for i in range(PyBytes_GET_SIZE(raw_name)):
            c = <unsigned char>raw_name[i]
            if c <= c" " or c >= DELETE or c == c":":
                raise InvalidHeaderError(
                    f"header name {name!r} may have printable ASCII only, "
                    "without space and colon"
                )
        if isinstance(values, str):
            values = (values,)
        elif not isinstance(values, Iterable):
            raise InvalidHeaderError(
                f"header {name!r} has a value of type {type(values).__name__}: "
                "values are str, or several of them"
            )
        for value in values:
            if not isinstance(value, str):
                raise InvalidHeaderError(
                    f"header {name!r} has a value of type "
                    f"{type(value).__name__}: values are str"
                )
            raw = header_bytes(value, name)
            if b"\r" in raw or b"\n" in raw:
                raise InvalidHeaderError(
                    f"the value of header {name!r} has a line break"
                )
            block += (raw_name, b": ", raw, b"\r\n")
    block.append(b"\r\n")
    return b"".join(block)


cdef bytes block_with_id(bytes block, object msg_id):
    """Add `Nats-Msg-Id` to a header block, which may be None."""
    cdef bytes raw
    cdef Py_ssize_t i, size
    cdef unsigned char c
    if not isinstance(msg_id, str):
        raise ConfigError(f"msg_id: a str, not {type(msg_id).__name__}")
    raw = header_bytes(msg_id, "Nats-Msg-Id")
    size = PyBytes_GET_SIZE(raw)
    if size == 0 or raw[0] == c" " or raw[size - 1] == c" ":
        raise ConfigError(f"msg_id: empty, or with blanks around it: {msg_id!r}")
    for i in range(size):
        c = <unsigned char>raw[i]
        if c < c" " or c == DELETE:
            raise ConfigError(f"msg_id: {msg_id!r} has a control character")
    if block is None:
        return b"NATS/1.0\r\nNats-Msg-Id: " + raw + b"\r\n\r\n"
    block = PyBytes_FromStringAndSize(
        PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block) - 2
    )
    return block + b"Nats-Msg-Id: " + raw + b"\r\n\r\n"
