# Whether the messages of a consumer come in their order, each one and once: Order; and
# which of a push consumer's are missing: Trail.

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


cdef class Sequences:
    """Reads the ack subjects of one consumer, quickly when one begins as the last did."""

    cdef char beginning[128]  # up to the stream sequence
    cdef Py_ssize_t beginning_size

    @cython.final
    cdef bint read(
        self, const char* s, Py_ssize_t n,
        uint64_t* stream_sequence, uint64_t* consumer_sequence, uint64_t* pending,
    ) noexcept:
        """The sequences and what is pending; False for what is no ack subject."""
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


@cython.final
cdef class Order(Sequences):
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


@cython.final
cdef class Trail(Sequences):
    """Which messages of a push consumer have not come, by its consumer sequences (ADR-15).

    They count by one, so that each step that is missing is a message that was sent and
    lost. A step back is none: a new leader counts from what it knows, and a consumer that
    was reset from 1. Nothing is missed before `begin` has said where the consumer was.
    """

    cdef readonly uint64_t consumer_sequence
    """The last that has come, or that a heartbeat has told of."""
    cdef readonly uint64_t stream_sequence
    """That of the stream beside it."""
    cdef uint64_t first, first_stream  # the first message, until it has begun
    cdef bint begun
    cdef list gaps

    def __cinit__(self):
        self.gaps = []

    def __repr__(self) -> str:
        return (
            f"<Trail consumer_sequence={self.consumer_sequence}, "
            f"stream_sequence={self.stream_sequence}>"
        )

    def begin(self, consumer_sequence: int, stream_sequence: int) -> bool:
        """What the consumer had sent before it was listened to; whether a gap is there."""
        cdef uint64_t before = consumer_sequence
        self.begun = True
        if self.first == 0:
            self.consumer_sequence = before
            self.stream_sequence = stream_sequence
        elif self.first > before + 1:
            self.gaps.append(
                (before + 1, self.first - 1, stream_sequence, self.first_stream)
            )
        return bool(self.gaps)

    def heard(self, consumer_sequence: int, stream_sequence: int) -> bool:
        """A heartbeat's word on what was sent last; whether a gap has been found.

        What came behind it in the same read has been followed by then: it is never a
        step back.
        """
        cdef uint64_t last = consumer_sequence
        if not self.begun or last <= self.consumer_sequence:
            return False
        self.miss(last + 1, stream_sequence + 1)
        self.consumer_sequence = last
        self.stream_sequence = stream_sequence
        return True

    def take_gaps(self) -> list[tuple[int, int, int, int]]:
        """The gaps since the last call.

        Each as the first and the last consumer sequence that is missing, and the stream
        sequences before and after it.
        """
        gaps, self.gaps = self.gaps, []
        return gaps

    cdef bint follow(self, Msg msg) except -1:
        """Take note of a message; whether a gap was found."""
        cdef uint64_t stream_sequence, consumer_sequence, pending
        if not self.read(
            msg.head + msg.subject_size, msg.reply_size,
            &stream_sequence, &consumer_sequence, &pending,
        ):
            return False
        cdef bint gap = consumer_sequence > self.consumer_sequence + 1
        if self.first == 0 and not self.begun:
            self.first, self.first_stream = consumer_sequence, stream_sequence
            gap = False
        if gap:
            self.miss(consumer_sequence, stream_sequence)
        self.consumer_sequence = consumer_sequence
        self.stream_sequence = stream_sequence
        return gap and self.begun

    cdef int miss(self, uint64_t consumer_sequence, uint64_t stream_sequence) except -1:
        """What is before that, and behind the last, has not come."""
        self.gaps.append((
            self.consumer_sequence + 1, consumer_sequence - 1,
            self.stream_sequence, stream_sequence,
        ))
        return 0
