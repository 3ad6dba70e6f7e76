# SequenceChecker checks that the messages of a consumer come in their order, each of them
# once. GapTracker finds the missing messages of a push consumer.

cdef enum StopReason:  # for taking nothing more
    NOT_STOPPED
    AT_GAP
    AT_LAST

cdef tuple STOP_REASONS = (None, "gap", "last")


@cython.final
cdef class SequenceChecker:
    """The order in which the messages of one ordered consumer must come.

    A mailbox that has an order takes the next message and nothing else. Consumer sequences
    count by one, so a missing step is a missing message, and from there on nothing is
    taken. Messages up to stream sequence `after` have been read before, and are passed
    over. The order stops at `last`, and before the first sequence behind it. With `to_end`
    it notes when the server has no more messages before that.
    """

    cdef uint64_t consumer, stream  # `consumer_sequence`, `stream_sequence`
    cdef uint64_t last
    cdef bint to_end
    cdef int stop  # `stopped`: an index of `STOP_REASONS`
    cdef size_t passed_over, passed_over_bytes
    cdef int ran_dry
    cdef int notified
    cdef AckSubjectReader reader

    def __init__(
        self,
        after: int,
        *,
        last: int | None = None,
        to_end: bool = False,
        consumer_sequence: int = 0,
    ) -> None:
        self.stream = after
        self.consumer = consumer_sequence
        self.last = UINT64_MAX if last is None else last
        self.to_end = to_end

    def __repr__(self) -> str:
        return (
            f"<SequenceChecker {self.stopped or 'open'}, "
            f"stream_sequence={self.stream_sequence}, "
            f"consumer_sequence={self.consumer_sequence}>"
        )

    @property
    def consumer_sequence(self) -> int:
        """The last consumer sequence that has come."""
        return load_number_relaxed(&self.consumer)

    @property
    def stream_sequence(self) -> int:
        """The last stream sequence that was taken, and `after` until then."""
        return load_number_relaxed(&self.stream)

    @property
    def stopped(self) -> str | None:
        """The reason for taking nothing more: `gap` or `last`, or None until then."""
        return STOP_REASONS[load_int(&self.stop)]

    def take_passed_over(self) -> tuple[int, int]:
        """Return messages and bytes passed over since the last call."""
        # First, so that messages passed over between the two swaps are reported again.
        store_int(&self.notified, False)
        return swap_size(&self.passed_over, 0), swap_size(&self.passed_over_bytes, 0)

    def take_ran_dry(self) -> bool:
        """Return whether a message since the last call reported that nothing is behind it.

        Only its server has reported that, which may be behind the leader. Needs `to_end`.
        """
        return bool(swap_int(&self.ran_dry, False))

    cdef inline bint has_news(self) noexcept:
        return (
            self.stop != NOT_STOPPED
            or load_size_relaxed(&self.passed_over) != 0
            or load_int(&self.ran_dry)
        )

    cdef bint takes(self, Msg msg) noexcept:
        """Return whether it is the next one, which only a consumer's message can be."""
        cdef AckNumbers ack
        return self.stop == NOT_STOPPED and read_ack(
            &self.reader, msg.head + msg.subject_size, msg.reply_size, &ack
        ) and self.accepts(&ack, msg.wire_size())

    cdef bint accepts(self, AckNumbers* ack, size_t size) noexcept:
        """Return whether the message of `size` bytes with these numbers is the next one."""
        cdef bint taken = False
        if self.stop:
            return False
        if ack.consumer_sequence != self.consumer + 1:
            store_int(&self.stop, AT_GAP)
            return False
        if ack.stream_sequence > self.last:
            store_int(&self.stop, AT_LAST)
            return False
        store_number_relaxed(&self.consumer, self.consumer + 1)
        if ack.stream_sequence > self.stream:
            store_number_relaxed(&self.stream, ack.stream_sequence)
            taken = True
        else:
            add_size(&self.passed_over, 1)
            add_size(&self.passed_over_bytes, size)
        if ack.stream_sequence == self.last:
            store_int(&self.stop, AT_LAST)
        elif self.to_end and ack.pending == 0:
            store_int(&self.ran_dry, True)
        return taken


@cython.final
cdef class GapTracker:
    """The messages of a push consumer that have not come, by consumer sequence (ADR-15).

    Consumer sequences count by one, so that each missing step is a message that was sent
    and lost. A step back is no loss, because a new leader counts from what it knows, and a
    consumer that was reset from 1. Nothing is missing until `start` has set its position.
    """

    cdef uint64_t consumer, stream  # `consumer_sequence`, `stream_sequence`
    cdef uint64_t first, first_stream  # of the first message, if it came before `start`
    cdef bint started
    cdef list gaps
    cdef AckSubjectReader reader

    def __cinit__(self):
        self.gaps = []

    def __repr__(self) -> str:
        return (
            f"<GapTracker consumer_sequence={self.consumer_sequence}, "
            f"stream_sequence={self.stream_sequence}>"
        )

    @property
    def consumer_sequence(self) -> int:
        """The last consumer sequence that has come, or that a heartbeat has reported."""
        return self.read(&self.consumer)

    @property
    def stream_sequence(self) -> int:
        """The stream sequence that belongs to `consumer_sequence`."""
        return self.read(&self.stream)

    cdef uint64_t read(self, uint64_t* at) noexcept:
        cdef uint64_t number
        cdef Section section
        enter(&section, <PyObject*>self)
        number = at[0]
        leave(&section)
        return number

    def start(self, consumer_sequence: int, stream_sequence: int) -> bool:
        """Set what the consumer had sent before the start. True if there is a gap."""
        cdef uint64_t before = consumer_sequence
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.started = True
            if self.first == 0:
                self.consumer = before
                self.stream = stream_sequence
            elif self.first > before + 1:
                self.gaps.append(
                    (before + 1, self.first - 1, stream_sequence, self.first_stream)
                )
            return bool(self.gaps)
        finally:
            leave(&section)

    def on_heartbeat(self, consumer_sequence: int, stream_sequence: int) -> bool:
        """Take note of the last sequences in a heartbeat. Return whether there is a gap.

        Messages behind it in the same read have been followed by then, so a heartbeat is
        never a step back.
        """
        cdef uint64_t last = consumer_sequence
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if not self.started or last <= self.consumer:
                return False
            self.miss(last + 1, stream_sequence + 1)
            self.consumer = last
            self.stream = stream_sequence
            return True
        finally:
            leave(&section)

    def take_gaps(self) -> list[tuple[int, int, int, int]]:
        """Return the gaps since the last call.

        Each has the first and the last consumer sequence that is missing, and the stream
        sequences before and after it.
        """
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            gaps, self.gaps = self.gaps, []
            return gaps
        finally:
            leave(&section)

    cdef bint follow(self, Msg msg) except -1:
        """Take note of a message. Return whether a gap was found."""
        cdef AckNumbers ack
        cdef bint gap
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if not read_ack(
                &self.reader, msg.head + msg.subject_size, msg.reply_size, &ack
            ):
                return False
            gap = ack.consumer_sequence > self.consumer + 1
            if self.first == 0 and not self.started:
                self.first, self.first_stream = ack.consumer_sequence, ack.stream_sequence
                gap = False
            if gap:
                self.miss(ack.consumer_sequence, ack.stream_sequence)
            self.consumer = ack.consumer_sequence
            self.stream = ack.stream_sequence
            return gap and self.started
        finally:
            leave(&section)

    cdef int miss(self, uint64_t consumer_sequence, uint64_t stream_sequence) except -1:
        """Note that the messages between the last one and these sequences have not come."""
        self.gaps.append((
            self.consumer + 1, consumer_sequence - 1,
            self.stream, stream_sequence,
        ))
        return 0
