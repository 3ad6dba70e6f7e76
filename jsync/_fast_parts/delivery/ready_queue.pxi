# The queue of a callback pool: mailboxes with messages, which wait for one of its threads.
#
# A mailbox of a pool is at rest, or in the queue, or in the hands of one thread. So
# its messages stay in order. Who delivers to a mailbox at rest puts it into the queue.
#
# One thread at a time is woken. When it takes a mailbox and leaves others behind, it wakes
# the next thread. So a burst for many mailboxes wakes few threads, as long as no callback
# blocks, and each callback that blocks has the next mailbox begun by another thread.

cdef enum:
    TURN_MESSAGES = 64
    TURN_NS = 1_000_000  # a thread moves on after both, or after this with slow callbacks

cdef struct ReadyItem:
    PyObject* mailbox
    int64_t since


@cython.internal
@cython.no_gc_clear
cdef class ThreadNode:
    """A thread of the pool, in the list of those that wait for a mailbox."""

    cdef Park park
    cdef ThreadNode next_idle
    cdef bint is_idle, woken

    def __dealloc__(self):
        park_free(&self.park)


@cython.final
@cython.no_gc_clear  # a finalizer may still close a mailbox
cdef class ReadyQueue:
    """Pooled mailboxes that have messages, the one that waits longest first.

    `on_starved` is called when a mailbox finds no free thread: on the I/O thread, or on the
    one that closes a mailbox. It is not called again before `calm` has returned True.
    """

    cdef ReadyItem* ring  # its size is a power of two, NULL until the first mailbox
    cdef size_t capacity, head, length
    cdef uint64_t taken
    cdef int mailboxes  # those with a `task`, whether they have messages or not
    cdef ThreadNode idle  # the one that parked last, which is woken first
    cdef bint waking  # a thread was woken, and has not looked yet
    cdef bint starved
    cdef bint ended
    cdef WriteBuffer write_buffer
    cdef readonly object on_starved

    def __init__(
        self, write_buffer: WriteBuffer, on_starved: "Callable[[], object]"
    ) -> None:
        self.write_buffer = write_buffer
        self.on_starved = on_starved

    def __dealloc__(self):
        while self.length:
            Py_DECREF(<object>self.ring[self.head].mailbox)
            self.head = (self.head + 1) & (self.capacity - 1)
            self.length -= 1
        PyMem_RawFree(self.ring)

    def __repr__(self) -> str:
        return f"<ReadyQueue, {load_size_relaxed(&self.length)} mailboxes>"

    @cython.final
    cdef int grow(self) except -1:
        cdef size_t capacity = self.capacity * 2 if self.capacity else 16
        cdef size_t i
        cdef ReadyItem* ring = <ReadyItem*>PyMem_RawMalloc(capacity * sizeof(ReadyItem))
        if ring == NULL:
            raise MemoryError
        for i in range(self.length):
            ring[i] = self.ring[(self.head + i) & (self.capacity - 1)]
        PyMem_RawFree(self.ring)
        self.ring = ring
        self.head = 0
        self.capacity = capacity
        return 0

    cdef int push(self, object mailbox) except -1:
        """Add a mailbox, and wake a thread. Return True if the pool needs another one."""
        cdef ReadyItem* item
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.length == self.capacity:
                self.grow()
            Py_INCREF(mailbox)
            item = &self.ring[(self.head + self.length) & (self.capacity - 1)]
            item.mailbox = <PyObject*>mailbox
            item.since = jsync_now()
            store_size_relaxed(&self.length, self.length + 1)
            self.wake_next()
            return self.is_starved()
        finally:
            leave(&section)

    cdef inline bint is_starved(self) noexcept:
        """Return whether `on_starved` has to be called: no thread looks at the next one."""
        if self.length == 0 or self.waking or self.starved:
            return False
        self.starved = True
        return True

    cdef inline void wake_next(self) noexcept:
        """Wake a thread for the next mailbox, unless one is about to look."""
        cdef ThreadNode thread = self.idle
        if self.waking or thread is None:
            return
        self.idle, thread.next_idle = thread.next_idle, None
        thread.is_idle = False
        thread.woken = self.waking = True
        park_wake(&thread.park)

    cdef void forget(self, ThreadNode thread) noexcept:
        """Note that a thread does not wait any more. Called in the section."""
        cdef ThreadNode before
        if thread.woken:
            thread.woken = self.waking = False
        if not thread.is_idle:
            return
        thread.is_idle = False
        if self.idle is thread:
            self.idle = thread.next_idle
        else:
            before = self.idle
            while before.next_idle is not thread:
                before = before.next_idle
            before.next_idle = thread.next_idle
        thread.next_idle = None

    def state(self) -> tuple[int, float, int]:
        """Return how many mailboxes wait, the first of them since when, and how many have
        been taken so far."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            since = self.ring[self.head].since if self.length else 0
            return self.length, since / 1e9, self.taken
        finally:
            leave(&section)

    def first(self) -> "Mailbox | None":
        """Return the mailbox that waits longest. It stays here."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return <object>self.ring[self.head].mailbox if self.length else None
        finally:
            leave(&section)

    def take(self) -> "Mailbox | None":
        """Take the mailbox that waits longest, for a thread that is not of the pool."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self.pop() if self.length else None
        finally:
            leave(&section)

    def calm(self) -> bool:
        """Have `on_starved` called again, if no mailbox waits. Return whether none does."""
        cdef bint calm
        cdef Section section
        enter(&section, <PyObject*>self)
        calm = self.length == 0
        if calm:
            self.starved = False
        leave(&section)
        return calm

    def end(self) -> None:
        """Have the threads leave once no mailbox waits."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.ended = True
            while self.idle is not None:
                thread = self.idle
                self.forget(thread)
                park_wake(&thread.park)
        finally:
            leave(&section)

    cdef object pop(self):
        """Take the first mailbox, and have the next one begun. Called in the section."""
        cdef object mailbox = <object>self.ring[self.head].mailbox
        Py_DECREF(mailbox)  # the ring's reference, while the local one holds it
        self.head = (self.head + 1) & (self.capacity - 1)
        store_size_relaxed(&self.length, self.length - 1)
        self.taken += 1
        if self.length:
            self.wake_next()
        return mailbox
