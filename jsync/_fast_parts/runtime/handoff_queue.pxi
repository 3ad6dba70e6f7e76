# A queue between threads. Greenlets of gevent may wait for it too, which those of the
# standard library do not permit.


@cython.final
cdef class HandoffQueue:
    """Hands objects to other threads, in order. `put` never blocks.

    It replaces `queue.SimpleQueue`. Finalizers and signal handlers may call `put`.
    """

    cdef object items
    cdef WaitNode* waiting

    def __cinit__(self):
        self.items = deque()

    def __class_getitem__(cls, item: object) -> "type[HandoffQueue]":
        return cls

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<HandoffQueue, {len(self.items)} items>"

    def put(self, item: object) -> None:
        """Add an object, and wake the threads that wait."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.items.append(item)
            wait_queue_wake(&self.waiting)
        finally:
            leave(&section)

    def get(self, timeout: float | None = None) -> object:
        """Remove and return the first object, after up to `timeout` seconds.

        Raises `queue.Empty` if none came in time.
        """
        cdef int64_t deadline = deadline_after(timeout)
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            while not self.items:
                if jsync_now() >= deadline:
                    raise Empty
                wait_queue_wait(&self.waiting, deadline, &section, self)
            return self.items.popleft()
        finally:
            leave(&section)
