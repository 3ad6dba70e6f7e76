# Where the messages of a consumer wait: besides what a mailbox does, those of pulls give
# credit, those of pushes have the server's words among them, some have to come in an order,
# and some are taken as rows.


@cython.final
@cython.no_gc_clear  # unread rows are counted here and lie in `columns`
cdef class JetStreamMailbox(Mailbox):
    """The backlog of the messages of a consumer."""

    cdef public Order order
    """Takes nothing but what is next in it; None: takes what comes."""
    cdef public bint lent
    """Whether its subscription outlives it: nobody is told that it has all it expected."""
    cdef public bint holds_acks
    """Whether acks may stay while more messages come, for the next pull or `LAZY_NS`.

    A server that has acks to deal with sends few messages at a time, and is quicker when
    it gets them together. It must not be waiting for them.
    """
    cdef public bint ackless
    """Whether the messages to come are from a consumer that wants no acks."""
    cdef readonly Columns columns
    """Takes the messages to come as rows, instead of the backlog; None: does not."""
    cdef size_t wake_count, wake_bytes  # of rows: the reader sleeps until so much is here
    cdef public Pin pin
    """Learns the pin id of the messages to come, which is not counted in their size."""
    # A continuous pull counts what its reader takes, and asks again after `credit`.
    # Less than none are taken when one is put back that was counted before.
    cdef int64_t taken, taken_bytes, credit, credit_bytes
    cdef public object on_credit
    """Called on the reading thread when it has taken its credit.

    Ctrl-C may raise there: the messages stay here, and the next take calls it again.
    """
    cdef public object on_status
    """Called on the I/O thread with each status message; they never queue here."""
    cdef public object on_order
    """Called on the I/O thread when `order` has stopped, or has passed messages over, and
    when `trail` has found a gap."""
    cdef public Trail trail
    """Learns which messages have not come; None: nobody asks."""
    cdef size_t controls  # how many of what is here are no messages
    cdef public object on_control
    """Called on the reading thread with a status that has a reply, or that was put here,
    when it would have been handed over; what it raises the reader gets."""
    cdef public object on_end
    """Called on the reading thread when it has found the end, once."""

    def __init__(
        self,
        outbox: Outbox,
        sid: int,
        *,
        max_messages: int = 0,
        max_bytes: int = 0,
        readers: int = 1,
    ) -> None:
        Mailbox.__init__(
            self, outbox, sid, max_messages=max_messages, max_bytes=max_bytes,
            readers=readers,
        )
        self.jetstream = True
        # An only reader reads the socket itself: to be woken costs more.
        self.self_reading = self.readers == 1

    def __dealloc__(self):
        self.forget_rows()

    def __len__(self) -> int:
        return self.count - self.controls

    @property
    def holds_control(self) -> bool:
        """Whether something waits here for `on_control`."""
        return self.controls > 0

    cdef Msg take(self):
        cdef Msg msg
        cdef size_t size
        if self.controls:
            self.pass_controls()
        if self.count == 0:
            return None
        check_fork(self.outbox.generation)  # the backlog is the parent's
        if self.columnar:
            raise ConcurrentUseError("these messages are being read as columns")
        msg = self.first_off()
        size = self.size_of(msg)
        self.leave(size)
        if self.on_credit is not None:
            self.taken += 1
            self.taken_bytes += size
            if self.taken >= self.credit or self.taken_bytes >= self.credit_bytes:
                try:
                    self.on_credit()
                except BaseException:
                    self.push(msg)
                    raise
        return msg

    cdef Msg first(self):
        if self.controls:
            self.pass_controls()
        if self.columnar:
            raise ConcurrentUseError("these messages are being read as columns")
        return Mailbox.first(self)

    cdef int push(self, Msg msg) except -1:
        cdef size_t size = self.size_of(msg)
        self.prepend(msg, size)
        self.taken -= 1
        self.taken_bytes -= size
        self.credit = self.credit_bytes = 0
        return 0

    cdef void forget_rows(self) noexcept:
        if self.columns is not None:
            self.columns.clear()
            self.count = 0

    cdef void discard(self) noexcept:
        self.forget_rows()
        self.drop_messages()
        self.controls = 0

    cdef int complete(self, Line line) except -1:
        return 0 if self.lent else Mailbox.complete(self, line)

    cdef int ended(self) except -1:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()
        return 0

    cdef bint keeps_acks(self) noexcept:
        return self.holds_acks and self.self_reading

    def take_rest(self, rest: "list | None" = None) -> list:
        if rest is None:
            rest = []
        if self.columns is not None:
            if self.count:
                rest.append(self.take_rows(whole=True))
            return rest
        self.take_all(rest)
        self.controls = 0
        return rest

    cdef int deliver(self, Msg msg, Line line) except -1:
        self.arrived = line.now
        # What was stored has a subject to ack to, whatever its publisher put into it.
        if msg.reply_size == 0 and msg.is_status():
            line.events.append((EVENT_STATUS, (self, msg)))
            return 0
        if self.closed:
            return 0
        if self.on_control is not None and msg.is_status() and not is_ack_subject(
            msg.head + msg.subject_size, msg.reply_size
        ):
            self.put(msg)
            if self.on_first is not None:
                line.events.append((EVENT_FIRST, self))
            return 0
        if self.trail is not None and self.trail.follow(msg):
            line.events.append((EVENT_ORDER, self))
        if self.columns is not None:
            return self.deliver_row(msg, line)
        if self.order is not None and not self.takes_in_order(msg, line):
            return 0
        if self.ackless:
            msg.ack_state = NEEDLESS
        if self.pin is not None:
            self.pin.learn(msg)
        return self.keep(msg, self.size_of(msg), self.count - self.controls, line)

    cdef inline size_t size_of(self, Msg msg) noexcept:
        """The size as the server counts it, for which a pin id is no part of it."""
        return msg.wire_size() - (pin_size(msg.block) if self.pin is not None else 0)

    # The server's words among the messages ----------------------------------------------

    def put(self, msg: Msg) -> None:
        """Have `on_control` called with it once all that is here now is handed over."""
        msg.ack_state = CONTROL
        self.append(msg)
        self.controls += 1
        self.wake_one()

    cdef int pass_controls(self) except -1:
        """Have what comes before the next message its call."""
        cdef Msg msg
        while self.count:
            msg = <Msg>self.ring[self.head]
            if msg.ack_state != CONTROL:
                return 0
            check_fork(self.outbox.generation)
            self.first_off()
            self.controls -= 1
            if self.on_control is not None:
                self.on_control(msg)
        return 0

    def need_no_acks(self) -> None:
        """What is here, and what is to come, is from a consumer that wants no acks."""
        cdef size_t i
        cdef Msg msg
        self.ackless = True
        for i in range(self.count):
            msg = <Msg>self.ring[(self.head + i) & (self.capacity - 1)]
            if msg.ack_state == UNACKED:
                msg.ack_state = NEEDLESS

    # In their order ---------------------------------------------------------------------

    cdef bint takes_in_order(self, Msg msg, Line line) except -1:
        cdef bint taken = self.order.takes(msg)
        self.tell_of_order(line)
        return taken

    cdef inline int tell_of_order(self, Line line) except -1:
        cdef Order order = self.order
        if (order.stopped is not None or order.passed_over) and not order.told:
            order.told = True
            line.events.append((EVENT_ORDER, self))
        return 0

    # Credit ---------------------------------------------------------------------------

    def take_counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Messages and bytes taken since the last call, and those that are here now."""
        counts = (self.taken, self.taken_bytes), (self.count, self.bytes)
        self.taken = self.taken_bytes = 0
        return counts

    def give_credit(self, messages: int, size: int) -> bool:
        """Have `on_credit` called after so many messages, or so many bytes.

        False when as many have been taken already, so that nobody would call it.
        """
        self.credit = messages
        self.credit_bytes = size
        return self.taken < self.credit and self.taken_bytes < self.credit_bytes

    # Rows instead of messages ---------------------------------------------------------

    def use_columns(self, columns: Columns) -> None:
        """Take what is here, and what comes from now on, as rows."""
        cdef Msg msg
        if self.columns is not None:
            raise ConcurrentUseError("these messages are being read as columns already")
        for msg in self.take_rest():
            self.count += add_row(columns, msg, self.size_of(msg), &self.bytes)
        self.columns = columns
        self.columnar = True
        # Rows come many to a wake-up, and at less cost in what the I/O thread reads.
        self.self_reading = False

    cdef bint take_row(self, Frame* frame, Line line) except -1:
        """Take a message as a row; False when it has to come as an object."""
        cdef AckNumbers ack
        if (
            self.closed or self.pin is not None or frame.reply_size == 0
            or not read_ack(&self.columns.reader, frame.reply, frame.reply_size, &ack)
        ):
            return False
        self.arrived = line.now
        self.add_row(frame, &ack, (
            frame.subject_size + frame.reply_size + frame.block_size + frame.data_size
        ), line)
        return True

    cdef int deliver_row(self, Msg msg, Line line) except -1:
        cdef AckNumbers ack
        cdef Frame frame
        if not read_ack(
            &self.columns.reader, msg.head + msg.subject_size, msg.reply_size, &ack
        ):
            return 0  # no message of a stream: it has no sequence
        if self.pin is not None:
            self.pin.learn(msg)
        frame_of(msg, &frame)
        return self.add_row(&frame, &ack, self.size_of(msg), line)

    cdef int add_row(
        self, Frame* frame, AckNumbers* ack, size_t size, Line line
    ) except -1:
        cdef bint taken
        if self.order is not None:
            taken = self.order.accepts(ack, size)
            self.tell_of_order(line)
            if not taken:
                return 0
        self.columns.append(frame, ack, size)
        self.delivered += 1
        self.count += 1
        self.bytes += size
        if self.count >= self.wake_count or self.bytes >= self.wake_bytes:
            self.wake_one()
        return self.end_if_complete(line)

    def await_rows(self, rows: int, size: int, deadline: float) -> bool:
        """Wait until so many rows, or so many bytes of them, are here: True.

        False at `deadline`, of the monotonic clock, or when it has ended: see `closed`.
        """
        cdef int64_t until = (
            <int64_t>(deadline * 1e9) if deadline < 1e9 else NEVER
        )
        cdef bint flushed = False
        self.wake_count = max(1, min(rows, <size_t>INT64_MAX))
        self.wake_bytes = max(1, min(size, <size_t>INT64_MAX))
        while self.count < self.wake_count and self.bytes < self.wake_bytes:
            if self.closed:
                if self.count == 0:
                    self.ended()
                return False
            if jsync_now() >= until:
                return False
            check_may_wait(self.outbox)
            if self.outbox.lazy_since and not flushed:  # see `wait`
                flushed = True
                self.outbox.flush_now()
                continue
            self.park(until)
        return True

    def take_rows(self, *, whole: bool = False) -> ArrowBatch:
        """What is here, up to the most rows of a chunk, or the whole of it."""
        cdef Columns columns = self.columns
        cdef Chunk* chunks
        cdef Chunk* last
        check_fork(self.outbox.generation)  # the rows are the parent's
        chunks = last = columns.take()
        while whole and last != NULL:
            last.next = columns.take()
            last = last.next
        last = chunks
        while last != NULL:
            self.count -= last.rows
            self.bytes -= last.wire
            self.taken += last.rows
            self.taken_bytes += last.wire
            last = last.next
        if self.on_credit is not None and (
            self.taken >= self.credit or self.taken_bytes >= self.credit_bytes
        ):
            try:
                self.on_credit()
            except BaseException:
                self.put_rows_back(columns, chunks)
                raise
        return batch_of(columns, chunks, self.outbox)

    cdef void put_rows_back(self, Columns columns, Chunk* chunks) noexcept:
        """The reader does not get the rows it has taken: they are the next rows again."""
        cdef Chunk* chunk = chunks
        while chunk != NULL:
            self.count += chunk.rows
            self.bytes += chunk.wire
            self.taken -= chunk.rows
            self.taken_bytes -= chunk.wire
            chunk = chunk.next
        self.credit = self.credit_bytes = 0
        columns.put_back(chunks)
        self.wake_one()
