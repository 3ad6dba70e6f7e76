# Ack subjects of one consumer, read one after the other: each begins like the one before.

cdef extern from *:
    """
    /* Eight digits at once: 1, and their value; 0 when they are not that. */
    static inline int jsync_eight_digits(const char* s, uint64_t* value) {
    #if defined(_WIN32) \\
        || defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        uint64_t v;
        memcpy(&v, s, 8);
        if (((v & 0xF0F0F0F0F0F0F0F0ULL) |
             (((v + 0x0606060606060606ULL) & 0xF0F0F0F0F0F0F0F0ULL) >> 4))
            != 0x3333333333333333ULL)
            return 0;
        v = (v & 0x0F0F0F0F0F0F0F0FULL) * 2561 >> 8;
        v = (v & 0x00FF00FF00FF00FFULL) * 6553601 >> 16;
        *value = (v & 0x0000FFFF0000FFFFULL) * 42949672960001ULL >> 32;
        return 1;
    #else
        return 0;
    #endif
    }
    """
    bint jsync_eight_digits(const char*, uint64_t*) nogil

cdef struct AckNumbers:
    uint64_t stream_sequence, consumer_sequence, timestamp, pending

cdef struct AckSubjectReader:
    char beginning[128]  # up to the stream sequence
    Py_ssize_t size


cdef inline bint read_number(
    const char** p, const char* end, uint64_t* number
) noexcept nogil:
    """Read digits up to a dot or the end, and move behind it. False for any other text."""
    cdef const char* s = p[0]
    cdef uint64_t value = 0, eight = 0
    cdef uint64_t digit
    while end - s >= 8 and jsync_eight_digits(s, &eight):
        value = value * 100_000_000 + eight
        s += 8
    while s < end and s[0] != c".":
        digit = <uint64_t><unsigned char>s[0] - c"0"
        if digit > 9:
            return False
        value = value * 10 + digit
        s += 1
    if s == p[0] or s - p[0] > 19:  # may exceed 64 bits
        return False
    p[0] = s + 1
    number[0] = value
    return True


cdef bint read_ack(
    AckSubjectReader* reader, const char* s, Py_ssize_t n, AckNumbers* ack
) noexcept nogil:
    """Read an ack subject. Return False for any other subject."""
    cdef AckSubject parts
    cdef const char* p = s + reader.size
    cdef const char* end = s + n
    cdef uint64_t delivered = 0
    if (
        reader.size
        and n > reader.size
        and memcmp(s, reader.beginning, reader.size) == 0
        and read_number(&p, end, &ack.stream_sequence)
        and read_number(&p, end, &ack.consumer_sequence)
        and read_number(&p, end, &ack.timestamp)
        and read_number(&p, end, &ack.pending)
        and p == end + 1  # the rest is checked below
    ):
        return True
    if not (
        split_ack_subject(s, n, &parts)
        and ack_number(&parts, NUM_DELIVERED, &delivered)
        and ack_number(&parts, STREAM_SEQUENCE, &ack.stream_sequence)
        and ack_number(&parts, CONSUMER_SEQUENCE, &ack.consumer_sequence)
        and ack_number(&parts, TIMESTAMP, &ack.timestamp)
        and ack_number(&parts, NUM_PENDING, &ack.pending)
    ):
        return False
    n = parts.at[parts.base + STREAM_SEQUENCE] - s
    if n <= <Py_ssize_t>sizeof(reader.beginning):
        memcpy(reader.beginning, s, n)
        reader.size = n
    return True
