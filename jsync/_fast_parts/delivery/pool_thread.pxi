# The threads of a callback pool, which take mailboxes from its queue.


@cython.final
@cython.no_gc_clear
cdef class PoolThread(ThreadNode):
    """A thread of a callback pool, which takes mailboxes from its queue.

    `identity` is the `runner` of each mailbox while this thread has it.
    """

    cdef ReadyQueue queue
    cdef object identity
    cdef bint brisk  # the last wait was a short one

    def __init__(self, queue: ReadyQueue, identity: object) -> None:
        self.queue = queue
        self.identity = identity

    def next(self, timeout: float, last: Mailbox | None = None) -> Mailbox | None:
        """Wait for a mailbox. Return None after `timeout` seconds, and at the end.

        The wait is as that of a reader of `last`, the mailbox that this thread had before.
        """
        cdef int64_t deadline = jsync_now() + <int64_t>(timeout * 1e9)
        cdef int64_t started
        cdef ReadyQueue queue = self.queue
        cdef WriteBuffer write_buffer = queue.write_buffer
        cdef Mailbox mailbox
        cdef bint flushed = False, ended = False, held
        while True:
            check_may_wait(write_buffer)
            held = False
            if load_time_relaxed(&write_buffer.lazy_since) and not flushed and not (
                load_size_relaxed(&queue.length)
            ):  # see `Mailbox.wait`
                held = self.brisk and last is not None and last.keeps_acks()
                if not held:
                    flushed = True
                    write_buffer.flush_now()
            mailbox = self.take(parks=True, ended=&ended)
            if mailbox is None and not ended:
                started = jsync_now()
                try:
                    if held or load_int_relaxed(&queue.mailboxes):
                        wait_for_wake(
                            write_buffer, &self.park, deadline,
                            last is not None and load_int_relaxed(&last.self_reading), held,
                        )
                    else:  # it waits for no bytes, so another thread may read the socket
                        park_wait(&self.park, deadline, write_buffer)
                except BaseException:
                    self.give_up()
                    raise
                mailbox = self.take(parks=False, ended=&ended)
                self.brisk = mailbox is not None and last is not None and (
                    load_time_relaxed(&last.arrived) - started < LAZY_NS
                )
            if mailbox is not None:
                mailbox.hold(self.identity)
                return mailbox
            if ended or jsync_now() >= deadline:
                return None

    cdef Mailbox take(self, bint parks, bint* ended):
        """Take the first mailbox. If there is none, and the thread `parks`, it is idle."""
        cdef ReadyQueue queue = self.queue
        cdef Mailbox mailbox = None
        cdef bint starved = False
        cdef Section section
        enter(&section, <PyObject*>queue)
        try:
            queue.forget(self)
            ended[0] = queue.ended and queue.length == 0
            if queue.length:
                mailbox = <Mailbox>queue.pop()
                starved = queue.is_starved()
            elif parks and not ended[0]:
                if PARALLEL:
                    park_arm(&self.park)
                self.is_idle = True
                self.next_idle, queue.idle = queue.idle, self
        finally:
            leave(&section)
        if starved:
            queue.on_starved()
        return mailbox

    cdef int give_up(self) except -1:
        """Leave the idle threads, and have another one woken instead."""
        cdef Section section
        enter(&section, <PyObject*>self.queue)
        try:
            self.queue.forget(self)
            if self.queue.length:
                self.queue.wake_next()
        finally:
            leave(&section)
        return 0
