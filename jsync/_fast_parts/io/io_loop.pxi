# One iteration of the I/O loop: poll without the GIL, send the written bytes, and then, in
# one call with the GIL held, receive, parse, deliver and wake. Nothing can interrupt that
# call while it changes a mailbox, and beside a busy thread it waits for the GIL once an
# iteration.
#
# A thread that waits alone for one answer, like a script in a request, reads the socket in
# place of the I/O thread, which saves a wake-up. The I/O thread steps aside for a moment
# only, so nothing depends on the thread that reads.

cdef enum:
    # One iteration holds the GIL for about one switch interval of the interpreter, because
    # beside busy threads each further one would have to wait for the GIL as long again.
    MAX_READ_BYTES = 8 * 1024 * 1024
    MAX_READ_NS = 4_000_000
    # Ended mailboxes are reported in batches. No thread waits for the report, but the
    # reader of the last message waits for the GIL.
    MAX_ENDINGS = 64
    ENDINGS_NS = 1_000_000
    # Without a GIL Python frees an object on the thread that made it. Messages that other
    # threads dropped are freed when this one is back in Python, after so many bytes.
    BREATH_BYTES = 256 * 1024
    # For this time the I/O thread leaves the socket to its last reader, so that a script
    # finds it free if its next request comes immediately.
    ASIDE_NS = 200_000
    # This is added while that thread still waits, because delayed acks then need no
    # wake-up. If it has just left, bytes that no thread waits for may wait for both times,
    # a millisecond. A thread that begins to wait for the I/O thread calls it back first.
    WAITED_FOR_NS = LAZY_NS - ASIDE_NS
    # While another thread reads, a waiting thread leaves the socket alone for so long,
    # because the socket stays readable until the other thread has read it.
    TAKEN_NS = 100_000

cdef int64_t MAX_POLL_NS = 3_600_000_000_000
cdef int64_t BREATH_NS = 1_000_000_000  # or after this time


@cython.final
cdef class IOLoop(Parser):
    """The compiled half of a connection's I/O thread, to be used by that thread alone.

    `subscribe` and `unsubscribe` may be called from any thread.
    """

    cdef int fd, wake_fd
    cdef int direct
    cdef TLSRecords records  # of TLS, or None, for the thread that reads
    cdef int secure  # whether the bytes come in records of TLS
    cdef int interrupted
    cdef bint takes_more  # the last poll found it writable, and nothing was sent since
    cdef bint receiving  # in `receive`, where a finalizer or TLS may let others run
    cdef unsigned long receiver  # id of that thread
    cdef int finished
    cdef int borrowed  # a waiting thread polls the socket
    cdef int deciding  # the session handles events, and all that follows waits until it has
    cdef int[2] notify_fds  # wake the thread that borrowed the socket: to read, to write
    cdef Sink sink
    cdef dict sinks
    cdef object pings  # the waiters for the next PONGs, in order, or None for a keep-alive
    cdef int keep_alives  # `unanswered`
    # `sink` is that of `cached_sid`, if nothing was subscribed or unsubscribed since.
    cdef uint64_t cached_sid
    cdef uint64_t changes, cached_at
    # Without a GIL: id of the thread that reads and parses, which alone touches the parser
    # and the events. With a GIL `receiving` is enough.
    cdef unsigned long reading_thread
    cdef int telling  # there were events when the last reader left

    def __cinit__(self):
        self.fd = self.notify_fds[0] = self.notify_fds[1] = -1

    def __init__(self, write_buffer: WriteBuffer, wake_fd: int) -> None:
        self.write_buffer = write_buffer
        write_buffer.io_loop = self
        self.wake_fd = wake_fd
        self.sinks = {}
        self.endings = []
        self.pings = deque()
        self.max_message = 64 << 20
        self.changes = 1

    def __dealloc__(self):
        close_notifier(self.notify_fds)

    def __repr__(self) -> str:
        return f"<IOLoop {'open' if self.fd >= 0 else 'closed'}, {len(self.sinks)} sinks>"

    @property
    def counters(self) -> tuple[int, int]:
        """Messages received, and their bytes of header block and payload."""
        return load_number_relaxed(&self.in_msgs), load_number_relaxed(&self.in_bytes)

    @property
    def unanswered(self) -> int:
        """Keep-alive pings since the last PONG."""
        return load_int_relaxed(&self.keep_alives)

    def bind_to_thread(self) -> None:
        """Make the calling thread the I/O thread, on which no call may block."""
        store_ident(&self.write_buffer.io_thread, PyThread_get_thread_ident())

    def subscribe(self, sid: int, sink: Sink) -> None:
        self.sinks[sid] = sink
        add_number(&self.changes, 1)

    def unsubscribe(self, sid: int) -> None:
        self.sinks.pop(sid, None)
        add_number(&self.changes, 1)  # last: the reader may have found it until then

    def ping(self, waiter: Waiter | None = None) -> bool:
        """Send a PING, from any thread. Its PONG sets `waiter`. False if not connected.

        This is one step for signal handlers, as the order of PINGs and waiters must agree.
        """
        cdef bint sent
        cdef Section section
        check_fork(self.write_buffer.generation)
        enter(&section, <PyObject*>self)
        try:
            self.pings.append(waiter)
            sent = self.write_buffer.ping()
            if sent:
                store_int_relaxed(&self.keep_alives, self.keep_alives + (waiter is None))
            else:
                self.pings.pop()
        finally:
            leave(&section)
        if not sent:
            self.write_buffer.check_open()
        return sent

    cdef object next_pinger(self):
        """Take the first waiter for a PONG. None for a keep-alive, or if nothing waits."""
        cdef object waiter = None
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            store_int_relaxed(&self.keep_alives, 0)
            if self.pings:
                waiter = self.pings.popleft()
        finally:
            leave(&section)
        return waiter

    def fail_pings(self, error: "Exception") -> None:
        """Fail all who wait for a PONG, because none will come."""
        while self.pings:
            waiter = self.next_pinger()
            if waiter is not None:
                (<Waiter>waiter).fail(error)
        store_int_relaxed(&self.keep_alives, 0)

    def open(self, fd: int, *, direct: bool, records: TLSRecords | None = None) -> None:
        """Read from `fd`, through `records`. If not direct, report when it is readable."""
        cdef bint mine = self.acquire_reader()
        self.records = records
        store_int_relaxed(&self.secure, records is not None)
        store_int_relaxed(&self.direct, direct)
        store_int_relaxed(&self.fd, fd)
        self.takes_more = False
        self.release_reader(mine)

    def close(self) -> list:
        """Stop reading. Return the events that the last reading thread has left."""
        cdef bint mine = self.acquire_reader()
        try:
            store_int_relaxed(&self.fd, -1)
            return self.take_events()
        finally:
            self.release_reader(mine)

    def finish(self) -> None:
        """Close permanently."""
        cdef bint mine = self.acquire_reader()
        store_int_relaxed(&self.fd, -1)
        store_int(&self.finished, True)
        self.release_reader(mine)
        # If a waiting thread has borrowed the socket, that thread does it when it leaves.
        if replace_int(&self.borrowed, False, True):
            close_notifier(self.notify_fds)
            store_int(&self.borrowed, False)

    def reset(
        self, *, framed: bool = False,
        inflate: "Callable[[bytes, bool], Iterable[bytes]] | None" = None,
    ) -> None:
        """Forget what was read: the next byte begins a new stream.

        A `framed` stream comes in the frames of a WebSocket. `inflate` gets the parts of
        its compressed messages, and whether each part is the last.
        """
        cdef bint mine = self.acquire_reader()
        try:
            self.clear()
            self.frames.on = framed
            self.inflate = inflate
            self.events = []
        finally:
            self.release_reader(mine)

    # One reading thread at a time, where no GIL keeps the others out ---------------------

    cdef inline bint try_acquire_reader(self) noexcept:
        """Become the thread that reads, for a moment, unless another thread is."""
        if PARALLEL:
            return replace_ident(&self.reading_thread, 0, PyThread_get_thread_ident())
        return not self.receiving

    cdef inline bint acquire_reader(self) noexcept:
        """Become that thread once no other is. True if `release_reader` must undo it."""
        if PARALLEL:
            return self.wait_for_reader()
        if self.receiving:
            self.wait_for_receiver()
        return False

    cdef void wait_for_receiver(self) noexcept:
        cdef pollfd nothing
        cdef unsigned long me = PyThread_get_thread_ident()
        while self.receiving and self.receiver != me:
            with nogil:
                jsync_poll(&nothing, 0, 100_000)

    cdef bint wait_for_reader(self) noexcept:
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef pollfd nothing
        cdef int tries = 0
        if load_ident(&self.reading_thread) == me:
            return False
        while not replace_ident(&self.reading_thread, 0, me):
            tries += 1
            with nogil:
                if tries < 100:
                    sched_yield()
                else:
                    jsync_poll(&nothing, 0, 1_000_000)
        return True

    cdef inline void release_reader(self, bint mine) noexcept:
        if PARALLEL and mine:
            store_int(&self.telling, PyList_GET_SIZE(self.events) > 0)
            store_ident(&self.reading_thread, 0)

    def interrupt(self) -> None:
        """Make `run_once` return soon, from any thread."""
        store_int(&self.interrupted, True)
        self.write_buffer.wake()

    cdef DeliveryMode delivery_mode(self, uint64_t sid) noexcept:
        cdef uint64_t changes = load_number(&self.changes)
        cdef object found
        if self.cached_sid != sid or self.cached_at != changes:
            found = dict_get(self.sinks, sid)
            if found is None:
                return SKIPPED
            self.sink = <Sink>found
            self.cached_sid = sid
            self.cached_at = changes
        if load_int_relaxed(&self.sink.columnar):
            return COLUMNAR
        return JETSTREAM if self.sink.jetstream else PLAIN

    cdef bint take_row(self, Frame* frame) except -1:
        cdef JetStreamMailbox mailbox
        cdef Section section
        if not PARALLEL:
            return (<JetStreamMailbox>self.sink).take_row(frame, self)
        mailbox = <JetStreamMailbox>self.sink
        enter(&section, <PyObject*>mailbox)
        try:
            return mailbox.take_row(frame, self)
        finally:
            leave(&section)

    cdef int complete(self, Msg msg) except -1:
        return deliver_to(self.sink, msg, self)

    def feed(self, data: "bytes | bytearray | memoryview") -> list:
        """Parse bytes of the handshake. A fault is a `BROKEN` event after the frames."""
        cdef bint mine = self.acquire_reader()
        store_time_relaxed(&self.now, jsync_now())
        try:
            try:
                self.absorb(data)
            except ProtocolError as fault:
                self.events.append((EVENT_BROKEN, fault))
            events, self.events = self.events, []
        finally:
            self.release_reader(mine)
        return events

    def decrypted(self, data: bytes) -> list:
        """Parse and deliver what TLS has decrypted. Return events as `run_once` does."""
        cdef bint mine = self.acquire_reader()
        try:
            self.events = self.feed(data)
            self.answer()
            return self.take_events()
        finally:
            self.release_reader(mine)

    cdef list take_events(self):
        events = self.endings + self.events
        self.endings = []
        store_count_relaxed(&self.ended, 0)
        self.events = []
        return events

    def run_once(self, deadline: float, writable: bool = False) -> list:
        """Read and write until there is something for the session to decide.

        Return events `(Event, value)`, with no frame but INFO, -ERR and a PONG that came
        behind one of these. `READABLE` and `WRITABLE` come only if not direct, where
        `writable` means that ciphertext waits for the socket. There are no events at
        `deadline`, by the monotonic clock, or when interrupted.
        """
        if not PARALLEL:
            try:
                return self.run_as_reader(deadline, writable)
            finally:
                chain_wake_all(&self.write_buffer.chain)
        self.acquire_reader()
        try:
            return self.run_as_reader(deadline, writable)
        finally:
            self.release_reader(True)

    cdef list run_as_reader(self, double deadline, bint writable):
        cdef int64_t until = <int64_t>(deadline * 1e9), aside, pause, now, deferred
        cdef pollfd fds[2]
        cdef int ready = 0
        cdef size_t got = 0
        cdef bint more = False, secure, full, gone, joining
        # Even then it looks at the socket once, because others may interrupt without a
        # pause. For the same reason `takes_more` is kept for the next call.
        cdef bint hurried = load_int(&self.interrupted)
        store_int(&self.deciding, False)
        if PARALLEL:
            until = min(until, jsync_now() + BREATH_NS)
        # There may be events already, from a thread that read in place of this one.
        while (
            not self.events and (hurried or not load_int(&self.interrupted))
            and self.ended < MAX_ENDINGS
        ):
            now = jsync_now()
            store_time_relaxed(&self.now, now)
            secure = self.direct and self.secure
            self.release_reader(True)
            if secure:
                more = self.write_buffer.flush_records(self.takes_more, now)
                self.takes_more = False
                now = jsync_now()
            elif not self.direct:
                more = not writable and self.write_buffer.has_plaintext(now)
            with nogil:
                chain_start(&self.write_buffer.chain)
                deferred = 0  # when the socket was found readable, if it is read later
                while True:
                    # Right after reading was deferred, the threads send their requests.
                    if self.direct and not secure and deferred != now:
                        more = self.write_buffer.flush_round(self.takes_more, now)
                        self.takes_more = False
                    aside = load_time_relaxed(&self.write_buffer.aside_until) - now
                    if load_int(&self.borrowed):
                        aside += WAITED_FOR_NS
                    store_int_relaxed(&self.write_buffer.aside, aside > 0)
                    fds[0].fd = load_int_relaxed(&self.fd)
                    fds[0].events = 0 if aside > 0 or deferred else POLLIN
                    full = writable
                    if self.direct:
                        full = load_int_relaxed(&self.write_buffer.socket_full) != 0
                    if full:
                        fds[0].events |= POLLOUT
                    fds[1].fd = self.wake_fd
                    fds[1].events = POLLIN
                    fds[0].revents = fds[1].revents = 0
                    pause = self.pause(until, now, more or hurried, full, aside)
                    if deferred and not load_int_relaxed(&self.write_buffer.chain.length):
                        pause = min(pause, LAST_NS)
                    if self.direct:
                        store_time_relaxed(&self.write_buffer.poll_deadline, now + pause)
                    ready = jsync_poll(fds, 2, pause)
                    if ready > 0 and fds[1].revents:
                        drain_pipe(self.wake_fd)
                    now = jsync_now()
                    joining = self.write_buffer.expects_more()
                    if joining:
                        chain_watch(&self.write_buffer.chain, now)
                    if self.may_defer(
                        fds[0].revents, deferred, secure, hurried, until, now
                    ):
                        deferred = deferred or now
                        if chain_defers(&self.write_buffer.chain, deferred, now):
                            continue
                    if deferred:
                        fds[0].revents |= POLLIN
                        break
                    if joining and not ready and self.is_idle(
                        secure, hurried, until, now, aside
                    ):
                        continue  # which sends joined requests
                    # No GIL is needed to see that there is nothing to do yet.
                    if (
                        ready or aside <= 0
                        or load_count_relaxed(&self.ended) >= MAX_ENDINGS
                    ):
                        break
                    if hurried:  # and a waiting thread reads the socket
                        break
                    if secure and self.write_buffer.has_due(False, now):
                        break
                    if now >= until:
                        # Never return without having looked at the socket.
                        store_time_relaxed(&self.write_buffer.aside_until, 0)
            self.acquire_reader()
            store_time_relaxed(&self.now, now)
            self.takes_more = fds[0].revents & POLLOUT
            gone = load_int_relaxed(&self.write_buffer.failure) != 0
            if fds[0].revents & (POLLIN | POLLERR | POLLHUP | POLLNVAL):
                if not self.direct:
                    self.events.append((EVENT_READABLE, None))
                elif not self.receiving:
                    self.chaining = True
                    try:
                        got += self.receive()
                    finally:
                        self.chaining = False
                else:
                    with nogil:  # another thread is still receiving: wait a moment
                        jsync_poll(fds, 0, 1_000_000)
            if gone and not self.events:
                self.events.append((EVENT_BROKEN, self.write_buffer.what_failed()))
            if not self.direct and (self.takes_more or more):
                self.events.append((EVENT_WRITABLE, None))
            if hurried or self.now >= until or (self.ended and ready == 0):
                break
            if PARALLEL and got >= BREATH_BYTES:
                break
        store_int(&self.interrupted, False)
        events = self.take_events()
        store_int(&self.deciding, len(events) > 0)
        return events

    cdef int64_t pause(
        self, int64_t until, int64_t now, bint more, bint full, int64_t aside
    ) noexcept nogil:
        """Return for how many nanoseconds the poll may last."""
        cdef int64_t left = until - now
        cdef int64_t lazy = load_time_relaxed(&self.write_buffer.lazy_since)
        if more:
            return 0
        if lazy and not full:
            left = min(left, lazy + LAZY_NS - now)
        if load_count_relaxed(&self.ended) and left > ENDINGS_NS:
            left = ENDINGS_NS
        if left > JOINED_NS and self.write_buffer.expects_more():
            left = JOINED_NS
        if 0 < aside < left:
            left = aside
        return max(0, min(left, MAX_POLL_NS))

    cdef bint may_defer(
        self, short revents, int64_t deferred, bint secure, bint hurried, int64_t until,
        int64_t now
    ) noexcept nogil:
        """Return whether the socket may be read later, as nothing else needs the GIL."""
        return (
            not PARALLEL and self.direct and not hurried and now < until
            and (revents == POLLIN or (deferred and not revents))
            and not load_int(&self.interrupted) and not load_count_relaxed(&self.ended)
            and not (secure and self.write_buffer.has_due(False, now))
        )

    cdef bint is_idle(
        self, bint secure, bint hurried, int64_t until, int64_t now, int64_t aside
    ) noexcept nogil:
        """Return whether nothing needs the GIL after a poll in which nothing came."""
        return (
            not hurried and now < until and aside <= 0
            and not load_count_relaxed(&self.ended)
            and not (secure and self.write_buffer.has_due(False, now))
        )

    cdef Py_ssize_t receive(self) except -1:
        """Receive, parse and deliver what has come, up to a bound. Return its size."""
        cdef ssize_t n
        cdef size_t got = 0, space
        cdef int error
        self.receiver = PyThread_get_thread_ident()
        self.receiving = True
        # It may have waited for the GIL since the poll.
        store_time_relaxed(&self.now, jsync_now())
        try:
            while got == 0 or (
                got < MAX_READ_BYTES and jsync_now() - self.now < MAX_READ_NS
            ):
                self.room()
                space = self.capacity - self.end
                if self.records is not None:
                    space = self.room_for_records()
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
                got += n
                if self.records is None:
                    self.arrived(n)
                elif not self.decrypt(n):
                    break
                if <size_t>n < space:
                    break  # no more bytes are here, or else the next poll reports them
        except ProtocolError as fault:
            self.events.append((EVENT_BROKEN, fault))
        finally:
            self.receiving = False
        self.answer()
        return got

    cdef size_t room_for_records(self) except 0:
        """Make room for the content of records. Return how many bytes of these may come."""
        cdef size_t space
        while self.capacity - self.end < 2 * RECORD_BYTES:
            self.grow()
        space = self.capacity - self.end - RECORD_BYTES
        return space

    cdef bint decrypt(self, size_t n) except -1:
        """Parse the content of `n` bytes of records behind `end`. False if no more come."""
        cdef TLSRecords records = self.records
        cdef size_t got = 0
        try:
            got = records.decrypt(self.buffer + self.end, n, self.capacity - self.end)
            if records.has_output:
                self.write_buffer.queue_records()
            if got:
                self.arrived(got)
        finally:
            if records.fault is not None:
                self.events.append((EVENT_BROKEN, records.fault))
        return records.fault is None

    # A waiting thread in the I/O thread's place ------------------------------------------

    cdef bint read_until(self, Park* park, int64_t deadline) except -1:
        """Read the socket until something that was read has woken `park`: then return True.

        Return False at the deadline, or if the I/O thread must read: other threads wait
        too, the session has something to decide, the socket is not plain, or not connected.
        """
        cdef pollfd fds[2]
        cdef int fd = load_int_relaxed(&self.fd)
        cdef int64_t left, now = 0, longest = MAX_POLL_NS
        cdef bint woken, told, taken = False
        if load_int(&self.borrowed) or not self.is_readable(fd):
            return False
        if load_int_relaxed(&self.secure) and (
            PyThread_get_thread_ident() == main_thread
            or self.write_buffer.is_inside_records()
        ):
            return False  # see `TLSRecords`
        if not replace_int(&self.borrowed, False, True):
            return False  # another thread was quicker
        if self.notify_fds[0] < 0 and (
            load_int(&self.finished) or jsync_notifier(self.notify_fds) != 0
        ):
            store_int(&self.borrowed, False)
            return False  # no descriptors are left
        if PyThread_get_thread_ident() == main_thread:
            longest = SIGNAL_SLICE_US * 1000
        park_begin_reading(park, self.notify_fds[1])
        try:
            while park_waits(park):
                # A signal that came while C code ran does not interrupt the poll below.
                PyErr_CheckSignals()
                # A signal handler may have forked, and the socket is the parent's.
                check_fork(self.write_buffer.generation)
                now = jsync_now()
                left = deadline - now
                if not park_waits(park) or left <= 0 or not self.is_readable(fd):
                    break
                store_time_relaxed(&self.write_buffer.aside_until, now + ASIDE_NS)
                with nogil:
                    fds[0].fd = fd
                    fds[1].fd = self.notify_fds[0]
                    fds[0].events = fds[1].events = POLLIN
                    fds[0].revents = fds[1].revents = 0
                    if taken:
                        jsync_poll(&fds[1], 1, min(left, TAKEN_NS))
                    else:
                        jsync_poll(fds, 2, min(left, longest))
                    if fds[1].revents:
                        drain_pipe(self.notify_fds[0])
                taken = fds[0].revents and not self.try_acquire_reader()
                if taken or not fds[0].revents:
                    continue
                try:
                    if self.may_read(fd):
                        park_reads(park)
                        told = self.ended > 0
                        self.receive()
                        park_polls(park, self.notify_fds[1])
                        told = told or self.ended == 0
                    else:
                        told = True
                finally:
                    self.release_reader(True)
                if not told:
                    self.write_buffer.wake()  # end a poll that may last until the next ping
        finally:
            woken = park_end_reading(park)
            store_int(&self.borrowed, False)
            if self.is_readable(fd):
                # A thread that has waited is likely to wait again.
                store_time_relaxed(
                    &self.write_buffer.aside_until,
                    max(now, load_time_relaxed(&self.now)) + ASIDE_NS,
                )
            else:
                store_time_relaxed(&self.write_buffer.aside_until, 0)
                if load_int_relaxed(&self.fd) >= 0:
                    self.write_buffer.wake()
            if load_int(&self.finished) and replace_int(&self.borrowed, False, True):
                close_notifier(self.notify_fds)
                store_int(&self.borrowed, False)
        return woken

    cdef bint is_readable(self, int fd) noexcept:
        """Return whether a waiting thread may read `fd`: see `read_until`."""
        if PARALLEL:
            return (
                load_int_relaxed(&self.fd) == fd >= 0 and load_int_relaxed(&self.direct)
                and not load_int(&self.write_buffer.parked)
                and not load_int(&self.deciding) and not load_int(&self.telling)
            )
        return (
            self.fd == fd >= 0 and self.direct and not self.write_buffer.parked
            and not self.deciding and not self.events
        )

    cdef bint may_read(self, int fd) noexcept:
        """Return whether the reading thread may read `fd`."""
        return self.is_readable(fd) and not (PARALLEL and self.events)

    cdef int answer(self) except -1:
        """Answer PING and PONG, which need no decision of the session.

        A PONG means that all before it has been dealt with, so it waits for its turn behind
        the events for the session.
        """
        cdef list others
        cdef int asked = 0
        if self.frames.on:
            self.write_buffer.flush_control()
        if not self.events:
            return 0
        others = []
        for event in self.events:
            if event[0] is EVENT_PING:
                asked += 1
            elif event[0] is EVENT_PONG and not others:
                self.on_pong()
            else:
                others.append(event)
        self.events = others
        # Last, because it may give up the GIL, and then another thread receives.
        for _ in range(asked):
            self.write_buffer.command(b"PONG\r\n")
        return 0

    def on_pong(self) -> None:
        """Set the waiter that has waited longest for a PONG."""
        waiter = self.next_pinger()
        if waiter is not None:
            (<Waiter>waiter).set(None)
