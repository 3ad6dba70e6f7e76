# Acks of the usual form, which are read without decoding JSON, and their messages.


cdef size_t plain_ack(const char* s, size_t n, uint64_t* sequence) noexcept:
    """Return the size of NAME if it is `{"stream":"NAME","seq":N}` and no more, or 0."""
    cdef const char* end
    cdef size_t i
    if n < 20 or memcmp(s, b'{"stream":"', 11) != 0 or s[n - 1] != c"}":
        return 0
    end = <const char*>memchr(s + 11, c"\"", n - 11)
    if end == NULL:
        return 0
    i = end - s + 1
    if i + 8 > n or memcmp(s + i, b',"seq":', 7) != 0:
        return 0
    if not parse_number(s + i + 7, n - 8 - i, sequence):
        return 0
    return i - 12


cdef bint has_word(const char* s, size_t n, const char* word, size_t size) noexcept nogil:
    cdef const char* at = s
    while n >= size:
        at = <const char*>memchr(at, word[0], n - size + 1)
        if at == NULL:
            return False
        if memcmp(at, word, size) == 0:
            return True
        n -= at - s + 1
        at += 1
        s = at
    return False


cdef bint is_of_stream(Msg msg) noexcept:
    """Return whether an answer to a publish looks like one of a stream: an ack or an error.

    Any responder may have subscribed to the subject as well, and answer anything.
    """
    cdef const char* s
    cdef size_t n = msg.payload_size()
    if n == 0 or msg.status_number():
        return msg.status_number() != 0
    s = PyBytes_AS_STRING(msg.payload)
    if s[0] != c"{":
        return False
    return has_word(s, n, b'"err_code"', 10) or (
        has_word(s, n, b'"stream"', 8) and has_word(s, n, b'"seq"', 5)
    )


cdef object as_list(values, str name, Py_ssize_t size=-1):
    """Return values that can be counted and indexed, as many as there are messages."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise ConfigError(f"{name}: a sequence of values, not one {type(values).__name__}")
    if not isinstance(values, (list, tuple)):
        values = list(values)
    if size >= 0 and len(values) != size:
        raise ConfigError(f"{name}: {len(values)} values for {size} payloads")
    return values
