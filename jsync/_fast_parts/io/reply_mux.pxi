# Waiter waits for an answer, and ReplyMux finds the waiter of an answer.

cdef enum:  # values of `Waiter.resuming`
    UNCOUNTED
    COUNTED  # in `WakeChain.resuming`
    RESUMED


@cython.final
cdef class Waiter(Sink):
    """Waits for one thing: the reply to a request, a PONG, a state of the connection."""

    cdef Park park
    cdef WriteBuffer write_buffer
    cdef object result
    cdef object error
    cdef int claimed  # by the thread that sets or fails it
    cdef int occupied  # by a waiting thread, without a GIL
    cdef int settled  # the outcome is here, for waiting threads
    cdef readonly str subject
    cdef bint local  # no message of the server sets it
    cdef bint piggyback  # its request leaves as the waiting thread parks
    cdef ChainLink link
    cdef int resuming  # without a GIL
    cdef list others  # gets the first answer that no stream gave, None: every answer counts
    cdef bint confirms  # an empty answer of a stream counts, too

    @cython.annotation_typing(False)
    def __init__(
        self,
        write_buffer: WriteBuffer,
        subject: str = "",
        *,
        local: bool = False,
        others: "list[bytes] | None" = None,
        confirms: bool = False,
    ) -> None:
        self.write_buffer = write_buffer
        self.subject = str(subject)
        self.local = local
        self.others = others
        self.confirms = confirms

    def __dealloc__(self):
        park_free(&self.park)

    cdef int deliver(self, Msg msg, AbstractIOLoop io_loop) except -1:
        if swap_int(&self.claimed, True):
            return 0
        self.result = msg
        store_int(&self.settled, True)
        if PARALLEL:
            if io_loop.chaining and load_int(&self.park.waiting) == ASLEEP:
                self.count_resuming()
            park_wake(&self.park)
        elif io_loop.chaining and self.park.waiting and not self.park.reading:
            if self.park.sleeper.hub == NULL:
                chain_add(&self.write_buffer.chain, &self.link, &self.park)
            else:
                chain_note(&self.write_buffer.chain, &self.link, &self.park)
                park_wake(&self.park)
        else:
            park_wake(&self.park)
        return 0

    cdef void count_resuming(self) noexcept:
        """Count this thread among those that are about to run, without a GIL."""
        # Added first, so that the count never falls below 0 if the thread runs already.
        add_int(&self.write_buffer.chain.resuming, 1)
        if not replace_int(&self.resuming, UNCOUNTED, COUNTED):
            add_int(&self.write_buffer.chain.resuming, -1)

    cdef inline bint passes_over(self, Msg msg) except -1:
        """Return whether a responder other than a stream answered, and note that."""
        if self.others is None or is_of_stream(msg) or (
            self.confirms and msg.payload_size() == 0
        ):
            return False
        if not self.others:
            self.others.append(msg.data)
        return True

    cpdef set(self, object result):
        """Settle it with a result. Only the first call counts."""
        if not swap_int(&self.claimed, True):
            self.result = result
            store_int(&self.settled, True)
            park_wake(&self.park)

    def fail(self, error: "Exception") -> None:
        """Settle it with an error. Only the first call counts."""
        if not swap_int(&self.claimed, True):
            self.error = error
            store_int(&self.settled, True)
            park_wake(&self.park)

    @property
    def done(self) -> bool:
        return load_int(&self.settled) != 0

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it is done after up to `timeout` seconds. One thread at a time."""
        cdef int64_t deadline = deadline_after(timeout)
        cdef bint woken = False
        while not load_int(&self.settled):
            check_may_wait(self.write_buffer)
            if PARALLEL:
                if swap_int(&self.occupied, True):
                    raise ConcurrentUseError("another thread is waiting on this object")
                try:
                    park_arm(&self.park)
                    if load_int(&self.settled):
                        park_leave(&self.park)
                        break
                    woken = self.park_until(deadline)
                finally:
                    store_int(&self.occupied, False)
            elif self.park.waiting:
                raise ConcurrentUseError("another thread is waiting on this object")
            else:
                woken = self.park_until(deadline)
            if not woken and jsync_now() >= deadline:
                break
        return load_int(&self.settled) != 0

    cdef inline bint park_until(self, int64_t deadline) except -1:
        if self.local:
            return park_wait(&self.park, deadline)
        if not PARALLEL:
            chain_lend_lock(&self.write_buffer.chain, &self.park.sleeper)
        try:
            return wait_for_wake(
                self.write_buffer, &self.park, deadline, True, False, self.piggyback
            )
        finally:
            if PARALLEL:
                if swap_int(&self.resuming, RESUMED) == COUNTED:
                    add_int(&self.write_buffer.chain.resuming, -1)
            elif self.write_buffer.generation == jsync_forks:
                if self.link.park != NULL:
                    chain_leave(&self.write_buffer.chain, &self.link)
                chain_keep_lock(&self.write_buffer.chain, &self.park.sleeper)

    def value(self) -> object:
        """Return the result of `set`, or raise the error of `fail`."""
        if self.error is not None:
            raise fresh(self.error)
        return self.result


cdef extern from *:
    """
    /* So that threads without a GIL rarely meet in one dict. */
    #define JSYNC_SHARDS (JSYNC_PARALLEL ? 16 : 1)
    """
    const uint64_t SHARDS "JSYNC_SHARDS"


@cython.final
cdef class ReplyMux(Sink):
    """Routes messages on `<prefix><token>` to the sink that waits for that token.

    Tokens are never used twice, so a late reply finds no sink and is dropped.

    A rejection of the inbox sets `is_open` to False, and then fails `waiters()`. So a
    thread that waits checks `is_open` after `add` and before it sends: then it misses none.
    """

    cdef tuple shards  # of the sinks by token: with a GIL one, else a lock for each
    cdef int subscribed
    cdef uint64_t token
    cdef readonly str prefix
    cdef bytes raw_prefix

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.raw_prefix = prefix.encode()
        self.shards = tuple([{} for _ in range(SHARDS)])

    def __len__(self) -> int:
        return len(self.waiters())

    @property
    def is_open(self) -> bool:
        """True if the inbox is subscribed."""
        return load_int(&self.subscribed) != 0

    @is_open.setter
    def is_open(self, value: bool) -> None:
        store_int(&self.subscribed, value)

    def add(self, sink: Sink) -> int:
        """Expect replies for `sink`. Return the token to put behind `prefix`."""
        cdef uint64_t token = add_number(&self.token, 1)
        self.shard(token)[token] = sink
        return token

    def discard(self, token: int) -> None:
        self.shard(token).pop(token, None)

    cdef inline dict shard(self, uint64_t token):
        return <dict>self.shards[<Py_ssize_t>(token % SHARDS)]

    @cython.annotation_typing(False)
    def request(
        self,
        write_buffer: WriteBuffer,
        subject: str,
        data: "bytes | bytearray | memoryview",
        timeout: float,
        headers: "HeadersLike | None" = None,
        others: "list[bytes] | None" = None,
    ) -> "Msg | Literal[False] | None":
        """Send a request and wait for its reply. Return None after `timeout` seconds.

        Return False if nothing was sent, because it is disconnected or not `is_open`. With
        `others` only a stream's answer counts, and the list gets the first answer of
        another responder.
        """
        cdef Waiter waiter = Waiter(write_buffer, subject, others=others)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.raw_prefix)
        cdef bytes reply = PyBytes_FromStringAndSize(NULL, size + 20)
        cdef char* out = PyBytes_AS_STRING(reply)
        cdef char* end
        cdef uint64_t number = add_number(&self.token, 1)
        cdef FlushMode mode = NOW
        if (<WriteBuffer>write_buffer).needs_io_thread():
            waiter.piggyback = True
            mode = PIGGYBACK
        elif load_int_relaxed(&(<WriteBuffer>write_buffer).chain.resuming):
            mode = JOINED
        token = number
        end = write_number(put(out, PyBytes_AS_STRING(self.raw_prefix), size), number)
        # A new one each time, because the loss of the connection has failed the last one.
        self.shard(number)[token] = waiter
        try:
            if not load_int(&self.subscribed):
                return False
            try:
                (<WriteBuffer>write_buffer).publish_message(
                    subject, data, out, end - out, headers, mode
                )
            except ConnectionLostError:
                return False
            if not waiter.wait(timeout):
                return None
            return waiter.value()
        finally:
            self.shard(number).pop(token, None)
            if waiter.piggyback and not waiter.done:  # perhaps it never parked
                (<WriteBuffer>write_buffer).flush_now()

    def waiters(self) -> list:
        """Return all sinks that may still get a reply, to report a failure to them."""
        cdef dict shard
        cdef list found = []
        for shard in self.shards:
            found += list(shard.values())
        return [
            sink for sink in found
            if not isinstance(sink, Waiter) or not load_int(&(<Waiter>sink).settled)
        ]

    cdef int deliver(self, Msg msg, AbstractIOLoop io_loop) except -1:
        cdef Py_ssize_t i = msg.subject_size
        cdef uint64_t token = 0
        while i > 0 and msg.head[i - 1] != c".":
            i -= 1
        if parse_number(msg.head + i, msg.subject_size - i, &token):
            sink = dict_get(self.shard(token), token)
            if sink is not None:
                if isinstance(sink, Waiter) and (<Waiter>sink).passes_over(msg):
                    return 0
                deliver_to(<Sink>sink, msg, io_loop)
        return 0
