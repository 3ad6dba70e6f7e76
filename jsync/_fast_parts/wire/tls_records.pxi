# TLS: Python's `SSLObject` encrypts the bytes on their way to the socket, and decrypts
# those that come from it.
#
# Its methods give up the GIL, and OpenSSL allows one thread at a time. So a lock guards it,
# and nothing else is done with the lock held. These methods also run signal handlers,
# which may do anything. So the main thread stays outside, and leaves its bytes to the I/O
# thread.

cdef enum:
    ENCRYPT_BYTES = 64 * 1024  # four records, which fit into a cache
    # More than one record can hold, because it may have begun in the bytes before.
    RECORD_BYTES = 17 * 1024


@cython.final
cdef class TLSRecords:
    """The records of one TLS connection, whose handshake is done.

    `explain` gets the exception of a method of `tls`. It returns the error to raise, or
    None if more bytes must come first.
    """

    cdef object reader, writer, incoming, outgoing, explain
    # For the thread that reads, and for no other.
    cdef object fault  # why nothing more can be read, None: nothing is wrong
    cdef bint has_output  # reading made something that must be sent: an answer, or an alert
    cdef PyThread_type_lock lock
    cdef unsigned long holder  # id of the thread that has the lock
    cdef int waiting_sender  # whether the thread that sends is about to take the lock
    # For the thread that sends, and for no other: ciphertext, and how much of it has left.
    cdef bytes encrypted
    cdef size_t sent

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError

    def __init__(
        self, tls: "SSLObject", incoming: "MemoryBIO", outgoing: "MemoryBIO",
        explain: "Callable[[Exception], Exception | None]",
    ) -> None:
        self.reader, self.writer = tls.read, tls.write
        self.incoming, self.outgoing = incoming, outgoing
        self.explain = explain
        self.encrypted = b""

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef inline bint is_mine(self) noexcept nogil:
        """Return whether the caller is inside, as a finalizer may be."""
        return load_ident(&self.holder) == PyThread_get_thread_ident()

    cdef inline bint keeps_sender_out(self) noexcept nogil:
        """Return whether the thread that sends waits for the caller, who is inside."""
        return self.is_mine() and load_int(&self.waiting_sender)

    cdef void enter(self) noexcept:
        if PyThread_acquire_lock_timed(self.lock, 0, 0) != PY_LOCK_ACQUIRED:
            with nogil:
                PyThread_acquire_lock_timed(self.lock, -1, 0)
        store_ident(&self.holder, PyThread_get_thread_ident())

    cdef void leave(self) noexcept:
        store_ident(&self.holder, 0)
        PyThread_release_lock(self.lock)

    cdef inline size_t left(self) noexcept:
        return <size_t>PyBytes_GET_SIZE(self.encrypted) - self.sent

    cdef int encrypt(self, const char* plain, size_t size) except -1:
        """Put records of `plain`, and all else that must be sent now, into `encrypted`.

        The bytes of `plain` must stay where they are meanwhile.
        """
        cdef size_t done = 0
        store_int(&self.waiting_sender, True)
        self.enter()
        store_int(&self.waiting_sender, False)
        try:
            while done < size:
                done += <size_t>self.writer(
                    PyMemoryView_FromMemory(<char*>plain + done, size - done, PyBUF_READ)
                )
            self.encrypted = self.outgoing.read()
            self.sent = 0
        except Exception as error:
            raise self.explain(error) or error
        finally:
            self.leave()
        return 0

    cdef size_t decrypt(self, char* room, size_t n, size_t space) except? 0:
        """Decrypt `n` bytes of ciphertext in `room` in place. Return how much that gave.

        There is space for these, and for one record more. `fault` is set if nothing can
        follow, and `has_output` if there is something to send.
        """
        cdef size_t got = 0, most
        cdef Py_ssize_t read
        came = PyMemoryView_FromMemory(room, n, PyBUF_READ)
        self.enter()
        try:
            self.incoming.write(came)
            while True:
                most = space - got
                read = self.reader(
                    most, PyMemoryView_FromMemory(room + got, most, PyBUF_WRITE)
                )
                if read == 0:
                    self.fault = EOFError("closed by the server")
                    break
                got += read
                if <size_t>read < most and not self.incoming.pending:
                    break
        except Exception as error:
            self.fault = self.explain(error)
        except BaseException as error:  # and how much had been read is not known
            self.fault = error
            raise
        finally:
            try:
                self.has_output = self.outgoing.pending > 0
            finally:
                self.leave()
        return got
