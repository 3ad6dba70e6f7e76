# The mailbox of a consumer. In addition to the work of a plain mailbox, mailboxes of pulls
# give credit, those of pushes queue control messages of the server among the others, some
# accept messages in one order only, and some take messages as rows.


@cython.final
@cython.no_gc_clear  # unread rows are counted here and lie in `columns`
cdef class JetStreamMailbox(Mailbox):
    """The backlog of the messages of a consumer."""

    cdef SequenceChecker _order
    cdef public bint lent
    """True if the subscription outlives it. Then no event reports that all has come."""
    cdef public bint holds_acks
    """True if acks may stay while more messages come, until the next pull or `LAZY_NS`.

    A server that has acks to process sends few messages at a time, and is faster if it
    gets the acks together. It must not be waiting for them.
    """
    cdef public bint ackless
    """True if the messages to come are from a consumer that wants no acks."""
    cdef readonly RowBuffer columns
    """Takes the messages to come as rows, instead of the backlog. None: not in use."""
    cdef size_t wake_count, wake_bytes  # the reader of rows sleeps until that much is here
    cdef public PinId pin
    """Learns the pin id of the messages to come. The id is not counted in their size."""
    # A continuous pull counts what its reader takes, and requests more after `credit`. The
    # counts become negative when a message is put back that was counted before.
    cdef int64_t taken, taken_bytes, credit, credit_bytes
    cdef object _on_credit
    cdef object _on_status
    cdef object _on_order
    cdef GapTracker _trail
    cdef object _on_control
    cdef object _on_end

    def __init__(
        self,
        write_buffer: WriteBuffer,
        sid: int,
        *,
        max_messages: int = 0,
        max_bytes: int = 0,
        readers: int = 1,
    ) -> None:
        Mailbox.__init__(
            self, write_buffer, sid, max_messages=max_messages, max_bytes=max_bytes,
            readers=readers,
        )
        self.jetstream = True
        # A single reader reads the socket itself, because to be woken costs more.
        store_int_relaxed(&self.self_reading, self.readers == 1)

    def __dealloc__(self):
        self.forget_rows()

    def __len__(self) -> int:
        cdef size_t count
        cdef Section section
        enter(&section, <PyObject*>self)
        count = self.count - self.controls
        leave(&section)
        return count

    @property
    def order(self) -> SequenceChecker | None:
        """Accepts the next message in order and drops others. None: all are accepted."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._order
        finally:
            leave(&section)

    @order.setter
    def order(self, order: SequenceChecker | None) -> None:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self._order = order
        finally:
            leave(&section)

    @property
    def trail(self) -> GapTracker | None:
        """Learns which messages are missing. None: gaps are not wanted."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._trail
        finally:
            leave(&section)

    @trail.setter
    def trail(self, trail: GapTracker | None) -> None:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self._trail = trail
        finally:
            leave(&section)

    @property
    def on_credit(self) -> object:
        """Called on the reading thread when it has taken its credit.

        Ctrl-C may raise there. The messages then stay here, and the next take calls again.
        """
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._on_credit
        finally:
            leave(&section)

    @on_credit.setter
    def on_credit(self, call: object) -> None:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self._on_credit = call
        finally:
            leave(&section)

    @property
    def on_status(self) -> object:
        """Called on the I/O thread with each status message, which is never queued here."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._on_status
        finally:
            leave(&section)

    @on_status.setter
    def on_status(self, call: object) -> None:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self._on_status = call
        finally:
            leave(&section)

    @property
    def on_order(self) -> object:
        """Called on the I/O thread when `order` has stopped, has passed messages over, or
        has learned that the server has no more, and when `trail` has found a gap."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._on_order
        finally:
            leave(&section)

    @on_order.setter
    def on_order(self, call: object) -> None:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self._on_order = call
        finally:
            leave(&section)

    @property
    def on_control(self) -> object:
        """Called on the reading thread with a control message when its turn comes: a status
        that has a reply, or a message of `put`. The reader gets any exception."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._on_control
        finally:
            leave(&section)

    @on_control.setter
    def on_control(self, call: object) -> None:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self._on_control = call
        finally:
            leave(&section)

    @property
    def on_end(self) -> object:
        """Called once, on the reading thread, when it has found the end."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._on_end
        finally:
            leave(&section)

    @on_end.setter
    def on_end(self, call: object) -> None:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self._on_end = call
        finally:
            leave(&section)

    @property
    def holds_control(self) -> bool:
        """True if a message waits here for `on_control`."""
        cdef bint some
        cdef Section section
        enter(&section, <PyObject*>self)
        some = self.controls > 0
        leave(&section)
        return some

    cdef Msg take(self):
        cdef Msg msg
        cdef size_t size
        cdef bint due = False
        cdef Section section
        while True:
            enter(&section, <PyObject*>self)
            if not self.controls or not self.control_first():
                break
            leave(&section)
            self.pass_controls()
        if self.count == 0:
            leave(&section)
            return None
        if self.columnar or self.write_buffer.generation != jsync_forks:
            leave(&section)
            self.check_rows()
        msg = self.first_off()
        size = self.size_of(msg)
        self.leave(size)
        if self._on_credit is not None:
            self.taken += 1
            self.taken_bytes += size
            due = self.taken >= self.credit or self.taken_bytes >= self.credit_bytes
        leave(&section)
        if due:
            try:
                self.ask_credit()
            except BaseException:
                self.push(msg)
                raise
        return msg

    cdef inline bint control_first(self) noexcept:
        return self.count > 0 and (<Msg>self.ring[self.head]).ack_state == CONTROL

    cdef int check_rows(self) except -1:
        """Raise an error, because no message may be taken now."""
        # In a forked child the backlog is the parent's.
        check_fork(self.write_buffer.generation)
        raise ConcurrentUseError("these messages are being read as columns")

    cdef int ask_credit(self) except -1:
        call = self.on_credit
        if call is not None:
            call()
        return 0

    cdef Msg first(self):
        cdef Msg msg
        while True:
            if PARALLEL or self.controls:
                self.pass_controls()
            if load_int_relaxed(&self.columnar):
                raise ConcurrentUseError("these messages are being read as columns")
            msg = Mailbox.first(self)
            if msg is None or msg.ack_state != CONTROL:
                return msg

    cdef int push(self, Msg msg) except -1:
        cdef size_t size = self.size_of(msg)
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.prepend(msg, size)
            self.taken -= 1
            self.taken_bytes -= size
            self.credit = self.credit_bytes = 0
            return 0
        finally:
            leave(&section)

    cdef void forget_rows(self) noexcept:
        if self.columns is not None:
            self.columns.clear()
            self.count = 0

    cdef void discard(self) noexcept:
        self.forget_rows()
        self.drop_messages()
        self.controls = 0

    cdef int complete(self, AbstractIOLoop io_loop) except -1:
        return 0 if self.lent else Mailbox.complete(self, io_loop)

    cdef int ended(self) except -1:
        cdef Section section
        enter(&section, <PyObject*>self)
        on_end, self._on_end = self._on_end, None
        leave(&section)
        if on_end is not None:
            on_end()
        return 0

    cdef bint has_enough(self) noexcept:
        if self.columnar:
            return (
                self.count >= self.wake_count or self.held >= self.wake_bytes
                or (self.count > 0 and self.credit == 1)
            )
        return self.count > 0

    cdef bint has_enough_now(self) noexcept:
        cdef bint enough
        cdef Section section
        enter(&section, <PyObject*>self)
        enough = self.has_enough()
        leave(&section)
        return enough

    cdef bint keeps_acks(self) noexcept:
        return self.holds_acks and load_int_relaxed(&self.self_reading)

    def take_rest(self, rest: "list | None" = None) -> list:
        if rest is None:
            rest = []
        if load_int_relaxed(&self.columnar):
            if self.count_now():
                rest.append(self.take_rows(whole=True))
            return rest
        return Mailbox.take_rest(self, rest)

    cdef int deliver(self, Msg msg, AbstractIOLoop io_loop) except -1:
        cdef GapTracker trail
        store_time_relaxed(&self.arrived, io_loop.now)
        # A stored message has an ack subject as its reply, whatever its publisher has set.
        if msg.reply_size == 0 and msg.is_status():
            io_loop.events.append((EVENT_STATUS, (self, msg)))
            return 0
        if self.over:
            return 0
        if self._on_control is not None and msg.is_status() and not is_ack_subject(
            msg.head + msg.subject_size, msg.reply_size
        ):
            if self.put_control(msg):
                io_loop.events.append((EVENT_CALL, self.queue.on_starved))
            if self._on_first is not None:
                io_loop.events.append((EVENT_FIRST, self))
            return 0
        if self._trail is not None:
            trail = self._trail  # a reference: `follow` may open the section for a moment
            if trail.follow(msg):
                io_loop.events.append((EVENT_ORDER, self))
        if self.columns is not None:
            return self.deliver_row(msg, io_loop)
        if self._order is not None and not self.takes_in_order(msg, io_loop):
            return 0
        if self.ackless:
            msg.ack_state = NEEDLESS
        if self.pin is not None:
            self.pin.update(msg)
        if PARALLEL and self.over:
            return 0
        return self.keep(msg, self.size_of(msg), self.count - self.controls, io_loop)

    cdef inline size_t size_of(self, Msg msg) noexcept:
        """Return the size as the server counts it, without a pin id."""
        return msg.wire_size() - (pin_size(msg.block) if self.pin is not None else 0)

    # Control messages of the server ---------------------------------------------------

    def put(self, msg: Msg) -> None:
        """Queue a message for `on_control`, behind all messages that are here now."""
        cdef bint starved
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            starved = self.put_control(msg)
        finally:
            leave(&section)
        if starved:
            self.queue.on_starved()

    cdef int put_control(self, Msg msg) except -1:
        """Queue a control message. Called in the section. Returns what `wake_one` does."""
        msg.ack_state = CONTROL
        self.append(msg)
        self.controls += 1
        return self.wake_one()

    cdef int pass_controls(self) except -1:
        """Call `on_control` with each control message in front of the next message."""
        cdef Msg msg
        cdef object call
        cdef Section section
        while True:
            enter(&section, <PyObject*>self)
            if not self.control_first():
                leave(&section)
                return 0
            if self.write_buffer.generation != jsync_forks:
                leave(&section)
                check_fork(self.write_buffer.generation)
            msg = self.first_off()
            self.controls -= 1
            call = self._on_control
            leave(&section)
            if call is not None:
                call(msg)

    def need_no_acks(self) -> None:
        """Mark the messages here, and those to come, as needing no acks."""
        cdef size_t i
        cdef Msg msg
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.ackless = True
            for i in range(self.count):
                msg = <Msg>self.ring[(self.head + i) & (self.capacity - 1)]
                if msg.ack_state == UNACKED:
                    msg.ack_state = NEEDLESS
        finally:
            leave(&section)

    def waiting(self) -> list:
        """Return the messages that wait for a reader. They stay here."""
        cdef size_t i
        cdef Msg msg
        cdef list found = []
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.columns is None:  # rows are no messages
                for i in range(self.count):
                    msg = <Msg>self.ring[(self.head + i) & (self.capacity - 1)]
                    if msg.ack_state != CONTROL:
                        found.append(msg)
            return found
        finally:
            leave(&section)

    # In their order ---------------------------------------------------------------------

    cdef bint takes_in_order(self, Msg msg, AbstractIOLoop io_loop) except -1:
        cdef bint taken = self._order.takes(msg)
        self.tell_of_order(io_loop)
        return taken

    cdef inline int tell_of_order(self, AbstractIOLoop io_loop) except -1:
        cdef SequenceChecker order = self._order
        if order.has_news() and not load_int(&order.notified):
            store_int(&order.notified, True)
            io_loop.events.append((EVENT_ORDER, self))
        return 0

    # Credit ---------------------------------------------------------------------------

    def take_counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return messages and bytes taken since the last call, and those here now."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            counts = (self.taken, self.taken_bytes), (self.count, self.held)
            self.taken = self.taken_bytes = 0
            return counts
        finally:
            leave(&section)

    def give_credit(self, messages: int, size: int) -> bool:
        """Have `on_credit` called after so many messages, or so many bytes.

        Return False if as many have been taken already, because no call would follow.

        With a credit of one message, no more may come before the reader takes what is here.
        So a reader that waits for more rows is woken.
        """
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.credit = messages
            self.credit_bytes = size
            if self.columnar and self.count > 0 and messages == 1:
                self.wake_one()
            return self.taken < self.credit and self.taken_bytes < self.credit_bytes
        finally:
            leave(&section)

    # Rows instead of messages ---------------------------------------------------------

    def use_columns(self, columns: RowBuffer) -> None:
        """Take the messages here, and those to come, as rows."""
        cdef Msg msg
        cdef list before = []
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.columns is not None:
                raise ConcurrentUseError("these messages are being read as columns already")
            self.take_all(before)
            for msg in before:
                self.count += add_row(columns, msg, self.size_of(msg), &self.held)
            self.columns = columns
            store_int_relaxed(&self.columnar, True)
            # Many rows come with each wake-up, and cost less if the I/O thread reads them.
            store_int_relaxed(&self.self_reading, False)
        finally:
            leave(&section)

    cdef bint take_row(self, Frame* frame, AbstractIOLoop io_loop) except -1:
        """Take a message as a row. Return False if it must come as an object."""
        cdef AckNumbers ack
        if (
            self.over or self.pin is not None or frame.reply_size == 0
            or not read_ack(&self.columns.reader, frame.reply, frame.reply_size, &ack)
        ):
            return False
        store_time_relaxed(&self.arrived, io_loop.now)
        self.add_row(frame, &ack, (
            frame.subject_size + frame.reply_size + frame.block_size + frame.data_size
        ), io_loop)
        return True

    cdef int deliver_row(self, Msg msg, AbstractIOLoop io_loop) except -1:
        cdef AckNumbers ack
        cdef Frame frame
        if not read_ack(
            &self.columns.reader, msg.head + msg.subject_size, msg.reply_size, &ack
        ):
            return 0  # no message of a stream: it has no sequence
        if self.pin is not None:
            self.pin.update(msg)
        frame_of(msg, &frame)
        return self.add_row(&frame, &ack, self.size_of(msg), io_loop)

    cdef int add_row(
        self, Frame* frame, AckNumbers* ack, size_t size, AbstractIOLoop io_loop
    ) except -1:
        cdef bint taken
        if self._order is not None:
            taken = self._order.accepts(ack, size)
            self.tell_of_order(io_loop)
            if not taken:
                return 0
        self.columns.append(frame, ack, size)
        self.delivered_count += 1
        self.delivered_bytes += size
        self.count += 1
        self.held += size
        if self.count >= self.wake_count or self.held >= self.wake_bytes:
            self.wake_one()
        return self.end_if_complete(io_loop)

    def await_rows(self, rows: int, size: int, deadline: float) -> bool:
        """Wait until so many rows, or so many bytes of them, are here. Then return True.

        Return False at `deadline`, by the monotonic clock, or at the end: see `closed`.
        """
        cdef int64_t until = (
            <int64_t>(deadline * 1e9) if deadline < 1e9 else NEVER
        )
        cdef bint flushed = False
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.wake_count = max(1, min(rows, <size_t>INT64_MAX))
            self.wake_bytes = max(1, min(size, <size_t>INT64_MAX))
        finally:
            leave(&section)
        while not self.has_enough_now():
            if load_int_relaxed(&self.over):
                if self.count_now() == 0:
                    self.ended()
                return False
            if jsync_now() >= until:
                return False
            check_may_wait(self.write_buffer)
            # See `wait`.
            if load_time_relaxed(&self.write_buffer.lazy_since) and not flushed:
                flushed = True
                self.write_buffer.flush_now()
                continue
            self.park(until)
        return True

    def take_rows(self, *, whole: bool = False) -> ArrowBatch:
        """Return the rows that are here: the next chunk, or the whole of them."""
        cdef RowBuffer columns = self.columns
        cdef ColumnChunk* chunks
        cdef ColumnChunk* last
        cdef bint due = False
        cdef Section section
        # In a forked child the rows are the parent's.
        check_fork(self.write_buffer.generation)
        enter(&section, <PyObject*>self)
        chunks = last = columns.take()
        while whole and last != NULL:
            last.next = columns.take()
            last = last.next
        last = chunks
        while last != NULL:
            self.count -= last.rows
            self.held -= last.wire
            self.taken += last.rows
            self.taken_bytes += last.wire
            last = last.next
        if self._on_credit is not None:
            due = self.taken >= self.credit or self.taken_bytes >= self.credit_bytes
        leave(&section)
        if due:
            try:
                self.ask_credit()
            except BaseException:
                self.put_rows_back(columns, chunks)
                raise
        return batch_of(columns, chunks, self.write_buffer)

    cdef void put_rows_back(self, RowBuffer columns, ColumnChunk* chunks) noexcept:
        """Put back rows that were taken but do not reach the reader, as the next rows."""
        cdef ColumnChunk* chunk = chunks
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            while chunk != NULL:
                self.count += chunk.rows
                self.held += chunk.wire
                self.taken -= chunk.rows
                self.taken_bytes -= chunk.wire
                chunk = chunk.next
            self.credit = self.credit_bytes = 0
            columns.put_back(chunks)
            self.wake_one()
        finally:
            leave(&section)
