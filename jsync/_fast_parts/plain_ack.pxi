# Acks of the usual form, which are read without decoding JSON, and their messages.


cdef size_t plain_ack(const char* s, size_t n, uint64_t* sequence) noexcept:
    """The size of NAME if it is `{"stream":"NAME","seq":N}` and no more, or 0."""
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


cdef object column(values, str name, Py_ssize_t size=-1):
    """Values that can be counted and indexed, as many as there are messages."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise ConfigError(f"{name}: a sequence of values, not one {type(values).__name__}")
    if not isinstance(values, (list, tuple)):
        values = list(values)
    if size >= 0 and len(values) != size:
        raise ConfigError(f"{name}: {len(values)} values for {size} payloads")
    return values
