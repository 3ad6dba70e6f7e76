# Iterating over the messages of a mailbox.


@cython.final
cdef class MessageIterator:
    """Iterates over a mailbox to its end, and keeps `owner` alive until then.

    `owner._on_wait_timeout()` is called, and may close the mailbox, when nothing has come
    by `deadline` of the monotonic clock, or for `silence` seconds, or when a wait for a
    message has lasted `idle` seconds.
    """

    cdef Mailbox mailbox
    cdef object owner
    cdef int64_t deadline, silence, idle

    def __init__(
        self,
        mailbox: Mailbox,
        owner: object,
        deadline: float | None = None,
        silence: float = 0.0,
        idle: float = 0.0,
    ) -> None:
        self.mailbox = mailbox
        self.owner = owner
        self.deadline = NEVER if deadline is None else <int64_t>(<double>deadline * 1e9)
        self.silence = <int64_t>(silence * 1e9)
        self.idle = <int64_t>(idle * 1e9)

    def __iter__(self) -> "MessageIterator":
        return self

    def __next__(self) -> Msg:
        cdef Mailbox mailbox = self.mailbox
        cdef Msg msg
        cdef int64_t started
        msg = mailbox.take()
        if msg is not None:
            return msg
        started = jsync_now()
        while True:
            msg = mailbox.wait(self.until(started))
            if msg is not None:
                return msg
            if load_int_relaxed(&mailbox.over):
                if PARALLEL and mailbox.count_now():  # they came after the deadline
                    continue
                error = mailbox.failure
                if error is not None:
                    raise fresh(error)
                raise StopIteration
            # An arrival since then, such as a heartbeat, has moved the deadline.
            if jsync_now() >= self.until(started):
                self.owner._on_wait_timeout()
                started = jsync_now()

    cdef int64_t until(self, int64_t started) noexcept:
        cdef int64_t when = self.deadline
        cdef int64_t arrived = load_time_relaxed(&self.mailbox.arrived)
        if self.silence and arrived + self.silence < when:
            when = arrived + self.silence
        if self.idle and started + self.idle < when:
            when = started + self.idle
        return when


cdef class ArrowIterator:
    """The part of reading Arrow batches that Ctrl-C cannot interrupt.

    `_fill` of a subclass has a batch taken by `_take`, or returns at the end. If Ctrl-C
    comes before the batch is handed over, the next call hands it over.
    """

    cdef list taken

    def __cinit__(self):
        self.taken = []

    def _take(self, mailbox: JetStreamMailbox) -> bool:
        """Take the rows that are here. Return whether there is a batch to hand over."""
        cdef ArrowBatch batch = mailbox.take_rows()
        if batch.rows:
            self.taken.append(batch)
        return len(self.taken) > 0

    @property
    def _taken(self) -> "list[ArrowBatch]":
        """The batch that was taken and not handed over, if there is one."""
        return self.taken

    def __iter__(self) -> "ArrowIterator":
        return self

    def __next__(self) -> ArrowBatch:
        cdef ArrowBatch batch = self.pop()
        if batch is None:
            self._fill(None)
            batch = self.pop()
            if batch is None:
                raise StopIteration
        return batch

    cdef ArrowBatch pop(self):
        """Return the batch that waits to be handed over, once. None if there is none."""
        try:
            return self.taken.pop() if self.taken else None
        except IndexError:  # another thread was quicker
            return None


cdef class TimedArrowIterator(ArrowIterator):
    """Reads Arrow batches, each with a timeout."""

    def next(self, timeout: "Seconds | None" = 5.0) -> ArrowBatch:
        """Block until the next batch is ready.

        Args:
            timeout: Seconds to wait, after which you get the messages that have come.
                None: no limit.

        Returns:
            The batch.

        Raises:
            TimeoutError: No message came in time.
            SubscriptionClosedError: The iteration has ended.
            ConsumerDeletedError: The consumer was deleted.
            ConnectionClosedError: The connection was closed.
        """
        cdef ArrowBatch batch = self.pop()
        if batch is None:
            self._fill(timeout)
            batch = self.pop()
            if batch is None:
                raise SubscriptionClosedError("no more batches: the iteration has ended")
        return batch
