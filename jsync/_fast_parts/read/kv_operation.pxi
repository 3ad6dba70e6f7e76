# The operation of a key-value entry, which its headers say (ADR-8, ADR-48).

cdef str PUT = "PUT", DEL = "DEL", PURGE = "PURGE"


cdef str operation_in(bytes block):
    """Return the operation that a header block, or None, stands for.

    `KV-Operation` comes before `Nats-Marker-Reason`, and the first one of each counts. An
    unreadable block means PUT, because any publisher may have put it there.
    """
    cdef const char* s
    cdef Py_ssize_t n, i
    cdef HeaderLine line
    cdef str by_reason = None
    if block is None:
        return PUT
    s, n = PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block)
    if not is_header_block(s, n):
        return PUT
    i = line_end(s, n, 0) + 1
    while next_header(s, n, &i, &line):
        if is_word(line.name, line.name_size, b"KV-Operation", 12):
            if is_word(line.value, line.value_size, b"DEL", 3):
                return DEL
            if is_word(line.value, line.value_size, b"PURGE", 5):
                return PURGE
            return PUT  # any other word is a value for the other clients, too
        if by_reason is None and is_word(
            line.name, line.name_size, b"Nats-Marker-Reason", 18
        ):
            if is_word(line.value, line.value_size, b"Remove", 6):
                by_reason = DEL
            elif (
                is_word(line.value, line.value_size, b"MaxAge", 6)
                or is_word(line.value, line.value_size, b"Purge", 5)
            ):
                by_reason = PURGE
            else:
                by_reason = PUT
    return PUT if by_reason is None else by_reason
