# The future of one publish: its message until that is stored, then its ack or its error.


@cython.final
@cython.no_gc
cdef class PubAckFuture:
    """The ack of a message on its way, with the methods of `concurrent.futures.Future`.

    `Publisher.publish` returns it. It is done when the stream has stored the message, or
    with an error. These errors mean that the message is not stored: `NoStreamResponseError`
    if no stream takes the subject, the `APIError` of a stream that rejects it,
    `PermissionsError` and `MaxPayloadError`. After the others it may have been stored:
    `TimeoutError` after `ack_timeout`, or after a refusal of a second sending,
    `ConnectionLostError`, `PublisherClosedError` and `ConnectionClosedError`.

    Any number of threads may wait for it. What `concurrent.futures.wait`, `as_completed`
    and `asyncio.wrap_future` take is their own class, and not this one.
    """

    # Not tracked by the collector: callbacks, the one way to a cycle, are dropped once
    # it is done, which every future is in the end.
    cdef AckWindow window
    cdef readonly object subject
    """Where it was published."""
    cdef bytes payload, block
    cdef uint64_t number  # in the order of publishing, from 1
    cdef int64_t due      # the ack is late then
    cdef int64_t sent     # when the message was last written
    cdef int64_t again_at  # when it is to be sent again; 0: it does not wait for that
    cdef object refusal   # the error that answered the last sending
    cdef uint64_t epoch   # of the window's failures, when it failed
    cdef uint32_t slot
    cdef uint32_t retries, refusals  # for want of a stream; for other reasons
    # Bytes, not `bint`: thousands of futures wait at a time, and each has to be read.
    cdef uint8_t finished
    cdef uint8_t seen     # the caller has been given the error
    cdef uint8_t unsent   # to be sent again now
    cdef uint8_t doubtful  # a sending had no answer, and another one followed
    cdef uint8_t busy     # the server was too busy for it: what is new waits
    cdef uint8_t kept     # among the window's failures; else it was only counted there
    # An ack of the usual form is its stream and sequence until somebody asks for it.
    cdef str stream
    cdef uint64_t sequence
    cdef object ack
    cdef object error
    cdef list callbacks
    cdef Parked* waiting

    def __init__(self) -> None:
        raise TypeError("futures are what a publisher's publish returns")

    def __repr__(self) -> str:
        if not self.finished:
            state = "pending"
        elif self.error is not None:
            state = f"failed: {type(self.error).__name__}"
        else:
            state = repr(self.pub_ack())
        return f"<PubAckFuture {self.subject!r} {state}>"

    def __reduce__(self):
        raise TypeError("a future cannot be pickled: its ack, the result, can")

    @property
    def data(self) -> bytes:
        """The payload; empty once the message is stored."""
        return self.payload if self.payload is not None else b""

    @property
    def headers(self) -> Headers | None:
        """The headers that were sent; None once the message is stored."""
        return None if self.block is None else parse_headers(self.block)[2]

    def done(self) -> bool:
        """Whether the ack or the error has come; does not block."""
        return self.finished != 0

    def running(self) -> bool:
        """The opposite of `done`."""
        return not self.finished

    def cancel(self) -> bool:
        """False: what was published cannot be taken back."""
        return False

    def cancelled(self) -> bool:
        """False."""
        return False

    @cython.annotation_typing(False)  # what is no number has an error of ours
    def result(self, timeout: float | None = None) -> object:
        """Block until done; the ack, or the error raised.

        `TimeoutError` after `timeout` seconds: then it is still pending.
        """
        self.wait(timeout)
        if self.error is not None:
            self.window.failures.see(self)
            raise fresh(self.error)
        return self.pub_ack()

    @cython.annotation_typing(False)
    def exception(self, timeout: float | None = None) -> "Exception | None":
        """Block like `result`; the error, or None when the message is stored."""
        self.wait(timeout)
        if self.error is None:
            return None
        self.window.failures.see(self)
        return fresh(self.error)

    def add_done_callback(self, callback: object) -> None:
        """Have `callback(future)` called when it is done, soon if it is already.

        It runs on the connection's callback thread, like the callbacks of `connect`, or
        here once the connection is closed. What it raises goes to the `on_error` of
        `connect`, or to the log.
        """
        if not callable(callback):
            raise ConfigError("a callback has to be callable")
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append(callback)
        if self.finished:
            self.window.tell(self, None, None)

    cdef object pub_ack(self):
        if self.ack is None:
            self.ack = self.window.pub_ack(self.stream, self.sequence)
        return self.ack

    cdef inline size_t payload_size(self) noexcept:
        """Bytes as `max_payload` counts them."""
        return PyBytes_GET_SIZE(self.payload) + (
            PyBytes_GET_SIZE(self.block) if self.block is not None else 0
        )

    cdef inline size_t cost(self) noexcept:
        """Bytes that are kept while it waits."""
        return self.payload_size() + len(<str>self.subject)

    cdef int wait(self, timeout) except -1:
        cdef int64_t deadline
        if timeout is None and self.finished:
            return 0
        deadline = deadline_after(timeout)
        while not self.finished:
            check_may_wait(self.window.outbox)
            if jsync_now() >= deadline:
                raise DeadlineError(
                    f"no ack for the message to {self.subject!r} within {timeout} s: "
                    "still pending"
                )
            # While reconnecting nobody else looks at the clock.
            crowd_wait(&self.waiting, min(deadline, self.due))
            self.window.fail_late(jsync_now())
        return 0
