# What other threads know of a connection's I/O thread: those that wait for it or wake it,
# and the mailboxes to which it delivers. The classes that they use are bases of `IOLoop`
# and `WriteBuffer`.


@cython.internal
cdef class AbstractIOLoop:
    """The part of `IOLoop` that waiting threads and sinks use."""

    cdef int64_t now  # when it last began to read
    cdef list events  # for the session
    cdef list endings  # like `events`, but they may wait to be reported together
    cdef Py_ssize_t ended  # number of `endings`
    cdef bint chaining  # threads whose answers are read are woken one by one, or counted

    cdef bint read_until(self, Park* park, int64_t deadline) except -1:
        """Read the socket until something that was read has woken `park`: then return True.

        Return False at the deadline, or if the caller cannot read.
        """
        return False


@cython.internal
cdef class IOThreadHandle:
    """The part of `WriteBuffer` with which threads wait for the I/O thread, and wake it."""

    cdef pthread_mutex_t mutex
    cdef int wake_fd, generation
    cdef unsigned long io_thread
    cdef AbstractIOLoop io_loop  # None once it is closed
    cdef int parked  # threads that wait for bytes that the I/O thread reads
    cdef WakeChain chain
    cdef int64_t aside_until  # until then the last reader has the socket: see `IOLoop`
    cdef int aside  # whether it does so in its current poll

    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)
        chain_init(&self.chain)
        self.wake_fd = -1
        self.generation = jsync_forks

    def __dealloc__(self):
        pthread_mutex_destroy(&self.mutex)
        chain_free(&self.chain)

    cdef void request_flush(self) noexcept nogil:
        """Have the I/O thread send what waits. Needs no GIL."""
        pass

    @cython.final
    cdef AbstractIOLoop reader(self):
        """Return the I/O loop, or None once it is closed permanently."""
        cdef AbstractIOLoop io_loop
        cdef Section section
        enter(&section, <PyObject*>self)
        io_loop = self.io_loop
        leave(&section)
        return io_loop

    @cython.final
    cdef inline void wake_reader(self) noexcept:
        """Have the I/O thread read, because the caller waits for that and does not read."""
        cdef int64_t until = load_time_relaxed(&self.aside_until)
        if until and (load_int_relaxed(&self.aside) or until > jsync_now()):
            store_time_relaxed(&self.aside_until, 0)
            self.wake()

    @cython.final
    cdef void wake(self) noexcept:
        """End the poll of the I/O thread."""
        if PARALLEL:
            self.wake_without_gil()
        elif self.wake_fd >= 0:
            notify(self.wake_fd)

    @cython.final
    cdef void wake_without_gil(self) noexcept nogil:
        pthread_mutex_lock(&self.mutex)  # `close` closes the descriptor
        if self.wake_fd >= 0:
            notify(self.wake_fd)
        pthread_mutex_unlock(&self.mutex)


cdef int check_may_wait(IOThreadHandle handle) except -1:
    check_fork(handle.generation)
    if PyThread_get_thread_ident() == load_ident(&handle.io_thread):
        raise BlockingCallError(
            "a blocking call on the connection's I/O thread would wait for itself; "
            "finalizers may run there: hand the work to a thread of yours"
        )
    return 0
