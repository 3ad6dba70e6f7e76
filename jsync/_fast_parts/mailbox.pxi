# Where messages wait for their reader.
#
# The I/O thread delivers and wakes; readers take. Both hold the GIL and neither runs
# bytecode in between, so a mailbox needs no lock.


cdef class Sink:
    """Something that messages of one sid are delivered to."""

    cdef bint jetstream  # the parser makes JetStreamMsg for it
    cdef bint columnar   # it is a mailbox that takes messages without objects

    cdef int deliver(self, Msg msg, Line line) except -1:
        raise NotImplementedError


cdef int check_may_wait(Outbox outbox) except -1:
    check_fork(outbox.generation)
    if PyThread_get_thread_ident() == outbox.io_thread:
        raise BlockingCallError(
            "a blocking call on the connection's I/O thread would wait for itself; "
            "finalisers may run there: hand the work to a thread of yours"
        )
    return 0


cdef struct Seat:  # of a thread that waits
    Park park
    bint taken  # from before it parks until it runs again


@cython.final
@cython.no_gc_clear  # unread rows are counted here and lie in `columns`
cdef class Mailbox(Sink):
    """The backlog of one subscription, for `readers` reading threads at a time."""

    cdef PyObject** ring  # a power of two; NULL until the first message
    cdef size_t capacity, head, count
    cdef Seat seat
    cdef Seat* seats  # that one, or several
    cdef int readers
    cdef Outbox outbox
    cdef object error
    cdef public uint64_t sid
    """Of the subscription that delivers here; there may be another one later."""
    cdef readonly str subject
    """What was published to, when these are replies."""
    cdef public Order order
    """Takes nothing but what is next in it; None: takes what comes."""
    cdef readonly size_t bytes
    cdef readonly uint64_t delivered, dropped
    cdef public size_t max_messages, max_bytes
    cdef uint64_t expected  # end after so many, 0: never
    cdef bint slow
    cdef readonly bint closed
    cdef public bint lent
    """Whether its subscription outlives it: nobody is told that it has all it expected."""
    cdef int64_t arrived
    cdef bint brisk  # the last wait was a short one
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
    cdef public object on_first
    """Called on the I/O thread when the first message has come, once."""
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
        subject: str = "",
        jetstream: bool = False,
        max_messages: int = 0,
        max_bytes: int = 0,
        readers: int = 1,
    ) -> None:
        if self.seats != NULL:
            raise RuntimeError("a mailbox is made once")
        self.readers = readers
        self.seats = &self.seat
        if self.readers > 1:
            self.seats = <Seat*>PyMem_RawCalloc(self.readers, sizeof(Seat))
            if self.seats == NULL:
                raise MemoryError
        self.outbox = outbox
        self.sid = sid
        self.subject = str(subject)
        self.jetstream = jetstream
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.arrived = jsync_now()

    def __dealloc__(self):
        self.discard()
        PyMem_RawFree(self.ring)
        cdef int i
        if self.seats != NULL:
            for i in range(self.readers):
                park_free(&self.seats[i].park)
            if self.seats != &self.seat:
                PyMem_RawFree(self.seats)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return (
            f"<Mailbox {self.sid} {state}, {self.count} messages, "
            f"{self.dropped} dropped>"
        )

    def __len__(self) -> int:
        return self.count - self.controls

    @property
    def holds_control(self) -> bool:
        """Whether something waits here for `on_control`."""
        return self.controls > 0

    @property
    def full(self) -> bool:
        """Whether all that was expected has come: see `end_after`."""
        return self.expected > 0 and self.delivered >= self.expected

    @property
    def last_arrival(self) -> float:
        """When something last came, a status included, by the monotonic clock."""
        return self.arrived / 1e9

    cdef void discard(self) noexcept:
        if self.columns is not None:
            self.columns.clear()
            self.count = 0
        while self.count:
            Py_DECREF(<object>self.ring[self.head])
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
        self.bytes = self.controls = 0

    cdef int grow(self) except -1:
        cdef size_t capacity = self.capacity * 2 if self.capacity else 16
        cdef size_t i
        cdef PyObject** ring = <PyObject**>PyMem_RawMalloc(capacity * sizeof(PyObject*))
        if ring == NULL:
            raise MemoryError
        for i in range(self.count):
            ring[i] = self.ring[(self.head + i) & (self.capacity - 1)]
        PyMem_RawFree(self.ring)
        self.ring = ring
        self.head = 0
        self.capacity = capacity
        return 0

    cdef int deliver(self, Msg msg, Line line) except -1:
        cdef size_t size
        self.arrived = line.now
        # What was stored has a subject to ack to, whatever its publisher put into it.
        if self.jetstream and msg.reply_size == 0 and msg.is_status():
            line.events.append(("STATUS", (self, msg)))
            return 0
        if self.closed:
            return 0
        if self.on_control is not None and msg.is_status() and not is_ack_subject(
            msg.head + msg.subject_size, msg.reply_size
        ):
            self.put(msg)
            if self.on_first is not None:
                line.events.append(("FIRST", self))
            return 0
        if self.trail is not None and self.trail.follow(msg):
            line.events.append(("ORDER", self))
        if self.columns is not None:
            return self.deliver_row(msg, line)
        if self.order is not None and not self.takes_in_order(msg, line):
            return 0
        if self.jetstream:
            if self.ackless:
                msg.ack_state = NEEDLESS
            if self.pin is not None:
                self.pin.learn(msg)
        size = self.size_of(msg)
        self.delivered += 1
        if (self.max_messages and self.count - self.controls >= self.max_messages) or (
            self.max_bytes and self.bytes + size > self.max_bytes
        ):
            self.dropped += 1
            if not self.slow:
                self.slow = True
                line.events.append(("SLOW", self))
        else:
            self.append(msg)
            self.bytes += size
            self.wake_one()
        self.end_if_complete(line)
        return 0

    cdef inline int end_if_complete(self, Line line) except -1:
        if self.expected and self.delivered >= self.expected:
            self.closed = True
            self.wake_all()
            if not self.lent:
                line.endings.append(("ENDED", self))
                line.ended += 1
        if self.on_first is not None:
            line.events.append(("FIRST", self))
            self.wake_one()
        return 0

    cdef inline int append(self, Msg msg) except -1:
        if self.count == self.capacity:
            self.grow()
        Py_INCREF(msg)
        self.ring[(self.head + self.count) & (self.capacity - 1)] = <PyObject*>msg
        self.count += 1
        return 0

    def put(self, msg: Msg) -> None:
        """Have `on_control` called with it once all that is here now is handed over."""
        msg.ack_state = CONTROL
        self.append(msg)
        self.controls += 1
        self.wake_one()

    cdef inline bint ready(self) except -1:
        """Whether there is a message; what comes before it has its call."""
        if self.controls:
            self.pass_controls()
        return self.count > 0

    cdef int pass_controls(self) except -1:
        cdef Msg msg
        while self.count:
            msg = <Msg>self.ring[self.head]
            if msg.ack_state != CONTROL:
                return 0
            check_fork(self.outbox.generation)
            Py_DECREF(msg)  # the ring's reference; the local one holds it
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
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

    cdef int ended(self) except -1:
        """The reader has found the end."""
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()
        return 0

    cdef bint takes_in_order(self, Msg msg, Line line) except -1:
        cdef bint taken = self.order.takes(msg)
        self.tell_of_order(line)
        return taken

    cdef inline int tell_of_order(self, Line line) except -1:
        cdef Order order = self.order
        if (order.stopped is not None or order.passed_over) and not order.told:
            order.told = True
            line.events.append(("ORDER", self))
        return 0

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

    # ----------------------------------------------------------------------------------

    cdef inline size_t size_of(self, Msg msg) noexcept:
        """The size as the server counts it, for which a pin id is no part of it."""
        return msg.wire_size() - (pin_size(msg.block) if self.pin is not None else 0)

    cdef inline void wake_one(self) noexcept:
        cdef int i
        for i in range(self.readers):
            if self.seats[i].park.waiting:
                park_wake(&self.seats[i].park)
                return

    cdef void wake_all(self) noexcept:
        cdef int i
        for i in range(self.readers):
            park_wake(&self.seats[i].park)

    cdef Msg pop(self):
        check_fork(self.outbox.generation)  # the backlog is the parent's
        if self.columnar:
            raise ConcurrentUseError("these messages are being read as columns")
        cdef Msg msg = <Msg>self.ring[self.head]
        Py_DECREF(msg)  # the ring's reference; the local one holds it
        self.head = (self.head + 1) & (self.capacity - 1)
        self.count -= 1
        self.bytes -= self.size_of(msg)
        if self.slow and self.count * 2 <= self.max_messages and (
            self.bytes * 2 <= self.max_bytes or not self.max_bytes
        ):
            self.slow = False
        if self.on_credit is not None:
            self.taken += 1
            self.taken_bytes += self.size_of(msg)
            if self.taken >= self.credit or self.taken_bytes >= self.credit_bytes:
                try:
                    self.on_credit()
                except BaseException:
                    self.push(msg)
                    raise
        return msg

    cdef int push(self, Msg msg) except -1:
        """The reader does not get what it has taken: it is the next message again."""
        cdef size_t size = self.size_of(msg)
        if self.count == self.capacity:
            self.grow()
        self.head = (self.head - 1) & (self.capacity - 1)
        Py_INCREF(msg)
        self.ring[self.head] = <PyObject*>msg
        self.count += 1
        self.bytes += size
        self.taken -= 1
        self.taken_bytes -= size
        self.credit = self.credit_bytes = 0
        self.wake_one()
        return 0

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

    cdef Msg wait(self, int64_t deadline):
        """The next message; None at the deadline or when it has ended: see `closed`."""
        cdef bint flushed = False, held
        cdef int64_t begun
        while not self.ready():
            if self.closed:
                self.ended()
                return None
            check_may_wait(self.outbox)
            # The messages at hand are done: their acks need not wait for company. Another
            # thread may run meanwhile, so look again: from the look to the parking none
            # may, or what it brings would wake nobody.
            held = False
            if self.outbox.lazy_since and not flushed:
                held = self.holds_acks and self.brisk and self.reads_itself()
                if not held:
                    flushed = True
                    self.outbox.flush_now()
                    continue
            begun = jsync_now()
            if self.park(deadline, held):
                self.brisk = self.arrived - begun < LAZY_NS
            elif self.count == 0 and not self.closed and jsync_now() >= deadline:
                return None
            else:
                self.brisk = False
        return self.pop()

    cdef inline bint reads_itself(self) noexcept:
        # An only reader reads the socket itself: to be woken costs more. But rows come
        # many to a wake-up, and at less cost in what the I/O thread reads meanwhile.
        return self.jetstream and self.readers == 1 and not self.columnar

    cdef bint park(self, int64_t deadline, bint held = False) except -1:
        """Wait until woken, True, or the deadline; with acks held perhaps less long."""
        cdef Seat* seat = self.free_seat()
        seat.taken = True
        try:
            return wait_for_wake(
                self.outbox, &seat.park, deadline, self.reads_itself(), held
            )
        finally:
            seat.taken = False

    cdef Seat* free_seat(self) except NULL:
        cdef int i
        for i in range(self.readers):
            if not self.seats[i].taken:
                return &self.seats[i]
        raise ConcurrentUseError(
            "another thread is waiting on this object: it is for one thread at a time"
        )

    def get(self, timeout: float | None = None) -> Msg | None:
        """The next message, or None after `timeout` seconds or when it has ended."""
        if self.ready():
            return self.pop()
        return self.wait(deadline_after(timeout))

    def get_before(self, deadline: float) -> Msg | None:
        """The next message, or None at `deadline` of the monotonic clock."""
        if self.ready():
            return self.pop()
        return self.wait(<int64_t>(deadline * 1e9))

    def hand_over(
        self, handler: "Callable[[Msg], object]",
        raised: "Callable[[Msg, BaseException], object]",
    ) -> None:
        """Call `handler` with each message to the end, and `raised` with what it raises."""
        cdef Msg msg
        while True:
            msg = self.pop() if self.ready() else self.wait(NEVER)
            if msg is None:
                return
            try:
                handler(msg)
            except BaseException as error:
                raised(msg, error)

    @cython.annotation_typing(False)
    def next_into(self, list taken not None, timeout: float | None = None) -> None:
        """Append the next message to `taken`, as `next` returns it.

        Ctrl-C may come between this call and the caller's next instruction. The message is
        in the caller's hands then, who can `put_back` what it does not hand on.
        """
        taken.append(self.take_next(timeout))

    def put_back(self, taken: list) -> None:
        """Have the messages that were taken, in their order, come next once more."""
        while taken:
            self.push(taken.pop())

    @cython.annotation_typing(False)  # what is no number has an error of ours
    def next(self, timeout: float | None = None) -> Msg:
        return self.take_next(timeout)

    cdef Msg take_next(self, object timeout):
        cdef Msg msg
        if self.ready():
            return self.pop()
        msg = self.wait(deadline_after(timeout))
        if msg is None:
            if self.closed:
                raise fresh(self.error) if self.error is not None else (
                    SubscriptionClosedError("the subscription has ended")
                )
            raise DeadlineError(f"no message within {timeout} s")
        return msg

    def end_after(self, count: int) -> bool:
        """End once `count` messages have come in all; True if they have already."""
        self.expected = count
        if self.delivered >= self.expected:
            self.close()
        return self.closed

    def close(self, error: "Exception | None" = None, *, discard: bool = False) -> None:
        """Take no more; readers get what is there, then `error` or the end."""
        if not self.closed or self.error is None:
            self.error = error
        self.closed = True
        if discard:
            self.discard()
        self.wake_all()

    def take_rest(self, rest: "list | None" = None) -> list:
        """Take all that is here, at once: no reader gets a part of it.

        It is appended to `rest`, if that is given: see `next_into`.
        """
        cdef Msg msg
        if rest is None:
            rest = []
        if self.columns is not None:
            if self.count:
                rest.append(self.take_rows(whole=True))
            return rest
        while self.count:
            msg = <Msg>self.ring[self.head]
            if msg.ack_state != CONTROL:
                rest.append(msg)
            Py_DECREF(msg)
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
        self.bytes = self.controls = 0
        return rest

    @property
    def failure(self) -> "Exception | None":
        """The error that ended it, if one did."""
        return self.error

    def claim_first(self) -> object:
        """Take `on_first`, so that it is called once."""
        first, self.on_first = self.on_first, None
        return first
