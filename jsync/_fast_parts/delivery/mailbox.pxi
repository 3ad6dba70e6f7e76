# Mailboxes, in which messages wait for their reader.
#
# The I/O thread delivers and wakes, and readers take. Both hold the GIL, and neither runs
# bytecode in between. Without a GIL each is in the section of the mailbox instead.


cdef struct ReaderSlot:  # the place of a waiting thread
    Park park
    bint taken  # from before it parks until it runs again


@cython.no_gc_clear  # a finalizer may still read
cdef class Mailbox(Sink):
    """The backlog of one subscription, for `readers` reading threads at a time."""

    cdef PyObject** ring  # its size is a power of two, NULL until the first message
    cdef size_t capacity, head, count
    cdef size_t controls  # how many of the items are control messages
    cdef ReaderSlot slot
    cdef ReaderSlot* slots  # `slot`, or several
    cdef int readers
    cdef int self_reading  # its only reader reads the socket, if no other thread waits
    cdef WriteBuffer write_buffer
    cdef object error
    cdef public uint64_t sid
    """The sid of the subscription that delivers here, which may be another one later."""
    cdef readonly str subject
    """The subject that was published to, when these are replies."""
    cdef size_t held  # `bytes`
    cdef uint64_t delivered_count, lost  # `delivered`, `dropped`
    cdef uint64_t delivered_bytes
    cdef public size_t max_messages, max_bytes
    cdef uint64_t expected  # end after so many messages, 0: never
    cdef uint64_t expected_bytes  # end after so many bytes, 0: never
    cdef bint slow
    cdef int over  # `closed`
    cdef int64_t arrived
    cdef int short_wait  # the last wait was a short one
    cdef object _on_first
    cdef ReadyQueue queue  # the queue of the pool that reads it, or None
    cdef bint scheduled  # it is in the queue, or in the hands of a thread of the pool
    cdef bint turn_requested  # the next turn is due without a message
    cdef object _runner  # that thread
    cdef object _task  # `task`
    cdef public Mailbox overflow
    """Takes the messages that come while this one is full. None: they are dropped."""

    def __init__(
        self,
        write_buffer: WriteBuffer,
        sid: int,
        *,
        subject: str = "",
        max_messages: int = 0,
        max_bytes: int = 0,
        readers: int = 1,
    ) -> None:
        if self.slots != NULL:
            raise RuntimeError("a mailbox is made once")
        self.readers = readers
        self.slots = &self.slot
        if self.readers > 1:
            self.slots = <ReaderSlot*>PyMem_RawCalloc(self.readers, sizeof(ReaderSlot))
            if self.slots == NULL:
                raise MemoryError
        self.write_buffer = write_buffer
        self.sid = sid
        self.subject = str(subject)
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        store_time_relaxed(&self.arrived, jsync_now())

    def __dealloc__(self):
        self.drop_messages()
        PyMem_RawFree(self.ring)
        cdef int i
        if self.slots != NULL:
            for i in range(self.readers):
                park_free(&self.slots[i].park)
            if self.slots != &self.slot:
                PyMem_RawFree(self.slots)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return (
            f"<{type(self).__name__} {self.sid} {state}, {self.count_now()} messages, "
            f"{self.dropped} dropped>"
        )

    def __len__(self) -> int:
        return self.count_now()

    @cython.final
    cdef size_t count_now(self) noexcept:
        cdef size_t count
        cdef Section section
        enter(&section, <PyObject*>self)
        count = self.count
        leave(&section)
        return count

    @property
    def bytes(self) -> int:
        """The size of the messages that are here."""
        cdef size_t held
        cdef Section section
        enter(&section, <PyObject*>self)
        held = self.held
        leave(&section)
        return held

    @property
    def delivered(self) -> int:
        """The number of messages that have come, including those that were dropped."""
        cdef uint64_t count
        cdef Section section
        enter(&section, <PyObject*>self)
        count = self.delivered_count
        leave(&section)
        return count

    @property
    def dropped(self) -> int:
        """The number of messages that came while it was full."""
        cdef uint64_t lost
        cdef Section section
        enter(&section, <PyObject*>self)
        lost = self.lost
        leave(&section)
        return lost

    @property
    def closed(self) -> bool:
        """True once it takes no more messages. Its readers still get those here."""
        return load_int_relaxed(&self.over) != 0

    @property
    def full(self) -> bool:
        """True once all that was expected has come: see `end_after`."""
        cdef bint full
        cdef Section section
        enter(&section, <PyObject*>self)
        full = self.is_complete()
        leave(&section)
        return full

    @property
    def last_arrival(self) -> float:
        """When a message or a status last came, by the monotonic clock."""
        return load_time_relaxed(&self.arrived) / 1e9

    @property
    def alone(self) -> bool:
        """True if its only reader is likely to be the only one of the connection.

        Such a reader reads the socket itself, because to be woken costs more.
        """
        return load_int_relaxed(&self.self_reading) != 0

    @alone.setter
    def alone(self, alone: bool) -> None:
        store_int_relaxed(&self.self_reading, alone and self.readers == 1)

    @property
    def on_first(self) -> object:
        """Called once, on the I/O thread, when the first message has come."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._on_first
        finally:
            leave(&section)

    @on_first.setter
    def on_first(self, call: object) -> None:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self._on_first = call
        finally:
            leave(&section)

    # Methods that a mailbox of another kind overrides -----------------------------------

    cdef Msg take(self):
        """Take the next message. Return None if there is none."""
        cdef Msg msg
        cdef Section section
        enter(&section, <PyObject*>self)
        if self.count == 0:
            leave(&section)
            return None
        if self.write_buffer.generation != jsync_forks:  # in a child: the parent's backlog
            leave(&section)
            check_fork(self.write_buffer.generation)
        msg = self.first_off()
        self.leave(msg.wire_size())
        leave(&section)
        return msg

    cdef Msg first(self):
        """Return the message that `take` would return, but leave it here, or None."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return <Msg>self.ring[self.head] if self.count else None
        finally:
            leave(&section)

    cdef int push(self, Msg msg) except -1:
        """Put back a message that does not reach the reader, as the next message."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.prepend(msg, msg.wire_size())
            return 0
        finally:
            leave(&section)

    cdef void discard(self) noexcept:
        self.drop_messages()

    cdef int complete(self, AbstractIOLoop io_loop) except -1:
        """Report that all that was expected has come."""
        io_loop.endings.append((EVENT_ENDED, self))
        store_count_relaxed(&io_loop.ended, io_loop.ended + 1)
        return 0

    cdef int ended(self) except -1:
        """React to the end, which the reader has found."""
        return 0

    cdef bint has_enough(self) noexcept:
        """Return whether a reader has nothing to wait for."""
        return self.count > 0

    cdef bint keeps_acks(self) noexcept:
        """Return whether acks may wait while the reader does."""
        return False

    # The ring -------------------------------------------------------------------------

    @cython.final
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

    @cython.final
    cdef inline int append(self, Msg msg) except -1:
        if self.count == self.capacity:
            self.grow()
        Py_INCREF(msg)
        self.ring[(self.head + self.count) & (self.capacity - 1)] = <PyObject*>msg
        self.count += 1
        return 0

    @cython.final
    cdef inline int prepend(self, Msg msg, size_t size) except -1:
        if self.count == self.capacity:
            self.grow()
        self.head = (self.head - 1) & (self.capacity - 1)
        Py_INCREF(msg)
        self.ring[self.head] = <PyObject*>msg
        self.count += 1
        self.held += size
        if self.wake_one():
            self.queue.on_starved()
        return 0

    @cython.final
    cdef inline Msg first_off(self):
        cdef Msg msg = <Msg>self.ring[self.head]
        Py_DECREF(msg)  # the ring's reference, while the local one holds the message
        self.head = (self.head + 1) & (self.capacity - 1)
        self.count -= 1
        return msg

    @cython.final
    cdef inline void leave(self, size_t size) noexcept:
        """Count off a message of `size` bytes that has been taken."""
        self.held -= size
        if self.slow and self.count * 2 <= self.max_messages and (
            self.held * 2 <= self.max_bytes or not self.max_bytes
        ):
            self.slow = False

    @cython.final
    cdef void drop_messages(self) noexcept:
        while self.count:
            Py_DECREF(<object>self.ring[self.head])
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
        self.held = 0

    # Arrivals ---------------------------------------------------------------------------

    cdef int deliver(self, Msg msg, AbstractIOLoop io_loop) except -1:
        store_time_relaxed(&self.arrived, io_loop.now)
        if self.over:
            return 0
        return self.keep(msg, msg.wire_size(), self.count, io_loop)

    @cython.final
    cdef inline int keep(
        self, Msg msg, size_t size, size_t messages, AbstractIOLoop io_loop
    ) except -1:
        """Add a message to the `messages` that are here, or drop it."""
        self.delivered_count += 1
        self.delivered_bytes += size
        if (self.max_messages and messages >= self.max_messages) or (
            self.max_bytes and self.held + size > self.max_bytes
        ):
            self.lost += 1
            if not self.slow:
                self.slow = True
                io_loop.events.append((EVENT_SLOW, self))
            if self.overflow is not None:
                deliver_to(self.overflow, msg, io_loop)
        else:
            self.append(msg)
            self.held += size
            if self.wake_one():
                io_loop.events.append((EVENT_CALL, self.queue.on_starved))
        return self.end_if_complete(io_loop)

    @cython.final
    cdef inline bint is_complete(self) noexcept:
        return (self.expected and self.delivered_count >= self.expected) or (
            self.expected_bytes and self.delivered_bytes >= self.expected_bytes
        )

    @cython.final
    cdef inline int end_if_complete(self, AbstractIOLoop io_loop) except -1:
        if self.is_complete():
            store_int_relaxed(&self.over, True)
            if self.wake_all():
                io_loop.events.append((EVENT_CALL, self.queue.on_starved))
            self.complete(io_loop)
        if self._on_first is not None:
            io_loop.events.append((EVENT_FIRST, self))
            self.wake_one()
        return 0

    @cython.final
    cdef inline int wake_one(self) except -1:
        """Wake a reader. Return 1 if its pool is starved: see `ReadyQueue.push`."""
        cdef int i
        if self.queue is not None:
            return self.schedule()
        for i in range(self.readers):
            if park_waits(&self.slots[i].park):
                park_wake(&self.slots[i].park)
                return 0
        return 0

    @cython.final
    cdef int wake_all(self) except -1:
        cdef int i
        if self.queue is not None:
            return self.schedule()
        for i in range(self.readers):
            park_wake(&self.slots[i].park)
        return 0

    # Its readers ----------------------------------------------------------------------

    @cython.final
    cdef Msg wait(self, int64_t deadline):
        """Wait for the next message. None at the deadline, or at the end: see `closed`."""
        cdef bint flushed = False, held
        cdef int64_t started
        cdef Msg msg
        while True:
            msg = self.take()
            if msg is not None:
                return msg
            if load_int_relaxed(&self.over):
                if PARALLEL:  # the last one may have come between the two looks
                    msg = self.take()
                    if msg is not None:
                        return msg
                self.ended()
                return None
            check_may_wait(self.write_buffer)
            # The messages at hand are done, so their acks need not wait for others. Another
            # thread may run during the flush, so look again. Between the last look and the
            # parking no thread may run, or its messages would wake no reader.
            held = False
            if load_time_relaxed(&self.write_buffer.lazy_since) and not flushed:
                held = load_int_relaxed(&self.short_wait) and self.keeps_acks()
                if not held:
                    flushed = True
                    self.write_buffer.flush_now()
                    continue
            started = jsync_now()
            if self.park(deadline, held):
                store_int_relaxed(
                    &self.short_wait, load_time_relaxed(&self.arrived) - started < LAZY_NS
                )
            elif (
                self.count_now() == 0 and not load_int_relaxed(&self.over)
                and jsync_now() >= deadline
            ):
                return None
            else:
                store_int_relaxed(&self.short_wait, False)

    @cython.final
    cdef bint park(self, int64_t deadline, bint held = False) except -1:
        """Wait until woken, True, or the deadline, perhaps less long with acks held."""
        cdef ReaderSlot* slot
        if PARALLEL:
            slot = self.acquire_slot()
            if slot == NULL:
                return True
        else:
            slot = self.free_slot()
            slot.taken = True
        try:
            return wait_for_wake(
                self.write_buffer, &slot.park, deadline,
                load_int_relaxed(&self.self_reading),
                held,
            )
        finally:
            if PARALLEL:
                self.release_slot(slot)
            else:
                slot.taken = False

    @cython.final
    cdef ReaderSlot* acquire_slot(self) except? NULL:
        """Return a slot that is armed, or NULL if something has come since."""
        cdef ReaderSlot* slot
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.over or self.has_enough():
                return NULL
            slot = self.free_slot()
            park_arm(&slot.park)
            slot.taken = True
            return slot
        finally:
            leave(&section)

    @cython.final
    cdef void release_slot(self, ReaderSlot* slot) noexcept:
        cdef Section section
        enter(&section, <PyObject*>self)
        slot.taken = False
        leave(&section)

    @cython.final
    cdef ReaderSlot* free_slot(self) except NULL:
        cdef int i
        for i in range(self.readers):
            if not self.slots[i].taken:
                return &self.slots[i]
        raise ConcurrentUseError(
            "another thread is waiting on this object: it is for one thread at a time"
        )

    def get(self, timeout: float | None = None) -> Msg | None:
        """Return the next message, or None after `timeout` seconds or at the end."""
        cdef Msg msg = self.take()
        return msg if msg is not None else self.wait(deadline_after(timeout))

    def get_before(self, deadline: float) -> Msg | None:
        """Return the next message, or None at `deadline` of the monotonic clock."""
        cdef Msg msg = self.take()
        return msg if msg is not None else self.wait(<int64_t>(deadline * 1e9))

    def hand_over(
        self, handler: "Callable[[Msg], object]",
        raised: "Callable[[Msg, BaseException], object]",
    ) -> None:
        """Call `handler` with each message to the end, and `raised` with its exceptions."""
        cdef Msg msg
        while True:
            msg = self.take()
            if msg is None:
                msg = self.wait(NEVER)
            if msg is None:
                return
            try:
                handler(msg)
            except BaseException as error:
                raised(msg, error)

    @cython.annotation_typing(False)
    def next_into(self, list taken not None, timeout: float | None = None) -> None:
        """Append the next message to `taken`, as `next` would return it.

        Ctrl-C may come between this call and the caller's next instruction. The caller then
        has the message already, and can `put_back` what it does not hand on.
        """
        taken.append(self.take_next(timeout))

    def put_back(self, taken: list) -> None:
        """Put back messages that were taken, in their order, as the next ones."""
        while taken:
            self.push(taken.pop())

    @cython.annotation_typing(False)  # our own error for a value that is no number
    def next(self, timeout: float | None = None) -> Msg:
        return self.take_next(timeout)

    @cython.final
    cdef Msg take_next(self, object timeout):
        cdef Msg msg = self.take()
        if msg is not None:
            return msg
        msg = self.wait(deadline_after(timeout))
        if PARALLEL and msg is None:  # it may have come since the deadline
            msg = self.take()
        if msg is None:
            if load_int_relaxed(&self.over):
                error = self.failure
                raise fresh(error) if error is not None else (
                    SubscriptionClosedError("the subscription has ended")
                )
            seconds = check_seconds(timeout, "timeout")
            raise DeadlineError(f"no message within {format_seconds(seconds)}")
        return msg

    def end_after(self, count: int) -> bool:
        """End once `count` messages have come in all. True if it has ended already."""
        cdef Section section
        cdef bint complete
        enter(&section, <PyObject*>self)
        self.expected = count
        complete = self.delivered_count >= self.expected
        leave(&section)
        if complete:
            self.close()
        return load_int_relaxed(&self.over) != 0

    def end_after_bytes(self, size: int) -> bool:
        """End once `size` bytes have come in all. True if it has ended already."""
        cdef Section section
        cdef bint complete
        enter(&section, <PyObject*>self)
        self.expected_bytes = size
        complete = self.delivered_bytes >= self.expected_bytes
        leave(&section)
        if complete:
            self.close()
        return load_int_relaxed(&self.over) != 0

    def close(self, error: "Exception | None" = None, *, discard: bool = False) -> None:
        """Take no more messages. Readers get those here, then `error` or the end."""
        cdef bint starved
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if not self.over or self.error is None:
                self.error = error
            store_int_relaxed(&self.over, True)
            if discard:
                self.discard()
            starved = self.wake_all()
        finally:
            leave(&section)
        if starved:
            self.queue.on_starved()

    def take_rest(self, rest: "list | None" = None) -> list:
        """Take all messages here in one step, so that no reader gets a part of them.

        They are appended to `rest`, if that is given: see `next_into`.
        """
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if rest is None:
                rest = []
            self.take_all(rest)
            return rest
        finally:
            leave(&section)

    @cython.final
    cdef int take_all(self, list rest) except -1:
        """Take all messages. Called in the section."""
        cdef Msg msg
        while self.count:
            msg = self.first_off()
            if msg.ack_state != CONTROL:
                rest.append(msg)
        self.held = self.controls = 0
        return 0

    @property
    def failure(self) -> "Exception | None":
        """The error that ended it, if one did."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self.error
        finally:
            leave(&section)

    def claim_first(self) -> object:
        """Take `on_first`, so that it is called only once."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            first, self._on_first = self._on_first, None
            return first
        finally:
            leave(&section)

    # Its pool ---------------------------------------------------------------------------

    @cython.final
    cdef int schedule(self) except -1:
        """Put it into the queue, unless it is there or has ended. Called in the section."""
        if self.scheduled or self._task is None:
            return 0
        self.scheduled = True
        try:
            return self.queue.push(self)
        except BaseException:
            self.scheduled = False
            raise

    def pool(self, queue: ReadyQueue, task: object) -> None:
        """Have the threads of `queue` read it from now on, and use `task` for it."""
        cdef bint starved = False
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.queue = queue
            self.swap_task(task)
            if self.count or load_int_relaxed(&self.over):
                starved = self.schedule()
        finally:
            leave(&section)
        if starved:
            queue.on_starved()

    @cython.final
    cdef object swap_task(self, object task):
        """Set `task`, and return the last one. Called in the section."""
        cdef object last = self._task
        self._task = task
        if self.queue is not None:
            add_int(&self.queue.mailboxes, (task is not None) - (last is not None))
        return last

    @cython.final
    cdef int hold(self, object runner) except -1:
        cdef Section section
        enter(&section, <PyObject*>self)
        self._runner = runner
        self.turn_requested = False
        leave(&section)
        return 0

    def request_turn(self) -> None:
        """Have the pool give its task a turn, even if no message is here."""
        cdef bint starved = False
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self._task is not None:
                self.turn_requested = True
                starved = self.schedule()
        finally:
            leave(&section)
        if starved:
            self.queue.on_starved()

    @property
    def runner(self) -> object:
        """The thread of the pool that has it now, or None."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._runner
        finally:
            leave(&section)

    def hand_over_some(
        self, handler: "Callable[[Msg], object]",
        raised: "Callable[[Msg, BaseException], object]",
    ) -> None:
        """Like `hand_over`, for the messages that are here, in a turn of limited length."""
        cdef int64_t started = jsync_now()
        cdef int messages = 0
        cdef Msg msg
        while True:
            msg = self.take()
            if msg is None:
                return
            try:
                handler(msg)
            except BaseException as error:
                raised(msg, error)
            messages += 1
            if self.must_yield(messages, started):
                return

    @cython.final
    cdef inline bint must_yield(self, int messages, int64_t started) noexcept:
        """Return whether other mailboxes are due after so many messages since `begun`."""
        return self.queue is not None and load_size_relaxed(&self.queue.length) and (
            messages >= TURN_MESSAGES or jsync_now() - started >= TURN_NS
        )

    def end_turn(self) -> bool:
        """End a turn: back into the queue, or to rest. Return False at the end of it.

        Then the thread keeps it, and ends its `task`.
        """
        cdef bint starved = False, goes_on = True
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.count:
                self._runner = None
                starved = self.queue.push(self)
            elif load_int_relaxed(&self.over):
                goes_on = False
            elif self.turn_requested:
                self._runner = None
                starved = self.queue.push(self)
            else:
                self._runner = None
                self.scheduled = False
        finally:
            leave(&section)
        if starved:
            self.queue.on_starved()
        if not goes_on:
            self.ended()
        return goes_on

    @property
    def task(self) -> object:
        """The object by which the pool handles its messages, or None."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self._task
        finally:
            leave(&section)

    def claim_task(self) -> object:
        """Take `task`, so that only one thread ends it. None if another one has it."""
        cdef Section section
        enter(&section, <PyObject*>self)
        task = self.swap_task(None)
        leave(&section)
        return task

    def end_idle(self) -> None:
        """End `task` now, if no call is in progress and none follows.

        So it is if the mailbox is closed and empty, and no thread of the pool has it. An
        exception of the end, such as Ctrl-C, leaves the task to the pool.
        """
        cdef bint starved = False
        cdef Section section
        enter(&section, <PyObject*>self)
        if self.count or self._runner is not None or not load_int_relaxed(&self.over):
            leave(&section)
            return
        task = self.swap_task(None)
        leave(&section)
        if task is None:
            return
        try:
            task.end(None)
        except BaseException:
            enter(&section, <PyObject*>self)
            try:
                self.swap_task(task)
                starved = self.schedule()
            finally:
                leave(&section)
            if starved:
                self.queue.on_starved()
            raise

    def leave_pool(self) -> None:
        """End the last turn: the pool forgets it."""
        cdef Section section
        enter(&section, <PyObject*>self)
        self._runner = None
        self.scheduled = False
        leave(&section)
