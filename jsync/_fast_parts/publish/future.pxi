# The future of one publish: its message until that is stored, then its ack or its error.


@cython.internal
cdef class AbstractAckWindow(Sink):
    """The part of `AckWindow` that a future uses, with the calls that are due."""

    cdef WriteBuffer write_buffer
    cdef object pub_ack
    cdef list done                  # (future, callbacks, error or None) for `take_done`
    cdef int callbacks_due, timer_due        # `on_done`, or `on_timer`, must be called
    cdef public object on_done
    """Called on any thread when there is something for `take_done`. Must not block."""
    cdef public object on_timer
    """Called when a first message waits, to have `expire` called after `ack_timeout`."""

    cdef int mark_retrieved(self, PubAckFuture future) except -1:
        """Note that the caller has received the error of the future."""
        raise NotImplementedError

    cdef int64_t due_of(self, PubAckFuture future) except -1:
        """Return when the message of a future is late."""
        raise NotImplementedError

    cdef int fail_late(self, int64_t now) except -1:
        """Fail the futures whose acks are late."""
        raise NotImplementedError

    @cython.final
    cdef int report(self, PubAckFuture future, error, AbstractIOLoop io_loop) except -1:
        """Have the callbacks called, and the handler of failures if there is an error."""
        callbacks, future.callbacks = future.callbacks, None
        if callbacks is None and error is None:
            return 0
        self.done.append((future, callbacks or (), error))
        if len(self.done) == 1:
            if io_loop is not None:
                io_loop.events.append((EVENT_CALL, self.on_done))
            else:
                store_int(&self.callbacks_due, True)
        return 0

    @cython.final
    cdef inline int run_callbacks(self) except -1:
        """Make the calls that are due, outside the section, as they run code of users.

        Ctrl-C may end a call in the middle. Then the next thread that comes here makes it.
        """
        if load_int(&self.timer_due) and swap_int(&self.timer_due, False):
            self.call_once(self.on_timer, &self.timer_due)
        if load_int(&self.callbacks_due) and swap_int(&self.callbacks_due, False):
            self.call_once(self.on_done, &self.callbacks_due)
        return 0

    @cython.final
    cdef int call_once(self, object call, int* due) except -1:
        try:
            call()
        except BaseException:
            store_int(due, True)
            raise
        return 0

    @cython.final
    cdef int run_callbacks_outside(self, Section* section) except -1:
        """Do what `run_callbacks` does, from inside the section. The caller looks again."""
        leave(section)
        try:
            return self.run_callbacks()
        finally:
            enter(section, <PyObject*>self)

    @cython.final
    cdef int wait_among(
        self, WaitNode** queue, int64_t deadline, Section* section
    ) except -1:
        """Wait in a queue of the window, or make the calls that are due, outside of it."""
        if load_int(&self.callbacks_due) or load_int(&self.timer_due):
            return self.run_callbacks_outside(section)
        self.write_buffer.wake_reader()
        return wait_queue_wait(queue, deadline, section, self)


@cython.final
@cython.no_gc
cdef class PubAckFuture:
    """The ack of a published message, with the methods of `concurrent.futures.Future`.

    `Publisher.publish` returns it. It is done when the stream has stored the message,
    or when publishing failed. These errors mean that the message is not stored:
    `NoStreamResponseError` if no stream takes the subject, the `APIError` of a stream
    that rejects it, `PermissionsError` and `MaxPayloadError`. After the other errors
    the message may have been stored: `TimeoutError` after `ack_timeout`, or after a
    rejection of a second sending, `ConnectionLostError`, `PublisherClosedError` and
    `ConnectionClosedError`.

    Any number of threads may wait for it. You cannot pass it to
    `concurrent.futures.wait`, `concurrent.futures.as_completed` or
    `asyncio.wrap_future`, which accept only their own class.

    Example:
        ```python
        with js.publisher() as publisher:
            future = publisher.publish("orders.new", b"7")
            print(future.result(timeout=5).seq)
        ```
    """

    # Not tracked by the collector. Only callbacks can form a cycle, and they are dropped
    # once the future is done, which every future is in the end.
    cdef AbstractAckWindow window
    cdef readonly object subject
    """The subject of the message."""
    cdef object payload   # bytes, or a view of bytes, or None once the message is stored
    cdef bytes block
    cdef uint64_t number  # in the order of publishing, from 1
    cdef int64_t due      # the ack is late after this time
    cdef int64_t sent     # when the message was last written
    cdef int64_t again_at  # when to retry it, 0: no retry is planned
    cdef object last_error  # of the last answer
    cdef uint64_t epoch   # epoch of the window's failures when it failed
    cdef uint32_t slot
    cdef uint32_t retries, rejections  # after no stream answered, and for other reasons
    # One byte each, not `bint`: thousands of futures wait at a time, and all are read.
    cdef uint8_t finished
    cdef uint8_t seen     # the caller has been given the error
    cdef uint8_t unsent   # to be sent again now
    cdef uint8_t refused  # the last sending was answered with `last_error`
    cdef uint8_t ambiguous  # it was sent again although a sending had no answer
    cdef uint8_t busy     # the server was too busy for it, so new messages wait
    cdef uint8_t kept     # is in the window's list of failures, and not only counted there
    # An ack of the usual form is kept as stream and sequence until a caller reads it.
    cdef str stream
    cdef uint64_t sequence
    cdef object ack
    cdef object error
    cdef list callbacks
    cdef WaitNode* waiting

    def __init__(self) -> None:
        raise TypeError("you cannot make a future: a publisher's publish returns one")

    def __repr__(self) -> str:
        cdef Section section
        enter(&section, <PyObject*>self.window)
        try:
            state = self.state()
        finally:
            leave(&section)
        return f"<PubAckFuture {self.subject!r} {state}>"

    cdef str state(self):
        if not self.finished:
            return "pending"
        if self.error is not None:
            return f"failed: {type(self.error).__name__}"
        return repr(self.pub_ack())

    def __reduce__(self):
        raise TypeError("cannot pickle a future: pickle its result() instead")

    @property
    def data(self) -> bytes:
        """The payload. Empty once the message is stored."""
        cdef Section section
        enter(&section, <PyObject*>self.window)
        try:
            return b"" if self.payload is None else bytes(self.payload)
        finally:
            leave(&section)

    @property
    def headers(self) -> Headers | None:
        """The headers that were sent. None once the message is stored."""
        cdef Section section
        enter(&section, <PyObject*>self.window)
        try:
            return None if self.block is None else parse_headers(self.block)[2]
        finally:
            leave(&section)

    def done(self) -> bool:
        """Return whether the ack or the error has come. Does not block."""
        return load_byte(&self.finished) != 0

    def running(self) -> bool:
        """The opposite of `done`."""
        return not load_byte(&self.finished)

    def cancel(self) -> bool:
        """Return False: a published message cannot be taken back."""
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    @cython.annotation_typing(False)  # our own error for a value that is no number
    def result(self, timeout: "Seconds | None" = None) -> object:
        """Block until the message is stored, or publishing has failed.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            The ack.

        Raises:
            TimeoutError: The future is not done after `timeout`, or the ack did not
                come.
            NoStreamResponseError: No stream takes the subject. The message is not
                stored.
            APIError: The stream rejects the message. The message is not stored.
            ConnectionLostError: The message may have been stored.
            PublisherClosedError: The message may have been stored.
            ConnectionClosedError: The message may have been stored.
        """
        cdef Section section
        enter(&section, <PyObject*>self.window)
        try:
            self.wait(timeout, &section)
            if self.error is not None:
                self.window.mark_retrieved(self)
                raise fresh(self.error)
            return self.pub_ack()
        finally:
            leave(&section)
            self.window.run_callbacks()

    @cython.annotation_typing(False)
    def exception(self, timeout: "Seconds | None" = None) -> "Exception | None":
        """Block like `result`, and return the error instead of raising it.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            The error. None if the message is stored.

        Raises:
            TimeoutError: The future is not done after `timeout`.
        """
        cdef Section section
        enter(&section, <PyObject*>self.window)
        try:
            self.wait(timeout, &section)
            if self.error is None:
                return None
            self.window.mark_retrieved(self)
            return fresh(self.error)
        finally:
            leave(&section)
            self.window.run_callbacks()

    def add_done_callback(self, callback: object) -> None:
        """Call a function when the future is done, or soon if it is done already.

        The function runs on the connection's callback thread, or on this thread once
        the connection is closed. Its exceptions are passed to the `on_error` of
        `connect`, or logged.

        Args:
            callback: Called as `callback(future)`.
        """
        cdef Section section
        enter(&section, <PyObject*>self.window)
        try:
            if not callable(callback):
                raise ConfigError("a callback has to be callable")
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append(callback)
            if self.finished:
                self.window.report(self, None, None)
        finally:
            leave(&section)
            self.window.run_callbacks()

    cdef object pub_ack(self):
        if self.ack is None:
            self.ack = self.window.pub_ack(self.stream, self.sequence)
        return self.ack

    cdef inline size_t payload_size(self) noexcept:
        """Return the bytes of payload and headers, as `max_payload` counts them."""
        return payload_length(self.payload) + (
            PyBytes_GET_SIZE(self.block) if self.block is not None else 0
        )

    cdef inline size_t cost(self) noexcept:
        """Return the bytes that are kept while it waits."""
        return self.payload_size() + len(<str>self.subject)

    cdef int wait(self, timeout, Section* section) except -1:
        """Wait until it is done. Called in the section of the window, which opens here."""
        cdef int64_t deadline
        if timeout is None and self.finished:
            return 0
        deadline = deadline_after(timeout)
        while not self.finished:
            check_may_wait(self.window.write_buffer)
            if jsync_now() >= deadline:
                raise DeadlineError(
                    f"no ack for the message to {self.subject!r} within "
                    f"{format_seconds(check_seconds(timeout, 'timeout'))}: still pending"
                )
            # While reconnecting no other thread checks the deadlines.
            self.window.wait_among(
                &self.waiting, min(deadline, self.window.due_of(self)), section
            )
            self.window.fail_late(jsync_now())
        return 0
