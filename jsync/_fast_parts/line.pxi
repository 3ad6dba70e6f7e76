# The I/O thread's turn: poll without the GIL, carry out what was written, and then, in
# one call with the GIL held, receive, parse, deliver and wake. Nothing can pre-empt that
# with a mailbox in hand, and beside a busy thread it pays for the GIL once a turn.
#
# A thread that waits alone for one answer, as a script in a request does, reads in its
# place: a wake-up less. The I/O thread steps aside for a moment only, so nothing depends on
# that thread.

cdef enum:
    # One turn holds the GIL for about an interval of the interpreter's switching: beside
    # busy threads each further turn would have to wait for the GIL as long again.
    TURN_BYTES = 8 * 1024 * 1024
    TURN_NS = 4_000_000
    # Ended mailboxes are told of in company: nobody waits for that, but the reader of the
    # last message waits for the GIL.
    MOST_ENDINGS = 64
    ENDINGS_NS = 1_000_000
    # So long the I/O thread leaves the socket to who read it last: a script that asks again
    # at once finds it free.
    ASIDE_NS = 200_000
    # And so much longer while that thread still waits: acks that wait need no wake-up then.
    # When it has just left, other subscriptions wait for both, a millisecond, at most.
    WAITED_FOR_NS = LAZY_NS - ASIDE_NS

cdef int64_t LONGEST_POLL_NS = 3_600_000_000_000


@cython.final
cdef class Line(Parser):
    """The compiled half of a connection's I/O thread, for that thread alone.

    `subscribe` and `unsubscribe` may be called from any thread.
    """

    cdef int fd, wake_fd
    cdef bint direct, interrupted
    cdef int64_t now
    cdef bint receiving  # a thread is inside; a finaliser may let another one run there
    cdef bint finished
    cdef bint borrowed  # a thread that waits polls the socket
    cdef bint deciding  # the session has events in hand, with which all that follows waits
    cdef int64_t aside_until
    cdef int[2] notify_fds  # wakes that thread: the end to read, the end to write
    cdef Sink sink
    cdef dict sinks
    cdef list endings  # as `events`, but they may wait for company
    cdef Py_ssize_t ended  # how many
    cdef object pings  # who waits for the PONGs to come, in order; None: nobody
    cdef readonly int unanswered
    """Keep-alive pings since the last PONG."""
    cdef uint64_t cached_sid
    cdef PyObject* cached

    def __cinit__(self):
        self.fd = self.notify_fds[0] = self.notify_fds[1] = -1

    def __init__(self, outbox: Outbox, wake_fd: int) -> None:
        self.outbox = outbox
        outbox.line = self
        self.wake_fd = wake_fd
        self.sinks = {}
        self.endings = []
        self.pings = deque()
        self.max_message = 64 << 20

    def __dealloc__(self):
        close_notifier(self.notify_fds)

    def __repr__(self) -> str:
        return f"<Line {'open' if self.fd >= 0 else 'closed'}, {len(self.sinks)} sinks>"

    @property
    def counters(self) -> tuple[int, int]:
        """Messages received, and their bytes: header block and payload."""
        return self.in_msgs, self.in_bytes

    def claim(self) -> None:
        """Be the I/O thread: the one in which no call may block."""
        self.outbox.io_thread = PyThread_get_thread_ident()

    def subscribe(self, sid: int, sink: Sink) -> None:
        self.cached = NULL
        self.sinks[sid] = sink

    def unsubscribe(self, sid: int) -> None:
        self.cached = NULL
        self.sinks.pop(sid, None)

    def ping(self, waiter: Waiter | None = None) -> bool:
        """Send a PING, from any thread; its PONG sets `waiter`. False: not connected.

        One step for signal handlers, as the order of PINGs and waiters has to agree.
        """
        self.pings.append(waiter)
        try:
            if self.outbox.command(b"PING\r\n"):
                self.unanswered += waiter is None
                return True
        except ConnectionClosedError:
            self.pings.remove(waiter)
            raise
        self.pings.remove(waiter)
        return False

    def fail_pings(self, error: "Exception") -> None:
        """Tell all who wait for a PONG that none will come."""
        self.unanswered = 0
        while self.pings:
            waiter = self.pings.popleft()
            if waiter is not None:
                (<Waiter>waiter).fail(error)

    def open(self, fd: int, *, direct: bool) -> None:
        """Read from `fd`; when not direct only tell when it is readable."""
        self.fd = fd
        self.direct = direct

    def close(self) -> None:
        self.fd = -1

    def finish(self) -> None:
        """Close for good."""
        self.fd = -1
        self.finished = True
        if not self.borrowed:  # else the thread that waits does it when it leaves
            close_notifier(self.notify_fds)

    def restart(self) -> None:
        """Forget what was read: the next byte begins a new stream."""
        self.reset()
        self.events = []

    def interrupt(self) -> None:
        """Have `run` return soon, from any thread."""
        self.interrupted = True
        self.outbox.wake()

    cdef Wanted wanted(self, uint64_t sid) noexcept:
        cdef object found
        if self.cached == NULL or self.cached_sid != sid:
            found = self.sinks.get(sid)
            if found is None:
                return SKIPPED
            self.cached = <PyObject*>found  # the dict holds it, `unsubscribe` clears this
            self.cached_sid = sid
        self.sink = <Sink>self.cached
        if self.sink.columnar:
            return COLUMNAR
        return JETSTREAM if self.sink.jetstream else PLAIN

    cdef bint take_row(self, Frame* frame) except -1:
        return (<JetStreamMailbox>self.sink).take_row(frame, self)

    cdef int complete(self, Msg msg) except -1:
        cdef Sink sink = self.sink
        sink.deliver(msg, self)
        return 0

    def feed(self, data: "bytes | bytearray | memoryview") -> list:
        """Parse what came during the handshake; a fault is `BROKEN`, after the frames."""
        self.now = jsync_now()
        try:
            self.absorb(data)
        except ProtocolError as fault:
            self.events.append((EVENT_BROKEN, fault))
        events, self.events = self.events, []
        return events

    def decrypted(self, data: bytes) -> list:
        """Parse and deliver what TLS gave; the events as `run` gives them."""
        self.events = self.feed(data)
        self.answer()
        return self.take_events()

    cdef list take_events(self):
        events = self.endings + self.events
        self.endings = []
        self.ended = 0
        self.events = []
        return events

    def run(self, deadline: float, writable: bool = False) -> list:
        """Read and write until something is for the session to decide.

        Returns events `(Event, value)`, with no frame but INFO, -ERR and a PONG that came
        behind one of these; `READABLE` and `WRITABLE` when not direct, where `writable`
        says that ciphertext waits for the socket. None at `deadline`, of the monotonic
        clock, or when interrupted.
        """
        cdef int64_t until = <int64_t>(deadline * 1e9), aside, pause
        cdef pollfd fds[2]
        cdef int ready = 0
        cdef bint more = False, can_write = False, gone
        self.deciding = False
        # There may be events already, of a thread that read in this one's place.
        while (
            not self.events and not self.interrupted and self.ended < MOST_ENDINGS
        ):
            self.now = jsync_now()
            if not self.direct:
                more = not writable and self.has_plaintext()
            with nogil:
                while True:
                    if self.direct:
                        more = self.outbox.flush_round(can_write, self.now)
                    aside = self.aside_until - self.now
                    if self.borrowed:
                        aside += WAITED_FOR_NS
                    fds[0].fd = self.fd
                    fds[0].events = 0 if aside > 0 else POLLIN
                    if (self.outbox.choked if self.direct else writable):
                        fds[0].events |= POLLOUT
                    fds[1].fd = self.wake_fd
                    fds[1].events = POLLIN
                    fds[0].revents = fds[1].revents = 0
                    pause = self.pause(until, more, aside)
                    if self.direct:
                        self.outbox.looked_after = self.now + pause
                    ready = jsync_poll(fds, 2, pause)
                    if ready > 0 and fds[1].revents:
                        drain_pipe(self.wake_fd)
                    self.now = jsync_now()
                    # The GIL is not needed to see that there is nothing to do yet.
                    if ready or aside <= 0 or self.ended >= MOST_ENDINGS:
                        break
                    if self.now >= until:
                        self.aside_until = 0  # never without having looked at the socket
                    can_write = False
            can_write = fds[0].revents & POLLOUT
            gone = self.outbox.failure != 0
            if fds[0].revents & (POLLIN | POLLERR | POLLHUP | POLLNVAL):
                if not self.direct:
                    self.events.append((EVENT_READABLE, None))
                elif not self.receiving:
                    self.receive()
                else:
                    with nogil:  # held up in the middle of it, for no longer than it takes
                        jsync_poll(fds, 0, 1_000_000)
            if gone and not self.events:
                self.events.append((EVENT_BROKEN, OSError(
                    self.outbox.failure, os_strerror(self.outbox.failure)
                )))
            if not self.direct and (can_write or more):
                self.events.append((EVENT_WRITABLE, None))
            if self.now >= until or (self.ended and ready == 0):
                break
        self.interrupted = False
        events = self.take_events()
        self.deciding = len(events) > 0
        return events

    cdef bint has_plaintext(self) noexcept:
        """Whether TLS should take what was written: not acks that wait for company."""
        return self.outbox.pending_now() > 0 and (
            self.outbox.kicked or self.now - self.outbox.lazy_since >= LAZY_NS
        )

    cdef int64_t pause(self, int64_t until, bint more, int64_t aside) noexcept nogil:
        """Nanoseconds that the poll may last."""
        cdef int64_t left = until - self.now, lazy
        if more:
            return 0
        if self.outbox.lazy_since and not self.outbox.choked:
            lazy = self.outbox.lazy_since + LAZY_NS - self.now
            if lazy < left:
                left = lazy
        if self.ended and left > ENDINGS_NS:
            left = ENDINGS_NS
        if 0 < aside < left:
            left = aside
        return max(0, min(left, LONGEST_POLL_NS))

    cdef int receive(self) except -1:
        """Receive, parse and deliver what has come, up to a bound."""
        cdef ssize_t n
        cdef size_t got = 0, space
        cdef int error
        self.receiving = True
        self.now = jsync_now()  # the GIL may have been waited for since the poll
        try:
            while got == 0 or (got < TURN_BYTES and jsync_now() - self.now < TURN_NS):
                self.room()
                space = self.capacity - self.end
                n = c_recv(self.fd, self.buffer + self.end, space, MSG_DONTWAIT)
                if n == 0:
                    self.events.append((EVENT_BROKEN, EOFError("closed by the server")))
                    break
                if n < 0:
                    error = jsync_errno()
                    if not jsync_would_block(error):
                        self.events.append((
                            EVENT_BROKEN, OSError(error, os_strerror(error))
                        ))
                    break
                self.end += n
                got += n
                self.parse()
                if <size_t>n < space:
                    break  # that was all; if not, the next poll says so
        except ProtocolError as fault:
            self.events.append((EVENT_BROKEN, fault))
        finally:
            self.receiving = False
        self.answer()
        return 0

    # A waiting thread in the I/O thread's place ------------------------------------------

    cdef bint read_until(self, Park* park, int64_t deadline) except -1:
        """Read the socket until something that was read has woken `park`: True.

        False at the deadline, or when this is for the I/O thread: others wait too, there
        is something for the session to decide, it is no plain socket, or not connected.
        """
        cdef pollfd fds[2]
        cdef int fd = self.fd
        cdef int64_t left, longest = LONGEST_POLL_NS
        cdef bint woken, told
        if self.borrowed or not self.is_readable(fd):
            return False
        if self.notify_fds[0] < 0 and jsync_notifier(self.notify_fds) != 0:
            return False  # out of descriptors
        if PyThread_get_thread_ident() == main_thread:
            longest = SIGNAL_SLICE_US * 1000
        self.borrowed = park.waiting = park.reading = True
        park.notify_fd = self.notify_fds[1]
        try:
            while park.waiting:
                # A signal that came while C code ran does not interrupt the poll below.
                PyErr_CheckSignals()
                self.now = jsync_now()
                left = deadline - self.now
                if not park.waiting or left <= 0 or not self.is_readable(fd):
                    break
                self.aside_until = self.now + ASIDE_NS
                with nogil:
                    fds[0].fd = fd
                    fds[1].fd = self.notify_fds[0]
                    fds[0].events = fds[1].events = POLLIN
                    fds[0].revents = fds[1].revents = 0
                    jsync_poll(fds, 2, min(left, longest))
                    if fds[1].revents:
                        drain_pipe(self.notify_fds[0])
                if fds[0].revents and not self.receiving and self.is_readable(fd):
                    park.notify_fd = -1
                    told = self.ended > 0
                    self.receive()
                    park.notify_fd = self.notify_fds[1]
                    if self.ended and not told:
                        self.outbox.wake()  # from a poll that may last until the next ping
        finally:
            woken = not park.waiting
            self.borrowed = park.waiting = park.reading = False
            self.aside_until = 0
            if self.is_readable(fd):
                # Whoever waits is likely to do so again.
                self.aside_until = self.now + ASIDE_NS
            elif self.fd >= 0:
                self.outbox.wake()
            if self.finished:
                close_notifier(self.notify_fds)
        return woken

    cdef bint is_readable(self, int fd) noexcept:
        """Whether a thread that waits may read `fd`: see `read_until`."""
        return (
            self.fd == fd >= 0 and self.direct and not self.outbox.parked
            and not self.deciding and not self.events
        )

    cdef int answer(self) except -1:
        """PING and PONG need no decision of the session.

        But a PONG says that all before it has been dealt with: it waits for its turn
        behind what is for the session.
        """
        cdef list others
        cdef int asked = 0
        if not self.events:
            return 0
        others = []
        for event in self.events:
            if event[0] is EVENT_PING:
                asked += 1
            elif event[0] is EVENT_PONG and not others:
                self.pong()
            else:
                others.append(event)
        self.events = others
        # Last, as it may give up the GIL, and then another thread receives.
        for _ in range(asked):
            self.outbox.command(b"PONG\r\n")
        return 0

    def pong(self) -> None:
        """Tell who has waited longest for a PONG that it has come."""
        self.unanswered = 0
        waiter = self.pings.popleft() if self.pings else None
        if waiter is not None:
            (<Waiter>waiter).set(None)


cdef bint wait_for_wake(
    Outbox outbox, Park* park, int64_t deadline, bint for_one, bint held = False
) except -1:
    """Wait as `park_wait` does, for what comes from the connection: one answer, or more.

    When acks are held, only in the I/O thread's place, where the next ones are close.
    """
    if for_one and outbox.line is not None and outbox.line.read_until(park, deadline):
        return True
    if held:
        return False
    outbox.parked += 1
    try:
        return park_wait(park, deadline)
    finally:
        outbox.parked -= 1


cdef void drain_pipe(int fd) noexcept nogil:
    cdef char scratch[64]
    while c_read(fd, scratch, sizeof(scratch)) == sizeof(scratch):
        pass
