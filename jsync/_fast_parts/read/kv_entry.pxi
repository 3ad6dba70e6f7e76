# Entries of key-value buckets, made of the messages of a consumer (ADR-8, ADR-48).

cdef extern from "Python.h":
    object PyObject_Vectorcall(
        object function, PyObject** arguments, size_t count, object names
    )

cdef tuple ENTRY_FIELDS = (
    "bucket", "key", "value", "revision", "timestamp_us", "delta", "operation"
)


@cython.annotation_typing(False)
def is_key(key: object) -> bool:
    cdef Py_ssize_t n = 0, i
    cdef const char* s
    cdef char c, last = 46
    # Other text would be encoded to UTF-8, and the string would keep the encoded copy.
    if not isinstance(key, str) or not (<str>key).isascii():
        return False
    s = utf8(key, &n)
    for i in range(n):
        c = s[i]
        if c == 46:
            if last == 46:
                return False
        elif not (
            97 <= c <= 122 or 65 <= c <= 90
            or 45 <= c <= 57  # - . / and digits
            or c == 95 or c == 61
        ):
            return False
        last = c
    return last != 46


cdef str ttl_in(bytes block):
    """Return the `Nats-TTL` of a header block, or of None. Empty if there is none."""
    cdef const char* s
    cdef Py_ssize_t n, i
    cdef HeaderLine line
    if block is None:
        return ""
    s, n = PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block)
    if not is_header_block(s, n):
        return ""
    i = line_end(s, n, 0) + 1
    while next_header(s, n, &i, &line):
        if is_word(line.name, line.name_size, b"Nats-TTL", 8):
            return decode_text(line.value, line.value_size)
    return ""


cdef str key_in(const char* subject, Py_ssize_t n, Py_ssize_t prefix_size):
    prefix_size = min(prefix_size, n)
    return decode_text(subject + prefix_size, n - prefix_size)


cdef object make_entry(
    object make, str bucket, str key, bytes payload,
    object revision, object timestamp_us, object delta, str operation,
):
    cdef PyObject* fields[7]
    cdef bytes value = payload if payload is not None else b""
    fields[0] = <PyObject*>bucket
    fields[1] = <PyObject*>key
    fields[2] = <PyObject*>value
    fields[3] = <PyObject*>revision
    fields[4] = <PyObject*>timestamp_us
    fields[5] = <PyObject*>delta
    fields[6] = <PyObject*>operation
    return PyObject_Vectorcall(make, fields, 0, ENTRY_FIELDS)


@cython.annotation_typing(False)
def read_entries(
    Mailbox mailbox not None, uint64_t previous, object make, str bucket not None,
    str prefix not None,
) -> "tuple[list[Any], int, int]":
    cdef Added added
    cdef HeaderLine line
    cdef Msg msg
    cdef uint64_t pending = 0
    cdef Py_ssize_t prefix_size = len(prefix.encode())
    cdef list entries = []
    while (msg := mailbox.first()) is not None:
        if (
            msg.status_number()
            or read_added(msg.block, True, &added) != NULL
            or added.found[ADDED_PENDING].name == NULL
            or added.previous != previous
        ):
            break
        if mailbox.take() is not msg:  # another thread has discarded it
            break
        previous, pending = added.sequence, added.pending
        line = added.found[ADDED_SUBJECT]
        entries.append(make_entry(
            make, bucket, key_in(line.value, line.value_size, prefix_size), msg.payload,
            added.sequence, added.timestamp_us, 0,
            operation_in(msg.block) if added.has_own else PUT,
        ))
    return entries, previous, pending
