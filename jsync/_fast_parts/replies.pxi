# What waits for an answer: Waiter, and Replies, which finds it.

@cython.final
cdef class Waiter(Sink):
    """Waits for one thing: the reply to a request, a PONG, a state of the connection."""

    cdef Park park
    cdef Outbox outbox
    cdef object result
    cdef object error
    cdef readonly bint done
    cdef readonly str subject
    cdef bint local  # no message of the server brings it

    @cython.annotation_typing(False)
    def __init__(
        self, outbox: Outbox, subject: str = "", *, local: bool = False
    ) -> None:
        self.outbox = outbox
        self.subject = str(subject)
        self.local = local

    def __dealloc__(self):
        park_free(&self.park)

    cdef int deliver(self, Msg msg, Line line) except -1:
        self.set(msg)
        return 0

    cpdef set(self, object result):
        """Be done; only the first time counts."""
        if not self.done:
            self.result = result
            self.done = True
            park_wake(&self.park)

    def fail(self, error: "Exception") -> None:
        """Be done with an error; only the first time counts."""
        if not self.done:
            self.error = error
            self.done = True
            park_wake(&self.park)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is done, waiting up to `timeout` seconds. One thread at a time."""
        cdef int64_t deadline = deadline_after(timeout)
        while not self.done:
            check_may_wait(self.outbox)
            if self.park.waiting:
                raise ConcurrentUseError("another thread is waiting on this object")
            if self.local:
                woken = park_wait(&self.park, deadline)
            else:
                woken = wait_for_wake(self.outbox, &self.park, deadline, True)
            if not woken and jsync_now() >= deadline:
                break
        return self.done

    def value(self) -> object:
        """What `set` was given; raises what `fail` was given."""
        if self.error is not None:
            raise fresh(self.error)
        return self.result


@cython.final
cdef class Replies(Sink):
    """Routes messages on `<prefix><token>` to who waits for that token.

    Tokens are never used twice: a late reply finds nobody and is dropped.
    """

    cdef dict waiting
    cdef uint64_t token
    cdef readonly str prefix
    cdef bytes raw_prefix

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.raw_prefix = prefix.encode()
        self.waiting = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, sink: Sink) -> int:
        """Expect replies for `sink`; the token to put behind `prefix`."""
        self.token += 1
        self.waiting[self.token] = sink
        return self.token

    def discard(self, token: int) -> None:
        self.waiting.pop(token, None)

    @cython.annotation_typing(False)
    def ask(
        self,
        outbox: Outbox,
        subject: str,
        data: "bytes | bytearray | memoryview",
        timeout: float,
        headers: "HeadersLike | None" = None,
    ) -> "Msg | Literal[False] | None":
        """Send a request and wait for its reply: None after `timeout` seconds.

        False: nothing was sent, being disconnected.
        """
        cdef Waiter waiter = Waiter(outbox, subject)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.raw_prefix)
        cdef bytes reply = PyBytes_FromStringAndSize(NULL, size + 20)
        cdef char* out = PyBytes_AS_STRING(reply)
        cdef char* end
        self.token += 1
        token = self.token
        end = write_number(put(out, PyBytes_AS_STRING(self.raw_prefix), size), self.token)
        # A new one each time: the loss of the connection has failed the last.
        self.waiting[token] = waiter
        try:
            try:
                (<Outbox>outbox).put_message(subject, data, out, end - out, headers, True)
            except ConnectionLostError:
                return False
            if not waiter.wait(timeout):
                return None
            return waiter.value()
        finally:
            self.waiting.pop(token, None)

    def waiters(self) -> list:
        """All that wait, for telling them of a failure."""
        return list(self.waiting.values())

    cdef int deliver(self, Msg msg, Line line) except -1:
        cdef Py_ssize_t i = msg.subject_size
        cdef uint64_t token = 0
        while i > 0 and msg.head[i - 1] != c".":
            i -= 1
        if parse_number(msg.head + i, msg.subject_size - i, &token):
            sink = self.waiting.get(token)
            if sink is not None:
                (<Sink>sink).deliver(msg, line)
                if isinstance(sink, Waiter):
                    del self.waiting[token]
        return 0
