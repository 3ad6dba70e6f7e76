# The messages of a publisher that wait for their acks, and the room that is left.
#
# Each has a slot. The token that ends its reply subject identifies the slot and this use of
# it, so that the I/O thread finds the future of an ack by an index, and no ack is taken for
# another one. The slots are linked in the order of publishing, the longest waiting first.

cdef enum:
    NO_SLOT = 0xFFFFFFFF

cdef struct Slot:
    PyObject* future         # owned, NULL while nothing waits here
    uint64_t token           # of the last use: uses times the window, plus the number
    uint32_t before, after   # neighbours in the order of publishing, or the next free one

cdef struct LargeWaiter:  # a message that waits for much room, off the greenlets' stacks
    LargeWaiter* next


cdef class PendingAcks(AbstractAckWindow):
    """Messages that wait for their acks, bounded in their number and their bytes."""

    cdef Slot* slots
    cdef uint32_t size, free, first, last
    cdef uint32_t waiting, writing  # slots in use: for an ack to come, for being written
    cdef size_t bytes, limit        # of subjects, header blocks and payloads in use
    cdef bytes prefix               # of reply subjects, with a token behind it
    cdef size_t prefix_size
    cdef uint64_t count_sent        # `published`
    cdef WaitNode* stalled            # threads that wait for room
    cdef LargeWaiter* large_waiters  # the first that waits for much room in bytes

    @cython.final
    cdef int make_slots(self, bytes raw, uint32_t size, size_t limit) except -1:
        cdef uint32_t at
        self.size = size
        self.limit = limit
        self.prefix_size = PyBytes_GET_SIZE(raw)
        self.prefix = raw
        self.slots = <Slot*>PyMem_RawMalloc(self.size * sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError
        self.first = self.last = NO_SLOT
        for at in range(self.size):
            self.slots[at].future = NULL
            self.slots[at].token = at
            self.slots[at].after = at + 1
        self.slots[self.size - 1].after = NO_SLOT
        return 0

    def __dealloc__(self):
        PyMem_RawFree(self.slots)  # a future that waits keeps the window alive

    @property
    def pending(self) -> int:
        """Messages that wait for their ack."""
        cdef uint32_t waiting
        cdef Section section
        enter(&section, <PyObject*>self)
        waiting = self.waiting
        leave(&section)
        return waiting

    @property
    def published(self) -> int:
        """Messages that were written."""
        return self.read_count(&self.count_sent)

    @cython.final
    cdef uint64_t read_count(self, uint64_t* at) noexcept:
        cdef uint64_t number
        cdef Section section
        enter(&section, <PyObject*>self)
        number = at[0]
        leave(&section)
        return number

    @cython.final
    cdef void link(self, PubAckFuture future, uint32_t at) noexcept:
        """Have the future wait in the slot from now on, behind all others."""
        cdef Slot* slot = &self.slots[at]
        Py_INCREF(future)
        slot.future = <PyObject*>future
        slot.before = self.last
        slot.after = NO_SLOT
        if self.last == NO_SLOT:
            self.first = at
        else:
            self.slots[self.last].after = at
        self.last = at
        self.waiting += 1
        self.count_sent += 1
        future.slot = at
        future.number = self.count_sent

    @cython.final
    cdef void unlink(self, PubAckFuture future) noexcept:
        cdef uint32_t at = future.slot
        cdef Slot* slot = &self.slots[at]
        if slot.before == NO_SLOT:
            self.first = slot.after
        else:
            self.slots[slot.before].after = slot.after
        if slot.after == NO_SLOT:
            self.last = slot.before
        else:
            self.slots[slot.after].before = slot.before
        slot.future = NULL
        slot.after = self.free
        self.free = at
        self.waiting -= 1
        self.bytes -= future.cost()
        Py_DECREF(future)  # the slot's reference, while the caller has another one

    @cython.final
    cdef int release_slot(self, uint32_t at) except -1:
        """Free a slot that was not used after all."""
        self.slots[at].after = self.free
        self.free = at
        wait_queue_wake(&self.stalled)
        return 0

    @cython.final
    cdef list all_waiting(self):
        """Return the futures in the order of publishing."""
        cdef list futures = []
        cdef uint32_t at = self.first
        while at != NO_SLOT:
            futures.append(<PubAckFuture>self.slots[at].future)
            at = self.slots[at].after
        return futures

    @cython.final
    cdef inline uint64_t oldest(self) noexcept:
        """Return the number of the message that has waited longest."""
        if self.first == NO_SLOT:
            return UINT64_MAX
        return (<PubAckFuture>self.slots[self.first].future).number

    @cython.final
    cdef inline bint fits(self, PubAckFuture future) noexcept:
        """Return whether there is room in bytes. A message above the limit goes alone."""
        return self.bytes + future.cost() <= self.limit or self.bytes == 0

    @cython.final
    cdef LargeWaiter* queue(self) except NULL:
        """Return a place behind the others that wait. `leave_queue` frees it."""
        cdef LargeWaiter** at = &self.large_waiters
        cdef LargeWaiter* me = <LargeWaiter*>PyMem_RawCalloc(1, sizeof(LargeWaiter))
        if me == NULL:
            raise MemoryError
        while at[0] != NULL:
            at = &at[0].next
        at[0] = me
        return me

    @cython.final
    cdef void leave_queue(self, LargeWaiter* me) noexcept:
        cdef LargeWaiter** at = &self.large_waiters
        while at[0] != me:
            at = &at[0].next
        at[0] = me.next
        PyMem_RawFree(me)
        wait_queue_wake(&self.stalled)
