# Answers to direct gets (ADR-31): the headers that the server has added.

cdef enum:
    ADDED_STREAM
    ADDED_SUBJECT
    ADDED_SEQUENCE
    ADDED_TIME
    ADDED_PENDING  # this one and the next only in answers of several messages
    ADDED_PREVIOUS
    ADDED_OTHER


cdef int added_header(const char* s, Py_ssize_t n) noexcept nogil:
    """Return which of these headers a name is, or `ADDED_OTHER` for any other name."""
    if is_word(s, n, b"Nats-Stream", 11):
        return ADDED_STREAM
    if is_word(s, n, b"Nats-Subject", 12):
        return ADDED_SUBJECT
    if is_word(s, n, b"Nats-Sequence", 13):
        return ADDED_SEQUENCE
    if is_word(s, n, b"Nats-Time-Stamp", 15):
        return ADDED_TIME
    if is_word(s, n, b"Nats-Num-Pending", 16):
        return ADDED_PENDING
    if is_word(s, n, b"Nats-Last-Sequence", 18):
        return ADDED_PREVIOUS
    return ADDED_OTHER


cdef inline bint some_digits(
    const char* s, Py_ssize_t n, int64_t most, int64_t* number
) noexcept nogil:
    """Read a number of exactly `n` digits that is at most `most`."""
    cdef uint64_t value = 0
    if not parse_number(s, n, &value) or <int64_t>value > most:
        return False
    number[0] = <int64_t>value
    return True


cdef bint parse_time(const char* s, Py_ssize_t n, int64_t* microseconds) noexcept nogil:
    """Read RFC 3339, `2026-01-31T23:59:59.123456789Z`, as microseconds since 1970.

    Further digits are cut off. Return False for any other text, and for a time that a
    datetime in UTC cannot represent.
    """
    cdef int64_t year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0
    cdef int64_t fraction = 0, scale = 1_000_000, away = 0, of_hour = 0
    cdef int64_t of_month, era, of_era, days
    cdef Py_ssize_t i = 19
    if not (
        n >= 20
        and s[4] == 45 and s[7] == 45 and s[10] == 84 and s[13] == 58 and s[16] == 58
        and some_digits(s, 4, 9999, &year) and year
        and some_digits(s + 5, 2, 12, &month) and month
        and some_digits(s + 8, 2, 31, &day) and day
        and some_digits(s + 11, 2, 23, &hour)
        and some_digits(s + 14, 2, 59, &minute)
        and some_digits(s + 17, 2, 59, &second)
    ):
        return False
    if month == 2:
        of_month = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    else:
        of_month = 30 if month in (4, 6, 9, 11) else 31
    if day > of_month:
        return False
    if s[i] == 46:
        i += 1
        if i == n or not 48 <= s[i] <= 57:
            return False
        while i < n and 48 <= s[i] <= 57:
            if scale > 1:
                scale //= 10
                fraction += (s[i] - 48) * scale
            i += 1
    if n - i == 6 and s[i] in (43, 45) and s[i + 3] == 58:
        if not (
            some_digits(s + i + 1, 2, 23, &away)
            and some_digits(s + i + 4, 2, 59, &of_hour)
        ):
            return False
        away = (away * 60 + of_hour) * (60 if s[i] == 43 else -60)
    elif n - i != 1 or s[i] != 90:
        return False
    # Days since 1970, in years that begin in March, so that the leap day is their last day.
    if month <= 2:
        year -= 1
        month += 12
    era = year // 400
    of_era = year - era * 400
    days = (
        era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100
        + (153 * (month - 3) + 2) // 5 + day - 1 - 719_468
    )
    second += days * 86_400 + hour * 3600 + minute * 60 - away
    if not -719_162 * 86_400LL <= second < 2_932_897 * 86_400LL:  # the years 1 to 9999
        return False
    microseconds[0] = second * 1_000_000 + fraction
    return True


@cython.final
@cython.freelist(64)
cdef class DirectGetReply:
    """The headers of a server's answer to a direct get, read from a stored message."""

    cdef bytes block
    cdef Py_ssize_t stream_at, stream_size, own_size
    cdef readonly str subject
    cdef readonly uint64_t sequence, pending, previous
    cdef readonly int64_t timestamp_us
    cdef readonly bint batched, has_own

    @property
    def stream(self) -> str:
        return decode_text(PyBytes_AS_STRING(self.block) + self.stream_at, self.stream_size)

    @property
    def timestamp(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.timestamp_us)

    @property
    def own_block(self) -> bytes | None:
        """The header block of the message itself, None if it has none."""
        return self.block[:self.own_size] + b"\r\n" if self.has_own else None

    @property
    def operation(self) -> str:
        return operation_in(self.block) if self.has_own else PUT

    def __repr__(self) -> str:
        return f"<DirectGetReply {self.sequence} on {self.subject!r}>"


cdef struct Added:
    HeaderLine found[6]
    uint64_t sequence, pending, previous
    int64_t timestamp_us
    Py_ssize_t own_size  # bytes before them: the message's own block without its last line
    bint has_own


cdef void find_stream(const char* s, HeaderLine* subject, HeaderLine* stream) noexcept:
    """Find `Nats-Stream`, the first of the added headers, if no line begins with it.

    The server cuts two bytes off the block of the message, whatever they are, and appends
    its headers. If the block does not end with a blank line, the first added header
    therefore continues the last line of the block.
    """
    cdef const char* at = subject.name - 13
    while at >= s and memcmp(at, b"Nats-Stream: ", 13) != 0:
        at -= 1
    if at < s:
        return
    stream.name, stream.name_size = at, 11
    stream.value = at + 13
    stream.value_size = subject.name - stream.value - 1
    if stream.value_size and stream.value[stream.value_size - 1] == c"\r":
        stream.value_size -= 1


cdef const char* read_added(bytes block, bint batched, Added* added) noexcept:
    """Read the added headers of an answer. Return what is wrong with them, NULL if nothing.

    The server appends its headers to the block of the message, which any client has
    written. So they are read whatever the block contains, and however it begins. A message
    without `ADDED_PENDING` is accepted if `batched`, but it is none of several answers.
    """
    cdef HeaderLine line
    cdef const char* s
    cdef Py_ssize_t n, i
    cdef int which, known = ADDED_OTHER if batched else ADDED_PENDING
    memset(added, 0, sizeof(Added))
    if block is None:
        return b"no headers"
    s, n = PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block)
    i = line_end(s, n, 0) + 1
    while next_header_in(s, n, &i, &line, True):
        which = added_header(line.name, line.name_size)
        if which < known:  # the last one counts: the message may have some, too
            added.found[which] = line
    if (
        added.found[ADDED_STREAM].name == NULL
        and added.found[ADDED_SUBJECT].name != NULL
    ):
        find_stream(s, &added.found[ADDED_SUBJECT], &added.found[ADDED_STREAM])
    added.own_size = n
    for which in range(known):
        if added.found[which].name != NULL:
            added.own_size = min(added.own_size, added.found[which].name - s)
    added.has_own = added.own_size != 10 or memcmp(s, b"NATS/1.0\r\n", 10) != 0
    for which in range(ADDED_PENDING):
        if added.found[which].name == NULL:
            return b"not all of the headers that the server adds"
    if batched and added.found[ADDED_PENDING].name == NULL:
        return NULL
    line = added.found[ADDED_SEQUENCE]
    if not parse_number(line.value, line.value_size, &added.sequence):
        return b"its sequence is not a number of 64 bits"
    line = added.found[ADDED_TIME]
    if not parse_time(line.value, line.value_size, &added.timestamp_us):
        return b"its time cannot be read"
    # A header that is no number is read as 0, which never follows the previous answer.
    if batched:
        line = added.found[ADDED_PENDING]
        if not parse_number(line.value, line.value_size, &added.pending):
            added.pending = 0
        line = added.found[ADDED_PREVIOUS]
        if line.name == NULL or not parse_number(
            line.value, line.value_size, &added.previous
        ):
            added.previous = 0
    return NULL


@cython.annotation_typing(False)
def read_direct(Msg msg not None, *, bint batched = False) -> "DirectGetReply | None":
    cdef Added added
    cdef HeaderLine line
    cdef DirectGetReply answer
    cdef const char* wrong = read_added(msg.block, batched, &added)
    if wrong != NULL:
        raise ValueError((<bytes>wrong).decode())
    if batched and added.found[ADDED_PENDING].name == NULL:
        return None
    answer = DirectGetReply.__new__(DirectGetReply)
    line = added.found[ADDED_SUBJECT]
    answer.subject = decode_text(line.value, line.value_size)
    answer.sequence = added.sequence
    answer.pending = added.pending
    answer.previous = added.previous
    answer.timestamp_us = added.timestamp_us
    answer.has_own = added.has_own
    line = added.found[ADDED_STREAM]
    answer.block = msg.block
    answer.own_size = added.own_size
    answer.stream_at = line.value - PyBytes_AS_STRING(msg.block)
    answer.stream_size = line.value_size
    answer.batched = batched
    return answer
