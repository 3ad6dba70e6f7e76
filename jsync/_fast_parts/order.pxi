# Whether the messages of a consumer come in their order, each one and once.

cdef inline bint next_number(
    const char** p, const char* end, uint64_t* number
) noexcept nogil:
    """Read digits up to a dot or the end, and go behind that; False for anything else."""
    cdef const char* begin = p[0]
    cdef uint64_t value = 0
    cdef uint64_t digit
    while p[0] < end and p[0][0] != 46:
        digit = <uint64_t><unsigned char>p[0][0] - 48
        if digit > 9:
            return False
        value = value * 10 + digit
        p[0] += 1
    if p[0] == begin or p[0] - begin > 19:  # it might not fit
        return False
    p[0] += 1
    number[0] = value
    return True


@cython.final
cdef class Order:
    """The order in which the messages of one ordered consumer have to come.

    A mailbox that has one takes what is next and nothing else. Consumer sequences count
    by one: a step that is missing is a message that is missing, and from there on
    nothing is taken. Stream sequences at or before `after` have been read before, and are
    passed over. At `last`, and before the first sequence behind it, it stops; so it does
    when the server has no more, if `to_end`.
    """

    cdef readonly uint64_t consumer_sequence
    """The last that has come."""
    cdef readonly uint64_t stream_sequence
    """The last that was taken, and before that `after`."""
    cdef uint64_t last
    cdef bint to_end
    cdef readonly str stopped
    """Why nothing more is taken: `gap`, `last`, `end`; None while it is."""
    cdef size_t passed_over, passed_over_bytes
    cdef bint told
    cdef char beginning[128]  # of ack subjects, up to the stream sequence
    cdef Py_ssize_t beginning_size

    def __init__(
        self,
        after: int,
        *,
        last: int | None = None,
        to_end: bool = False,
        consumer_sequence: int = 0,
    ) -> None:
        self.stream_sequence = after
        self.consumer_sequence = consumer_sequence
        self.last = UINT64_MAX if last is None else last
        self.to_end = to_end

    def __repr__(self) -> str:
        return (
            f"<Order {self.stopped or 'open'}, stream_sequence={self.stream_sequence}, "
            f"consumer_sequence={self.consumer_sequence}>"
        )

    def take_passed_over(self) -> tuple[int, int]:
        """Messages and bytes passed over since the last call."""
        counts = self.passed_over, self.passed_over_bytes
        self.passed_over = self.passed_over_bytes = 0
        self.told = False
        return counts

    cdef bint read(
        self, const char* s, Py_ssize_t n,
        uint64_t* stream_sequence, uint64_t* consumer_sequence, uint64_t* pending,
    ) noexcept:
        """Read an ack subject, quickly when it begins as the last one did."""
        cdef AckSubject ack
        cdef const char* p = s + self.beginning_size
        cdef const char* end = s + n
        cdef uint64_t timestamp
        if (
            self.beginning_size
            and n > self.beginning_size
            and memcmp(s, self.beginning, self.beginning_size) == 0
            and next_number(&p, end, stream_sequence)
            and next_number(&p, end, consumer_sequence)
            and next_number(&p, end, &timestamp)
            and next_number(&p, end, pending)
        ):
            return True
        if not (
            split_ack_subject(s, n, &ack)
            and ack_number(&ack, STREAM_SEQUENCE, stream_sequence)
            and ack_number(&ack, CONSUMER_SEQUENCE, consumer_sequence)
            and ack_number(&ack, NUM_PENDING, pending)
        ):
            return False
        n = ack.at[ack.base + STREAM_SEQUENCE] - s
        if n <= <Py_ssize_t>sizeof(self.beginning):
            memcpy(self.beginning, s, n)
            self.beginning_size = n
        return True

    cdef bint takes(self, Msg msg) noexcept:
        """Whether it is the next one; anything but a consumer's message is not."""
        cdef uint64_t stream_sequence, consumer_sequence, pending
        cdef bint taken = False
        if self.stopped is not None or not self.read(
            msg.head + msg.subject_size, msg.reply_size,
            &stream_sequence, &consumer_sequence, &pending,
        ):
            return False
        if consumer_sequence != self.consumer_sequence + 1:
            self.stopped = "gap"
            return False
        if stream_sequence > self.last:
            self.stopped = "last"
            return False
        self.consumer_sequence += 1
        if stream_sequence > self.stream_sequence:
            self.stream_sequence = stream_sequence
            taken = True
        else:
            self.passed_over += 1
            self.passed_over_bytes += msg.wire_size()
        if stream_sequence == self.last:
            self.stopped = "last"
        elif self.to_end and pending == 0:
            self.stopped = "end"
        return taken
