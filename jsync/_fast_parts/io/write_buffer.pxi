# The write buffer of a connection: who may write, when bytes leave, what survives a loss.
#
# A lone write leaves at once, on the calling thread, by a send that neither blocks nor
# drops the GIL. Under load, when the last write was less than QUIET_NS ago, writes are
# appended and the I/O thread, which needs no GIL for it, carries them out. Acks are
# appended and sent in batches, after a millisecond at most. Requests of threads that run
# one after the other leave together: see `WakeChain`.
#
# Over TLS the thread that sends encrypts, so that records leave in their order. The main
# thread does not: the I/O thread sends for it. A request waits there until the main thread
# has given up the GIL, because the I/O thread needs the GIL and would wake up for nothing.

cdef enum:
    QUIET_NS = 50_000
    LAZY_NS = 1_000_000
    LAZY_BYTES = 32 * 1024
    SELF_SEND_BYTES = 64 * 1024
    GIL_SEND_BYTES = 128 * 1024
    SEND_CHUNK = 256 * 1024
    FLUSH_ROUND = 2 * 1024 * 1024
    JOINED_NS = 100_000
    MAX_JOINED = 8

cdef enum WriteState:
    PAUSED  # disconnected: resendable frames are kept, the others are refused
    DIRECT   # any thread may send, over TLS any but the main thread
    HANDED   # a compressed WebSocket: the I/O thread takes the bytes
    CLOSED

cdef enum Durability:  # on room for a frame
    TRANSIENT  # waits while the buffer is full, and is refused while disconnected
    RESENDABLE  # waits while the buffer is full, and is held while disconnected
    URGENT  # never waits, and is refused while disconnected

cdef enum FlushMode:  # when a frame leaves
    AUTO  # immediately if it is alone, but in a burst the I/O thread sends it
    NOW  # immediately, with all that waits
    BATCHED  # with `LAZY_BYTES` of others, or after `LAZY_NS`
    CHUNKED  # with `SELF_SEND_BYTES` of others, or after `LAZY_NS`
    PIGGYBACK  # with the next frame, however long that takes
    JOINED  # with those of the threads that are about to run, or after `JOINED_NS`

cdef tuple WRITE_STATES = ("paused", "direct", "handed", "closed")


@cython.final
cdef class WriteBuffer(IOThreadHandle):
    """The write buffer. Any thread may write, and nothing is dropped silently.

    When it is full, a writer blocks until there is room or `write_timeout` has passed.
    While disconnected it holds resendable frames, core publishes and acks, up to
    `hold_limit` bytes.
    """

    cdef WriteState state
    cdef int fd, failure
    cdef FrameBuffer fill, drain
    cdef size_t drained  # bytes of `drain` that the socket has taken
    cdef WebSocketState wire  # the frames of a WebSocket, if the bytes leave in frames
    cdef TLSRecords records  # of TLS, or None
    cdef size_t encrypted  # bytes of records that the socket has not taken
    cdef bint records_due  # reading made records that must be sent
    cdef bint sending, flush_requested
    cdef unsigned long sender  # the thread that is sending over TLS
    cdef int socket_full  # the socket took less than it was given
    cdef int64_t last_write, lazy_since, write_timeout
    cdef int64_t poll_deadline  # when the poll of the I/O thread ends, NEVER: unknown
    cdef size_t limit, hold_limit
    cdef WaitNode* waiting_writers
    cdef object error
    cdef object fault  # the error of sending, if it is not a number in `failure`
    cdef int joined  # requests since the last send that wait for others
    cdef uint64_t out_msgs, out_bytes
    cdef uint64_t opened  # `connections`
    cdef size_t most_payload
    cdef list acks  # of the one message, made by its user, that has this buffer, or None
    cdef public object requester  # None once it is closed
    """Sends a request for `JetStreamMsg.ack_sync`: `(subject, data, timeout) -> Msg`."""
    cdef public object reporter  # None once it is closed
    """Gets an error that no call raises: `(error) -> None`. Must not block."""

    def __cinit__(self):
        self.fd = -1
        self.most_payload = 1024 * 1024
        self.poll_deadline = NEVER

    def __init__(
        self,
        wake_fd: int = -1,
        limit: int = 8388608,
        hold_limit: int = 8388608,
        write_timeout: float = 10.0,
    ) -> None:
        self.wake_fd = wake_fd
        self.limit = limit
        self.hold_limit = hold_limit
        self.write_timeout = <int64_t>(<double>write_timeout * 1e9)

    def __dealloc__(self):
        frames_free(&self.fill)
        frames_free(&self.drain)
        PyMem_RawFree(self.wire.data)

    def __repr__(self) -> str:
        return f"<WriteBuffer {WRITE_STATES[self.state]}, {self.pending} bytes pending>"

    @property
    def pending(self) -> int:
        """Bytes that have not reached the socket."""
        return self.unsent()

    @property
    def connections(self) -> int:
        """The number of connections so far, for messages that must share one."""
        return load_number_relaxed(&self.opened)

    @property
    def max_payload(self) -> int:
        """The maximum bytes of headers and payload that the server accepts."""
        return load_size_relaxed(&self.most_payload)

    cdef size_t unsent(self) noexcept:
        cdef size_t pending
        if self.generation != jsync_forks:  # a thread of the parent may hold the mutex
            return self.fill.size + self.drain.size - self.drained
        pthread_mutex_lock(&self.mutex)
        pending = self.pending_locked()
        pthread_mutex_unlock(&self.mutex)
        return pending

    cdef bint has_plaintext(self, int64_t now) noexcept:
        """Return whether TLS should take what was written, unless acks may wait longer."""
        cdef bint some
        pthread_mutex_lock(&self.mutex)
        some = self.wire.control_size > 0 or (self.pending_locked() > 0 and (
            self.flush_requested or now - self.lazy_since >= LAZY_NS
        ))
        pthread_mutex_unlock(&self.mutex)
        return some

    cdef inline size_t pending_locked(self) noexcept nogil:
        return self.fill.size + self.drain.size - self.drained

    cdef inline bint has_unsent_locked(self) noexcept nogil:
        """Return whether something waits for the socket, if only a control frame."""
        return (
            self.fill.size + self.drain.size > self.drained
            or self.wire.size > self.wire.sent or self.wire.control_size > 0
            or self.encrypted > 0 or self.records_due
        )

    @property
    def counters(self) -> tuple[int, int]:
        """Messages published, and their bytes of header block and payload."""
        cdef uint64_t messages, size
        if self.generation != jsync_forks:
            return self.out_msgs, self.out_bytes
        pthread_mutex_lock(&self.mutex)
        messages, size = self.out_msgs, self.out_bytes
        pthread_mutex_unlock(&self.mutex)
        return messages, size

    # The connection's side: the state of the connection ---------------------------------

    def set_max_payload(self, max_payload: int) -> "list[tuple[str, int]]":
        """Remember the limit of the server, and drop publishes above it.

        A publish above the limit costs the connection, and with it all that is behind.

        Returns:
            The subject and the size of each dropped publish, which was written before to be
            sent to this server.
        """
        cdef FrameBuffer old, kept
        cdef size_t most = max_payload, i
        cdef bint ok = True
        cdef list dropped
        memset(&old, 0, sizeof(FrameBuffer))
        memset(&kept, 0, sizeof(FrameBuffer))
        pthread_mutex_lock(&self.mutex)
        # Not `drain`, which is on its way to the socket, and empty while disconnected.
        if most < self.most_payload and self.fill.size > most:
            ok = copy_fitting(&self.fill, &kept, most)
            if ok:
                old, self.fill = self.fill, kept
                memset(&kept, 0, sizeof(FrameBuffer))
                wait_queue_wake(&self.waiting_writers)
        store_size_relaxed(&self.most_payload, most)
        pthread_mutex_unlock(&self.mutex)
        frames_free(&kept)
        if not ok:
            raise MemoryError
        try:
            dropped = frames_beyond(&old, most)
        finally:
            frames_free(&old)
        pthread_mutex_lock(&self.mutex)
        for i in range(len(dropped)):
            self.out_msgs -= 1
            self.out_bytes -= <uint64_t>dropped[i][1]
        pthread_mutex_unlock(&self.mutex)
        return dropped

    def set_framing(self, *, framed: bool, masked: bool = True) -> None:
        """Send the bytes of the next connection in WebSocket frames, or without."""
        cdef bytes seed = urandom(16)
        self.lock_settled()
        wire_reset(&self.wire)
        self.wire.on = framed
        self.wire.masked = masked
        memcpy(self.wire.key, PyBytes_AS_STRING(seed), 16)
        pthread_mutex_unlock(&self.mutex)

    def frame(self, data: bytes, *, compressed: bool = False) -> bytes:
        """Make the frame of some bytes. For the I/O thread, if not direct."""
        cdef size_t size = PyBytes_GET_SIZE(data), head
        cdef unsigned char start[MAX_HEAD]
        cdef uint32_t key = 0
        cdef bytes framed
        pthread_mutex_lock(&self.mutex)
        head = put_head(
            &self.wire, start, BINARY | (COMPRESSED_BIT if compressed else 0), size, &key
        )
        pthread_mutex_unlock(&self.mutex)
        framed = PyBytes_FromStringAndSize(NULL, head + size)
        memcpy(PyBytes_AS_STRING(framed), start, head)
        jsync_mask(PyBytes_AS_STRING(framed) + head, PyBytes_AS_STRING(data), size, key)
        return framed

    def take_control(self) -> bytes:
        """Take the control frame that goes first, or nothing. For the I/O thread, too."""
        cdef unsigned char taken[MAX_HEAD + MAX_CONTROL]
        cdef size_t n
        pthread_mutex_lock(&self.mutex)
        n = self.wire.control_size
        memcpy(taken, self.wire.control, n)
        self.wire.control_size = 0
        pthread_mutex_unlock(&self.mutex)
        return PyBytes_FromStringAndSize(<char*>taken, n)

    def send_close_frame(self) -> None:
        """Have the frame sent that closes a WebSocket. Nothing is sent after it."""
        if self.wire.on:
            self.queue_control(CLOSING, b"\x03\xe8", 2)  # 1000: a normal closure
            self.flush_control()

    cdef int queue_control(self, int opcode, const char* data, size_t size) except -1:
        """Have a control frame sent, by `flush_control` or ahead of the next bytes."""
        pthread_mutex_lock(&self.mutex)
        if self.state != CLOSED:
            wire_queue_control(&self.wire, opcode, data, size)
        pthread_mutex_unlock(&self.mutex)
        return 0

    cdef int flush_control(self) except -1:
        """Send the control frame that waits, if there is one. Never blocks."""
        pthread_mutex_lock(&self.mutex)
        if self.wire.control_size and (self.state == DIRECT or self.state == HANDED):
            self.send_or_request_flush_and_unlock(True)
        else:
            pthread_mutex_unlock(&self.mutex)
        return 0

    def open(
        self, fd: int, first: bytes, *, direct: bool, records: TLSRecords | None = None
    ) -> None:
        """Begin to send on `fd`: `first`, then what was held, all through `records`."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(first)
        cdef char* room
        self.lock_settled()
        # `drain` is empty while holding, so these bytes are sent first.
        room = frames_reserve(&self.drain, size, False) if size else <char*>1
        if room != NULL:
            memcpy(room, PyBytes_AS_STRING(first), size)
            records, self.records = self.records, records
            self.fd = fd
            store_number_relaxed(&self.opened, self.opened + 1)
            store_int_relaxed(&self.failure, 0)
            store_time_relaxed(&self.poll_deadline, NEVER)
            store_int_relaxed(&self.socket_full, False)
            self.state = DIRECT if direct else HANDED
        pthread_mutex_unlock(&self.mutex)
        if room == NULL:
            raise MemoryError
        self.wake()

    def pause(self) -> None:
        """Keep resendable frames that were not sent whole: the connection is lost."""
        cdef TLSRecords records = None
        self.lock_settled()
        if self.state != CLOSED:
            self.state = PAUSED
        self.fd = -1
        cdef bint kept = self.keep_resendable_locked()
        store_int_relaxed(&self.joined, 0)
        wire_reset(&self.wire)
        records, self.records = self.records, None
        self.encrypted = 0
        self.records_due = False
        self.flush_requested = False
        store_int_relaxed(&self.socket_full, False)
        store_time_relaxed(&self.lazy_since, 0)
        wait_queue_wake(&self.waiting_writers)
        pthread_mutex_unlock(&self.mutex)
        self.swap_fault(None)
        if not kept:
            raise MemoryError

    def close(self, error: "Exception") -> int:
        """Refuse every further write with `error`. Return the bytes of lost messages."""
        cdef size_t lost
        cdef object io_loop, requester, reporter
        cdef Section section
        enter(&section, <PyObject*>self)
        io_loop, requester, before = self.io_loop, self.requester, self.error
        reporter = self.reporter
        self.io_loop = self.requester = self.reporter = None
        self.error = error
        leave(&section)
        self.lock_settled()
        lost = resendable_bytes(&self.drain, self.drained) + resendable_bytes(&self.fill, 0)
        self.state = CLOSED
        self.fd = self.wake_fd = -1  # these are closed soon, and their numbers reused
        self.drained = 0
        frames_free(&self.fill)
        if self.sending:  # the caller is a finalizer, and TLS is reading these bytes
            self.drain.size = self.drain.run_count = 0
        else:
            frames_free(&self.drain)
        wire_reset(&self.wire)
        self.encrypted = 0
        self.records_due = False
        wait_queue_wake(&self.waiting_writers)
        pthread_mutex_unlock(&self.mutex)
        del before, io_loop, requester, reporter  # after the mutex is released
        return lost

    def take(self, most: int) -> bytes:
        """Take up to `most` bytes to compress. For the I/O thread, if not direct."""
        cdef bytes taken = b""
        cdef size_t n = 0, left = 0
        cdef const char* data = NULL
        pthread_mutex_lock(&self.mutex)
        self.swap_locked()
        self.next_bytes_locked(&n, False)
        n = min(n, <size_t>most)
        pthread_mutex_unlock(&self.mutex)
        if n:
            taken = PyBytes_FromStringAndSize(NULL, n)
        pthread_mutex_lock(&self.mutex)
        # Only this thread takes any, but without a GIL `close` may have freed them.
        if n:
            data = self.next_bytes_locked(&left, False)
            n = min(n, left)
        if n:
            memcpy(PyBytes_AS_STRING(taken), data, n)
            self.advance_locked(n, False)
        self.flush_requested = self.pending_locked() > 0
        if not self.flush_requested:
            store_time_relaxed(&self.lazy_since, 0)
        pthread_mutex_unlock(&self.mutex)
        return taken if n == <size_t>PyBytes_GET_SIZE(taken) else taken[:n]

    # The writers' side ------------------------------------------------------------

    @cython.annotation_typing(False)
    def publish(
        self,
        subject: str,
        data: "bytes | bytearray | memoryview" = b"",
        reply: str | None = None,
        headers: "HeadersLike | None" = None,
        *,
        request: bool = False,
    ) -> None:
        """Write one PUB or HPUB.

        A request leaves immediately, with all that waits. While disconnected it is not
        held, but refused with ConnectionLostError.
        """
        cdef Py_ssize_t reply_size = 0
        cdef const char* r = NULL
        if reply is not None:
            r = publish_subject(reply, &reply_size)
        self.publish_message(
            subject, data, r, reply_size, headers, NOW if request else AUTO
        )

    cdef int publish_message(
        self, subject, data, const char* r, Py_ssize_t reply_size, headers, FlushMode mode
    ) except -1:
        cdef Py_ssize_t subject_size = 0
        cdef const char* s = publish_subject(subject, &subject_size)
        cdef bytes block = None
        cdef Py_buffer view
        cdef PublishFrame frame
        publish_to(&frame, s, subject_size)
        if r != NULL:
            check_together(subject_size, reply_size)
            frame.reply = r
            frame.reply_size = reply_size
        if headers:
            block = encode_headers(headers)
            frame.block = PyBytes_AS_STRING(block)
            frame.block_size = PyBytes_GET_SIZE(block)
        if PyBytes_CheckExact(data):
            frame.data = PyBytes_AS_STRING(data)
            frame.data_size = PyBytes_GET_SIZE(data)
            return self.write_message(&frame, mode)
        check_buffer(data)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            frame.data = <const char*>view.buf
            frame.data_size = view.len
            self.write_message(&frame, mode)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int write_message(self, PublishFrame* frame, FlushMode mode) except -1:
        """Write a message that leaves soon, or a request."""
        self.check_size(frame.block_size + frame.data_size)
        if not self.write_frame(frame, RESENDABLE if mode == AUTO else TRANSIENT, mode):
            raise ConnectionLostError("not connected: reconnecting")
        return 0

    def command(
        self, data: bytes, *, deferred: bool = False, piggyback: bool = False
    ) -> bool:
        """Write protocol commands such as SUB. Return False when disconnected.

        Never blocks, because commands are small and few, and PONG must pass when nothing
        else does. A deferred command waits for others, as acks do, and a `piggyback` one
        for the next write, however long that takes.
        """
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef char* room = self.lock_and_reserve(size, URGENT)
        if room == NULL:
            return False
        memcpy(room, PyBytes_AS_STRING(data), size)
        self.commit_and_unlock(PIGGYBACK if piggyback else BATCHED if deferred else NOW)
        return True

    def check_process(self) -> None:
        """Raise `ForkedProcessError` in a child of the process that connected."""
        check_fork(self.generation)

    def flush(self) -> None:
        """Send what waits for more bytes, as far as the socket takes it."""
        check_fork(self.generation)
        self.flush_now()

    cdef int flush_now(self) except -1:
        pthread_mutex_lock(&self.mutex)
        if self.has_unsent_locked():
            self.send_or_request_flush_and_unlock(True)
        else:
            pthread_mutex_unlock(&self.mutex)
        return 0

    cdef bint ping(self) noexcept:
        """Write a PING. Return False if not connected, or closed."""
        cdef char* room = NULL
        pthread_mutex_lock(&self.mutex)
        if self.state == DIRECT or self.state == HANDED:
            room = frames_reserve(&self.fill, 6, False)
        if room == NULL:
            pthread_mutex_unlock(&self.mutex)
            return False
        memcpy(room, b"PING\r\n", 6)
        self.send_or_request_flush_and_unlock(True)
        return True

    cdef int request(self, str subject, bytes data, object timeout) except -1:
        """Publish a request and wait for the reply, whatever it contains."""
        cdef object requester
        cdef Section section
        enter(&section, <PyObject*>self)
        requester = self.requester  # `close` may have removed it
        leave(&section)
        if requester is None:
            check_fork(self.generation)
            raise self.closed_error()
        requester(subject, data, timeout)
        return 0

    cdef int report(self, object error) except -1:
        """Report an error, unless the connection is closed or another process's."""
        cdef object reporter
        cdef Section section
        if self.generation != jsync_forks:
            return 0
        enter(&section, <PyObject*>self)
        reporter = self.reporter  # `close` may have removed it
        leave(&section)
        if reporter is not None:
            reporter(error)
        return 0

    cdef object what_failed(self):
        """Return the error for what `failure` contains."""
        cdef int failure = load_int_relaxed(&self.failure)
        fault = self.swap_fault(None)
        return OSError(failure, os_strerror(failure)) if fault is None else fault

    cdef object swap_fault(self, object fault):
        """Store a fault and return the last one, which the I/O thread may be taking."""
        cdef Section section
        enter(&section, <PyObject*>self)
        fault, self.fault = self.fault, fault
        leave(&section)
        return fault

    cdef int check_open(self) except -1:
        cdef bint closed
        pthread_mutex_lock(&self.mutex)
        closed = self.state == CLOSED
        pthread_mutex_unlock(&self.mutex)
        if closed:
            raise self.closed_error()
        return 0

    cdef object closed_error(self):
        """Return the error to raise once it is closed."""
        cdef object error
        cdef Section section
        enter(&section, <PyObject*>self)
        error = self.error
        leave(&section)
        return fresh(error)

    cdef inline int check_size(self, size_t size) except -1:
        return self.refuse_size(size) if size > load_size_relaxed(&self.most_payload) else 0

    cdef int refuse_size(self, size_t size) except -1:
        raise MaxPayloadError(
            f"{size} bytes of headers and payload are more than the server's "
            f"max_payload of {self.max_payload}"
        )

    cdef int write_ack(
        self, const char* reply, Py_ssize_t reply_size, const char* data, Py_ssize_t size
    ) except -1:
        """Write an ack: a publish to `reply` that waits for others."""
        cdef PublishFrame frame
        publish_to(&frame, reply, reply_size)
        frame.data = data
        frame.data_size = size
        self.write_frame(&frame, RESENDABLE, BATCHED)
        return 0

    # A frame is written by `write_frame`, or by its three steps, `lock_and_reserve`,
    # `write_locked` and `commit_and_unlock`. Nothing may be done in between that raises,
    # drops a reference or runs Python code. So the parts of a frame are looked up before.

    cdef inline bint write_frame(
        self, const PublishFrame* frame, Durability durability, FlushMode mode
    ) except -1:
        """Write one message. Return False if there is no connection."""
        cdef size_t size = publish_size(frame)
        cdef char* out = self.lock_and_reserve(size, durability)
        if out == NULL:
            return False
        # It may have waited for room, and another server may accept less.
        if frame.block_size + frame.data_size > self.most_payload:
            self.cancel_and_unlock(size)
            self.refuse_size(frame.block_size + frame.data_size)
        self.write_locked(out, frame)
        self.commit_and_unlock(mode)
        return True

    cdef inline char* write_locked(
        self, char* out, const PublishFrame* frame
    ) noexcept nogil:
        """Write a message into the reserved room, and count it. Return its end."""
        self.out_msgs += 1
        self.out_bytes += frame.block_size + frame.data_size
        return put_publish(out, frame)

    cdef inline char* lock_and_reserve(
        self, size_t size, Durability durability
    ) except? NULL:
        """Make room for a frame. If disconnected, return NULL without the mutex.

        Blocks while the buffer is full, unless urgent. What the I/O thread writes is always
        urgent, because a thread that reads must never wait for one that writes.
        """
        return self.lock_and_reserve_in(size, durability, NULL, NULL)

    cdef char* lock_and_reserve_in(
        self, size_t size, Durability durability, Section* section, PyObject* owner
    ) except? NULL:
        """Do what `lock_and_reserve` does in the `section` of `owner`, if there is one.

        The section is left while the thread waits, because signal handlers may run then,
        and what it guards may have changed afterwards.
        """
        cdef char* room
        cdef int64_t deadline = 0
        check_fork(self.generation)
        while True:
            pthread_mutex_lock(&self.mutex)
            if self.state == CLOSED:
                pthread_mutex_unlock(&self.mutex)
                raise self.closed_error()
            if self.state == PAUSED and durability != RESENDABLE:
                pthread_mutex_unlock(&self.mutex)
                return NULL
            if durability == URGENT or self.has_room_locked(size):
                room = frames_reserve(&self.fill, size, durability == RESENDABLE)
                if room == NULL:
                    pthread_mutex_unlock(&self.mutex)
                    raise MemoryError
                return room
            if self.state == PAUSED:
                pthread_mutex_unlock(&self.mutex)
                raise ReconnectBufferFullError(
                    f"disconnected, and {self.pending} bytes wait for the reconnect "
                    f"already (reconnect_buffer_size is {self.hold_limit})"
                )
            if deadline == 0:
                deadline = jsync_now() + self.write_timeout
            self.wait_for_room_and_unlock(size, deadline, section, owner)

    cdef void cancel_and_unlock(self, size_t size) noexcept:
        """Give up the reserved room without writing."""
        frames_shrink(&self.fill, size)
        pthread_mutex_unlock(&self.mutex)

    cdef inline int commit_and_unlock(self, FlushMode mode) except -1:
        """Send what was written into the reserved room, or have it sent."""
        if mode == BATCHED:
            return self.batch_and_unlock(LAZY_BYTES, False)
        if mode == CHUNKED:
            return self.batch_and_unlock(SELF_SEND_BYTES, True)
        if mode == PIGGYBACK or (mode == JOINED and self.joins_locked()):
            pthread_mutex_unlock(&self.mutex)
            return 0
        return self.send_or_request_flush_and_unlock(mode != AUTO)

    cdef inline bint joins_locked(self) noexcept:
        """Return whether the request just written waits for requests of other threads."""
        if PARALLEL:
            add_int(&self.joined, 1)
            # All those threads may run by now. If one does not, the I/O thread sees it, or
            # else this request, before its next poll, because it alone counts threads.
            if not load_int(&self.chain.resuming):
                return False
        else:
            store_int_relaxed(&self.joined, self.joined + 1)
            if 2 * self.joined > load_int(&self.parked):
                return False  # half of them, so that the server works while others write
        return self.state == DIRECT and self.joined < MAX_JOINED

    cdef int send_or_request_flush_and_unlock(self, bint urgent) noexcept:
        """Send what waits, or have the I/O thread send it."""
        cdef int64_t now
        cdef bint quiet = urgent, wake = False
        if (
            self.state == DIRECT and not self.sending and not self.socket_full
            and self.may_send_locked()
        ):
            if not urgent:
                quiet = self.fill.size > SELF_SEND_BYTES
                # In a burst, the clock would cost more than the rest.
                if not self.flush_requested:
                    now = jsync_now()
                    quiet |= now - self.last_write > QUIET_NS
                    self.last_write = now
            if quiet:
                # The calling thread keeps the GIL, because giving it up would cost 5 ms
                # beside a busy thread. Copying far more than this would hold up the others.
                if self.records is not None:
                    wake = self.send_records_and_unlock()
                elif self.pending_locked() <= GIL_SEND_BYTES:
                    wake = self.send_and_unlock()
                else:
                    with nogil:
                        wake = self.send_and_unlock()
                if wake:
                    self.wake()
                return 0
        # The I/O thread watches a choked socket, and continues when it can.
        if self.state != PAUSED and not self.flush_requested and not self.socket_full:
            self.flush_requested = wake = True
        pthread_mutex_unlock(&self.mutex)
        if wake:
            self.wake()
        return 0

    cdef int batch_and_unlock(self, size_t least, bint urgent) except -1:
        """Have it sent with so many bytes of others, or soon."""
        cdef bint wake = False
        if self.fill.size >= least or self.state == PAUSED:
            return self.send_or_request_flush_and_unlock(urgent)
        if self.lazy_since == 0:
            store_time_relaxed(&self.lazy_since, jsync_now())
            # The I/O thread's poll must end in time. That thread may be asleep for long,
            # but not while another thread reads in its place.
            wake = (
                not self.flush_requested
                and load_time_relaxed(&self.poll_deadline) > self.lazy_since + LAZY_NS
                and PyThread_get_thread_ident() != load_ident(&self.io_thread)
            )
        pthread_mutex_unlock(&self.mutex)
        if wake:
            self.wake()
        return 0

    cdef bint send_and_unlock(self) noexcept nogil:
        """Send. Return True if the I/O thread must be woken."""
        cdef bint wake = False
        cdef bint more = self.send_locked(SEND_CHUNK) or self.socket_full
        if more and not self.flush_requested:
            self.flush_requested = wake = True
        pthread_mutex_unlock(&self.mutex)
        return wake

    cdef bint flush_round(self, bint writable, int64_t now) noexcept nogil:
        """Send on the I/O thread. Return True if it should come back immediately."""
        cdef bint more = False
        pthread_mutex_lock(&self.mutex)
        # From here on, delayed bytes are seen before the poll, or their writer ends it.
        store_time_relaxed(&self.poll_deadline, NEVER)
        if self.is_due_locked(writable, now):
            if self.flush_requested:
                self.last_write = now
            more = self.send_locked(FLUSH_ROUND)
        # Cleared even if another thread is sending: it wakes this one if it leaves some.
        if self.state != HANDED:
            self.flush_requested = more
        pthread_mutex_unlock(&self.mutex)
        return more

    cdef bint flush_records(self, bint writable, int64_t now) noexcept:
        """Do what `flush_round` does over TLS, with the GIL."""
        cdef bint more = False
        pthread_mutex_lock(&self.mutex)
        store_time_relaxed(&self.poll_deadline, NEVER)
        if self.is_due_locked(writable, now):
            if self.flush_requested:
                self.last_write = now
            more = self.send_records_locked(FLUSH_ROUND)
        self.flush_requested = more
        pthread_mutex_unlock(&self.mutex)
        return more

    cdef bint has_due(self, bint writable, int64_t now) noexcept nogil:
        """Return whether the I/O thread has something to send now."""
        cdef bint due
        pthread_mutex_lock(&self.mutex)
        due = self.is_due_locked(writable, now)
        pthread_mutex_unlock(&self.mutex)
        return due

    cdef inline bint is_due_locked(self, bint writable, int64_t now) noexcept nogil:
        return (
            self.state == DIRECT and not self.sending and (writable or not self.socket_full)
            and self.has_unsent_locked()
            and (
                self.flush_requested or self.socket_full or self.joined > 0
                or now - self.lazy_since >= LAZY_NS
            )
        )

    cdef bint send_locked(self, size_t most) noexcept nogil:
        """Send up to `most` bytes, as the only sender. Return True if more could be sent.

        The mutex is released during the system call. Other threads append meanwhile, and
        leave the sending to this one.
        """
        cdef ssize_t n
        cdef size_t sent = 0, waiting = 0
        cdef const char* data
        cdef int error
        self.sending = True
        store_int_relaxed(&self.socket_full, False)
        while sent < most:
            self.swap_locked()
            data = self.next_bytes_locked(&waiting, self.wire.on)
            if waiting == 0:
                break
            pthread_mutex_unlock(&self.mutex)
            n = c_send(
                self.fd, data, min(waiting, <size_t>SEND_CHUNK), MSG_DONTWAIT | MSG_NOSIGNAL
            )
            error = jsync_errno() if n < 0 else 0
            pthread_mutex_lock(&self.mutex)
            if n < 0:
                store_int_relaxed(&self.socket_full, True)
                if not jsync_would_block(error):
                    store_int_relaxed(&self.failure, error)
                break
            sent += n
            self.advance_locked(n, self.wire.on)
        self.sending = False
        return not self.socket_full and self.has_unsent_locked()

    cdef const char* next_bytes_locked(self, size_t* n, bint framed) noexcept nogil:
        """Return what goes to the socket or into records next. `n` is 0 for nothing."""
        n[0] = 0
        if framed:
            if self.next_frame_locked():
                n[0] = self.wire.size - self.wire.sent
            return self.wire.data + self.wire.sent
        n[0] = self.drain.size - self.drained
        if n[0] == 0:
            store_time_relaxed(&self.lazy_since, 0)
        return self.drain.data + self.drained

    cdef inline void advance_locked(self, size_t n, bint framed) noexcept nogil:
        """Count `n` of the next bytes as taken."""
        if framed:
            self.advance_frame_locked(n)
        else:
            self.advance_drain_locked(n)

    # Over TLS: with the GIL, which encrypting gives up in between ---------------------

    cdef inline bint may_send_locked(self) noexcept nogil:
        """Return whether the caller may send. Over TLS signal handlers must not run there.

        On the main thread they would hold up all who send and read. A finalizer may not
        send either while its thread is inside `TLSRecords`.
        """
        return self.records is None or (
            PyThread_get_thread_ident() != main_thread and not self.records.is_mine()
        )

    cdef bint needs_io_thread(self) noexcept nogil:
        """Return whether the I/O thread must send for the caller: see `may_send_locked`."""
        cdef bint needed
        pthread_mutex_lock(&self.mutex)
        needed = not self.may_send_locked()
        pthread_mutex_unlock(&self.mutex)
        return needed

    cdef void request_flush(self) noexcept nogil:
        pthread_mutex_lock(&self.mutex)
        if (
            self.state == DIRECT and not self.flush_requested and not self.socket_full
            and self.has_unsent_locked()
        ):
            self.flush_requested = True
            notify(self.wake_fd)  # with the mutex, because `close` closes the descriptor
        pthread_mutex_unlock(&self.mutex)

    cdef bint is_inside_records(self) noexcept nogil:
        """Return whether the caller is a finalizer inside encryption or decryption."""
        cdef bint inside
        pthread_mutex_lock(&self.mutex)
        inside = self.records is not None and self.records.is_mine()
        pthread_mutex_unlock(&self.mutex)
        return inside

    cdef bint send_records_and_unlock(self) noexcept:
        cdef bint wake = False
        cdef bint more = self.send_records_locked(SEND_CHUNK) or self.socket_full
        if more and not self.flush_requested:
            self.flush_requested = wake = True
        pthread_mutex_unlock(&self.mutex)
        return wake

    cdef bint send_records_locked(self, size_t most) noexcept:
        """Do what `send_locked` does over TLS, with the mutex released for longer."""
        cdef object fault = None
        self.sending = True
        store_int_relaxed(&self.socket_full, False)
        self.sender = PyThread_get_thread_ident()
        pthread_mutex_unlock(&self.mutex)
        try:
            self.carry_records(most)
        except BaseException as error:
            fault = error
        if fault is not None:
            self.swap_fault(fault)
        pthread_mutex_lock(&self.mutex)
        if fault is not None:
            store_int_relaxed(&self.socket_full, True)
            store_int_relaxed(&self.failure, EPROTO)
        self.sender = 0
        self.sending = False
        return not self.socket_full and self.has_unsent_locked()

    cdef int carry_records(self, size_t most) except -1:
        """Encrypt and send until nothing is left, or the socket takes no more."""
        cdef TLSRecords records
        cdef const char* plain
        cdef ssize_t n
        cdef size_t sent = 0, size = 0
        cdef bint records_due
        cdef int error, fd
        pthread_mutex_lock(&self.mutex)
        records, fd = self.records, self.fd
        pthread_mutex_unlock(&self.mutex)
        while sent < most:
            if records.left() == 0:
                pthread_mutex_lock(&self.mutex)
                self.swap_locked()
                plain = self.next_bytes_locked(&size, self.wire.on)
                size = min(size, <size_t>ENCRYPT_BYTES)
                records_due, self.records_due = self.records_due, False
                pthread_mutex_unlock(&self.mutex)
                if not size and not records_due:
                    return 0
                records.encrypt(plain, size)
                pthread_mutex_lock(&self.mutex)
                if self.state != CLOSED:  # a finalizer may have closed it
                    self.advance_locked(size, self.wire.on)
                pthread_mutex_unlock(&self.mutex)
                if records.left() == 0:
                    return 0
            if fd != self.fd:
                return 0  # a finalizer has closed the connection
            n = self.send_encrypted(fd, records)
            error = jsync_errno() if n < 0 else 0
            pthread_mutex_lock(&self.mutex)
            if n < 0:
                store_int_relaxed(&self.socket_full, True)
                if not jsync_would_block(error):
                    store_int_relaxed(&self.failure, error)
            else:
                sent += n
                records.sent += n
            self.encrypted = records.left()
            pthread_mutex_unlock(&self.mutex)
            if n < 0:
                return 0
        return 0

    cdef ssize_t send_encrypted(self, int fd, TLSRecords records) noexcept:
        cdef const char* data = PyBytes_AS_STRING(records.encrypted) + records.sent
        cdef size_t size = records.left()
        cdef ssize_t n
        if size <= GIL_SEND_BYTES:
            return c_send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)
        with nogil:
            n = c_send(
                fd, data, min(size, <size_t>SEND_CHUNK), MSG_DONTWAIT | MSG_NOSIGNAL
            )
        return n

    cdef int queue_records(self) except -1:
        """Have the records sent that reading has made."""
        pthread_mutex_lock(&self.mutex)
        if self.state == DIRECT:
            self.records_due = True
            self.send_or_request_flush_and_unlock(True)
        else:
            pthread_mutex_unlock(&self.mutex)
        return 0

    cdef bint next_frame_locked(self) noexcept nogil:
        """Prepare bytes of a frame. Return False if nothing waits, or without memory."""
        cdef WebSocketState* wire = &self.wire
        if wire.sent < wire.size or wire_control(wire):
            return True
        if self.drain.size == self.drained:
            store_time_relaxed(&self.lazy_since, 0)
            return False
        if wire_fill(wire, self.drain.data + self.drained, self.drain.size - self.drained):
            return True
        store_int_relaxed(&self.socket_full, True)
        store_int_relaxed(&self.failure, ENOMEM)
        return False

    cdef void advance_frame_locked(self, size_t n) noexcept nogil:
        """Do what `advance_drain_locked` does, for bytes of a frame."""
        cdef WebSocketState* wire = &self.wire
        cdef size_t plain
        wire.sent += n
        if wire.sent > wire.head:
            plain = wire.sent - wire.head - wire.counted
            wire.counted += plain
            self.advance_drain_locked(plain)

    cdef void swap_locked(self) noexcept nogil:
        """Once `drain` is empty, put what was written since in its place."""
        cdef FrameBuffer empty
        if self.drain.size == self.drained and self.fill.size:
            empty = self.drain
            empty.size = empty.run_count = 0
            self.drained = 0
            self.drain = self.fill
            self.fill = empty
            store_int_relaxed(&self.joined, 0)

    cdef void advance_drain_locked(self, size_t n) noexcept nogil:
        self.drained += n
        if self.drained == self.drain.size:
            self.drained = self.drain.size = self.drain.run_count = 0
        # Not at the first free byte, because each wake-up costs a switch of threads.
        if self.waiting_writers != NULL and self.pending_locked() <= self.limit // 2:
            wait_queue_wake(&self.waiting_writers)

    cdef bint keep_resendable_locked(self) noexcept nogil:
        """Keep in `fill` what lasts: of `drain` the frames not sent whole, then `fill`."""
        cdef FrameBuffer kept, old
        cdef size_t i, at, begin, size, which
        cdef char* room
        cdef bint ok = True
        kept.data = NULL
        kept.runs = NULL
        kept.size = kept.capacity = kept.run_count = kept.run_capacity = 0
        for which in range(2):
            old = self.drain if which == 0 else self.fill
            at = 0
            for i in range(old.run_count):
                while at < old.runs[i].end:
                    begin = at
                    size = old.runs[i].end - at
                    if which == 0 and begin < self.drained:
                        size = frame_size(old.data + at, size)
                    at += size
                    if old.runs[i].resendable and (which == 1 or at > self.drained):
                        room = frames_reserve(&kept, size, True)
                        if room == NULL:
                            ok = False
                        else:
                            memcpy(room, old.data + begin, size)
        frames_free(&self.drain)
        frames_free(&self.fill)
        self.drained = 0
        self.fill = kept
        return ok

    cdef int lock_settled(self) except -1:
        """Take the mutex while no other thread is inside a send."""
        while True:
            self.settle()
            pthread_mutex_lock(&self.mutex)
            if not self.is_busy_locked():  # no thread has begun a send in between
                return 0
            pthread_mutex_unlock(&self.mutex)

    cdef inline bint is_busy_locked(self) noexcept nogil:
        """Return whether another thread is inside a send.

        A finalizer inside a send of its thread does not count. Nor does a thread that waits
        for the caller, a finalizer that reads: that thread looks again afterwards.
        """
        return (
            self.sending and self.sender != PyThread_get_thread_ident()
            and (self.records is None or not self.records.keeps_sender_out())
        )

    cdef int settle(self) except -1:
        """Wait until no other thread is inside a send, where no thread blocks."""
        with nogil:
            while True:
                pthread_mutex_lock(&self.mutex)
                if not self.is_busy_locked():
                    pthread_mutex_unlock(&self.mutex)
                    break
                pthread_mutex_unlock(&self.mutex)
                sched_yield()
        return 0

    cdef int wait_for_room_and_unlock(
        self, size_t size, int64_t deadline, Section* section, PyObject* owner
    ) except -1:
        """Park outside the section until there may be room."""
        cdef WaitNode* me
        cdef bint wake
        pthread_mutex_unlock(&self.mutex)
        if PyThread_get_thread_ident() == load_ident(&self.io_thread):
            raise BlockingCallError(
                "the write buffer is full, and the I/O thread, which alone can empty it, "
                "cannot wait for that"
            )
        if jsync_now() >= deadline:
            raise WriteTimeoutError(
                f"the write buffer was full for {self.write_timeout / 1e9:g} s: "
                "the server reads too slowly"
            )
        me = wait_node_new()
        pthread_mutex_lock(&self.mutex)
        if self.state == CLOSED or self.state == PAUSED or self.has_room_locked(size):
            pthread_mutex_unlock(&self.mutex)
            wait_node_free(me)
            return 0
        me.next = self.waiting_writers
        self.waiting_writers = me
        wake = not self.flush_requested
        self.flush_requested = True
        pthread_mutex_unlock(&self.mutex)
        if wake:
            self.wake()
        if section != NULL:
            leave(section)
        try:
            sleeper_wait(&me.sleeper, deadline, &me.waiting)
        finally:
            pthread_mutex_lock(&self.mutex)
            wait_queue_remove(&self.waiting_writers, me)
            pthread_mutex_unlock(&self.mutex)
            wait_node_free(me)
            if section != NULL:
                enter(section, owner)
        return 0

    cdef inline bint expects_more(self) noexcept nogil:
        """Return whether requests wait for those of other threads, or soon may."""
        if PARALLEL:  # in this order: see `joins_locked`
            return load_int(&self.chain.resuming) or (
                load_int(&self.joined) and not load_int_relaxed(&self.socket_full)
            )
        return load_int_relaxed(&self.chain.resuming) or (
            load_int_relaxed(&self.joined) and not load_int_relaxed(&self.socket_full)
        )

    cdef bint has_room_locked(self, size_t size) noexcept nogil:
        """Return whether a frame fits. Any fits into an empty buffer that is being sent."""
        cdef size_t pending = self.pending_locked()
        if self.state == PAUSED:
            return pending + size <= self.hold_limit
        return pending + size <= self.limit or pending == 0
