# Publishing ahead of the acks: the window, and the outcome of its messages.

cdef enum:
    RETRY_SLACK_NS = 10_000_000  # messages that are due so soon are retried together


@cython.final
cdef class AckWindow(PendingAcks):
    """The messages of a publisher that wait for their acks. Any thread may use it."""

    cdef int64_t ack_timeout, stall_timeout
    cdef readonly bint resend
    cdef bint paused                # not connected, or lost messages are being retried
    cdef bint resending, timed
    cdef uint32_t busy              # messages that wait since the server was too busy
    cdef int64_t busy_until         # the end of the wait that they share
    cdef int64_t retry_due          # when `retry` has work, NEVER: none
    cdef uint64_t retry_attempts
    cdef int64_t retry_wait
    # `acknowledged`, `failed`, `duplicates`
    cdef uint64_t acked, failed_count, duplicate_count
    cdef uint64_t lowest, highest   # lowest and highest stored sequence, 0: none yet
    cdef uint64_t doubled_first, doubled_last  # the same for duplicates that were sent once
    cdef uint64_t newest            # the number of the last message that was acked
    cdef int64_t newest_acked       # when its ack came
    cdef int64_t answered           # when the last answer came
    cdef object error               # why it is closed
    cdef WaitNode* flushing
    cdef uint64_t flush_mark        # the lowest number that a flush waits for
    cdef object read_ack, no_stream, backoff
    cdef str stream                 # the one that acked last, shared by the futures
    cdef UnretrievedErrors failures
    cdef public bint watched
    """True if `take_done` reports failures, whether there are callbacks or not."""
    cdef public object on_refused
    """Called on the I/O thread to have `retry` called in `retry_in` seconds."""

    @cython.annotation_typing(False)
    def __init__(
        self,
        write_buffer: WriteBuffer,
        prefix: str,
        size: int,
        limit: int,
        ack_timeout: float,
        stall_timeout: float,
        *,
        resend: bool,
        pub_ack: object,
        read_ack: object,
        no_stream: object,
        backoff: object,
        retry_attempts: int,
        retry_wait: float,
    ) -> None:
        self.write_buffer = write_buffer
        self.make_slots(prefix.encode(), size, limit)
        self.ack_timeout = <int64_t>(<double>ack_timeout * 1e9)
        self.stall_timeout = <int64_t>(<double>stall_timeout * 1e9)
        self.resend = resend
        self.pub_ack, self.read_ack, self.no_stream = pub_ack, read_ack, no_stream
        self.backoff = backoff
        self.retry_attempts = UINT64_MAX if retry_attempts < 0 else retry_attempts
        self.retry_wait = <int64_t>(<double>retry_wait * 1e9)
        self.retry_due = NEVER
        self.failures, self.done = UnretrievedErrors(), []

    def __repr__(self) -> str:
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            state = (
                "closed" if self.error is not None else "paused" if self.paused else
                "busy" if self.busy else "open"
            )
            return f"<AckWindow {state}, {self.waiting} of {self.size} waiting>"
        finally:
            leave(&section)

    @property
    def acknowledged(self) -> int:
        return self.read_count(&self.acked)

    @property
    def failed(self) -> int:
        return self.read_count(&self.failed_count)

    @property
    def duplicates(self) -> int:
        return self.read_count(&self.duplicate_count)

    @property
    def first_stored(self) -> int:
        """The lowest sequence that was stored, 0 until then."""
        return self.read_count(&self.lowest)

    @property
    def last_stored(self) -> int:
        return self.read_count(&self.highest)

    @property
    def first_duplicate(self) -> int:
        """The lowest sequence of a message that was there before, 0 without one."""
        return self.read_count(&self.doubled_first)

    @property
    def last_duplicate(self) -> int:
        return self.read_count(&self.doubled_last)

    # Publishing -----------------------------------------------------------------------

    @cython.annotation_typing(False)
    def publish(
        self,
        subject: str,
        data: "bytes | bytearray | memoryview" = b"",
        headers: "HeadersLike | None" = None,
        msg_id: str | None = None,
    ) -> PubAckFuture:
        """Write a message, once there is room for it in the window."""
        cdef bytes block = encode_headers(headers) if headers else None
        cdef PubAckFuture future = self.prepare(subject, data, block, msg_id)
        self.send(future)
        return future

    @cython.annotation_typing(False)
    def publish_many(
        self,
        subjects: "str | Sequence[str]",
        payloads: "Sequence[bytes | bytearray | memoryview]",
        headers: "HeadersLike | None" = None,
        msg_ids: "Sequence[str] | None" = None,
    ) -> list:
        """Write messages in order, after checking all of them.

        The `published` of an error on the way is the number of messages written before it.
        """
        cdef list futures = []
        cdef bytes block = encode_headers(headers) if headers else None
        cdef Py_ssize_t i, n
        payloads = as_list(payloads, "payloads")
        n = len(payloads)
        if not isinstance(subjects, str):
            subjects = as_list(subjects, "subjects", n)
        if msg_ids is not None:
            msg_ids = as_list(msg_ids, "msg_ids", n)
        for i in range(n):
            futures.append(self.prepare(
                subjects if isinstance(subjects, str) else subjects[i],
                payloads[i],
                block,
                None if msg_ids is None else msg_ids[i],
            ))
        self.send_all(futures)
        return futures

    def publish_rows(
        self, subjects: "str | list[str]", payloads: list, blocks: "list | None",
        all_ids: bool,
    ) -> None:
        """Publish rows of `ArrowSource.take`, as `publish_many` does."""
        cdef list futures = []
        cdef Py_ssize_t i
        for i in range(len(payloads)):
            futures.append(self.prepared(
                subjects if isinstance(subjects, str) else (<list>subjects)[i],
                (<list>payloads)[i],
                None if blocks is None else <bytes>(<list>blocks)[i],
                all_ids,
            ))
        self.send_all(futures)

    cdef int send_all(self, list futures) except -1:
        cdef Py_ssize_t i = 0, n = len(futures)
        try:
            for i in range(n):
                self.send(<PubAckFuture>futures[i])
        except BaseException as error:
            error.published = i
            error.add_note(f"{i} of {n} messages had been published before")
            raise
        return 0

    cdef PubAckFuture prepare(self, subject, data, bytes block, msg_id):
        if msg_id is not None:
            block = block_with_id(block, msg_id)
        return self.prepared(subject, data, block, msg_id is not None)

    cdef PubAckFuture prepared(self, subject, data, bytes block, bint has_id):
        cdef PubAckFuture future = PubAckFuture.__new__(PubAckFuture)
        cdef Py_ssize_t size = 0
        if self.resend and not has_id:
            raise ConfigError(
                "resend: each message needs a msg_id, or it could be stored twice"
            )
        publish_subject(subject, &size)
        if not PyBytes_CheckExact(data):
            check_buffer(data)
            data = lasting_payload(data)
        future.window = self
        future.subject = subject
        future.payload = data
        future.block = block
        self.write_buffer.check_size(future.payload_size())
        return future

    cdef int send(self, PubAckFuture future) except -1:
        cdef int64_t deadline
        cdef LargeWaiter* me = NULL
        cdef Section section
        # First, because without a GIL another thread may have held the section at the fork.
        check_fork(self.write_buffer.generation)
        enter(&section, <PyObject*>self)
        try:
            if self.send_now(future, NULL, &section):
                return 0
            deadline = jsync_now() + self.stall_timeout
            try:
                while not self.send_now(future, me, &section):
                    if jsync_now() >= deadline:
                        raise StallTimeoutError(
                            "the message was not published: "
                            f"for {self.stall_timeout / 1e9:g} s {self.stall_reason()}"
                        )
                    check_may_wait(self.write_buffer)
                    # Small messages of other threads would take the room each time.
                    if me == NULL and future.cost() > self.limit // 8:
                        me = self.queue()
                    self.wait_among(&self.stalled, deadline, &section)
            finally:
                if me != NULL:
                    self.leave_queue(me)
            return 0
        finally:
            leave(&section)
            self.run_callbacks()

    cdef bint send_now(
        self, PubAckFuture future, LargeWaiter* me, Section* section
    ) except -1:
        """Write the message if the window has room for it, and no thread is before it."""
        cdef uint32_t at = self.free
        cdef bint written = False
        if self.error is not None:
            raise fresh(self.error)
        if (
            self.paused or self.busy or at == NO_SLOT or not self.fits(future)
            or (self.large_waiters != NULL and self.large_waiters != me)
        ):
            return False
        self.free = self.slots[at].after
        self.writing += 1
        self.bytes += future.cost()
        try:
            written = self.write(future, at, False, section)
        finally:
            self.writing -= 1
            if not written:
                self.bytes -= future.cost()
                self.release_slot(at)
        if written and not self.timed:
            self.timed = True
            store_int(&self.timer_due, True)
        return written

    cdef str stall_reason(self):
        """Return why nothing can be published now."""
        if self.paused:
            return "there was no connection"
        if self.busy:
            return f"the server was too busy for the {self.busy} messages before it"
        return f"no ack came for the {self.waiting} messages before it"

    cdef bint write(
        self, PubAckFuture future, uint32_t at, bint again, Section* section
    ) except -1:
        """Write the frame of a slot. Return False if that is not possible now."""
        cdef Slot* slot = &self.slots[at]
        cdef uint64_t token = slot.token if again else slot.token + self.size
        cdef bytes block = future.block
        cdef object payload = future.payload
        cdef Py_ssize_t subject_size = 0
        cdef const char* subject = utf8(future.subject, &subject_size)
        cdef PublishFrame frame
        cdef size_t total
        cdef char* out
        publish_to(&frame, subject, subject_size)
        publish_payload(&frame, block, payload)
        frame.reply = PyBytes_AS_STRING(self.prefix)
        frame.reply_size = self.prefix_size
        frame.number = token
        # Another server may accept less.
        self.write_buffer.check_size(frame.block_size + frame.data_size)
        total = publish_size(&frame)
        out = self.write_buffer.lock_and_reserve_in(
            total, TRANSIENT, section, <PyObject*>self
        )
        if out == NULL:
            # `connected` unsets it later, because the buffer is opened before that call.
            self.paused = True
            return False
        # It may have waited for room, and much may have changed.
        if frame.block_size + frame.data_size > self.write_buffer.most_payload:
            self.write_buffer.cancel_and_unlock(total)
            self.write_buffer.refuse_size(frame.block_size + frame.data_size)
        if future.finished if again else (self.paused or self.error is not None):
            self.write_buffer.cancel_and_unlock(total)
            return again
        self.write_buffer.write_locked(out, &frame)
        future.sent = jsync_now()
        future.unsent = False
        if again:
            future.refused = False
            self.resume(future)
        else:
            slot.token = token
            self.link(future, at)
            future.due = future.sent + self.ack_timeout
        self.write_buffer.commit_and_unlock(AUTO)
        return True

    cdef int conclude(self, PubAckFuture future, error, AbstractIOLoop io_loop) except -1:
        """Finish the future, once, and wake the threads that wait for it."""
        if future.finished:
            return 0
        store_byte(&future.finished, True)
        if future.refused:
            self.resume(future)
        self.unlink(future)
        if error is None:
            self.acked += 1
            self.count(future)
            if future.number > self.newest:
                self.newest, self.newest_acked = future.number, self.answered
            future.payload = future.block = future.last_error = None
        else:
            self.failed_count += 1
            future.error = error
            if not PyBytes_CheckExact(future.payload):
                # A view would keep all of its bytes while the caller keeps the future.
                future.payload = PyBytes_FromObject(future.payload)
            self.failures.keep(future)
        wait_queue_wake(&future.waiting)
        if (
            self.stalled != NULL and self.waiting <= self.size - self.size // 8
            and self.bytes <= self.limit - self.limit // 8
        ):
            wait_queue_wake(&self.stalled)
        if self.flushing != NULL and self.oldest() > self.flush_mark:
            wait_queue_wake(&self.flushing)
        self.report(future, error if self.watched else None, io_loop)
        return 0

    cdef int count(self, PubAckFuture future) except -1:
        cdef uint64_t sequence = future.sequence if future.ack is None else future.ack.seq
        if future.ack is not None and future.ack.duplicate:
            self.duplicate_count += 1
            if not future.ambiguous:  # otherwise its first sending may have stored it
                self.doubled_first = min(self.doubled_first or sequence, sequence)
                self.doubled_last = max(self.doubled_last, sequence)
        else:
            self.lowest = min(self.lowest or sequence, sequence)
            self.highest = max(self.highest, sequence)
        return 0

    # Acks -----------------------------------------------------------------------------

    cdef int deliver(self, Msg msg, AbstractIOLoop io_loop) except -1:
        cdef uint64_t token = 0
        cdef Slot* slot
        cdef PubAckFuture future
        if msg.subject_size <= self.prefix_size or not parse_number(
            msg.head + self.prefix_size, msg.subject_size - self.prefix_size, &token
        ):
            return 0
        slot = &self.slots[token % self.size]
        if slot.future == NULL or slot.token != token:
            return 0  # late: its message has failed
        future = <PubAckFuture>slot.future
        if self.is_plain_ack(
            PyBytes_AS_STRING(msg.payload), PyBytes_GET_SIZE(msg.payload), future
        ):
            self.answered = io_loop.now
            return self.conclude(future, None, io_loop)
        if msg.status_number() == 503 and msg.payload_size() == 0:
            self.answered = io_loop.now
            return self.refused(future, self.no_stream(future.subject), io_loop)
        try:
            if not is_of_stream(msg):
                raise JetStreamError(
                    f"another responder answered {(<bytes>msg.payload)[:100]!r}"
                )
            future.ack = self.read_ack(msg.payload)
        except APIError as error:
            self.answered = io_loop.now
            return self.refused(future, error, io_loop)
        except JetStreamError as error:
            # Neither an ack nor a rejection. The answer of the stream may still come.
            if future.last_error is None:
                future.last_error = error
            return 0
        self.answered = io_loop.now
        return self.conclude(future, None, io_loop)

    cdef int refused(self, PubAckFuture future, error, AbstractIOLoop io_loop) except -1:
        """Have a message that was not taken sent again in a while, or fail it."""
        cdef int64_t due, now = io_loop.now
        cdef bint busy = isinstance(error, TooManyRequestsError)
        if busy:
            due = now + self.next_wait(future)
            # One wait for all, so that they continue in order, before any new message.
            if self.busy_until <= now:
                self.busy_until = due
            due = self.busy_until
        elif isinstance(error, NoStreamResponseError):
            if not future.ambiguous and future.retries >= self.retry_attempts:
                return self.conclude(future, error, io_loop)
            future.retries += 1
            due = now + self.retry_wait
        elif future.ambiguous and isinstance(error, DuplicateMessageConflictError):
            due = now + self.next_wait(future)  # its first copy is being stored
        else:
            return self.conclude(future, self.ambiguous_error(future, error), io_loop)
        self.resume(future)
        future.last_error = error
        future.refused = True
        future.again_at = due
        future.busy = busy
        self.busy += busy
        if due < self.retry_due:
            self.retry_due = due
            io_loop.events.append((EVENT_CALL, self.on_refused))
        return 0

    cdef int64_t next_wait(self, PubAckFuture future) except -1:
        cdef double seconds = self.backoff(future.rejections)
        future.rejections += 1
        return <int64_t>(seconds * 1e9)

    cdef void resume(self, PubAckFuture future) noexcept:
        """Note that the message no longer waits to be sent again."""
        future.again_at = 0
        if future.busy:
            future.busy = False
            self.busy -= 1
            if self.busy == 0:
                wait_queue_wake(&self.stalled)

    cdef object ambiguous_error(self, PubAckFuture future, error):
        """Return the error of a message that was refused, perhaps after it was stored."""
        if not future.ambiguous or isinstance(error, WrongExpectationError):
            return error
        return self.timeout_error(
            f"the message to {future.subject!r} was sent again and refused, but its first "
            f"sending had no answer: it may have been stored: {error}", error,
        )

    cdef object timeout_error(self, str text, cause):
        error = DeadlineError(text)
        error.__cause__ = cause
        return error

    cdef bint is_plain_ack(
        self, const char* s, size_t n, PubAckFuture future
    ) except -1:
        """Return whether it is `{"stream":"NAME","seq":N}` alone, as most acks are."""
        cdef const char* name = s + 11
        cdef const char* known = NULL
        cdef Py_ssize_t known_size = 0
        cdef size_t i, size = plain_ack(s, n, &future.sequence)
        if size == 0:
            return False
        if self.stream is not None:
            known = utf8(self.stream, &known_size)
        if <size_t>known_size != size or memcmp(known, name, size) != 0:
            for i in range(size):
                if name[i] <= c" " or name[i] >= DELETE or name[i] == c"\\":
                    return False
            self.stream = decode_text(name, size)
        future.stream = self.stream
        return True

    # Failures -------------------------------------------------------------------------

    cdef int mark_retrieved(self, PubAckFuture future) except -1:
        return self.failures.mark_retrieved(future)

    def take_failures(self) -> tuple[list[PubAckFuture], int]:
        """Take the first failures that no caller has seen, and the number of the others."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            return self.failures.take()
        finally:
            leave(&section)

    def take_done(self) -> list[tuple[PubAckFuture, "Sequence[object]", object]]:
        """Take what was done since: the futures, their callbacks, and errors to report."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            done, self.done = self.done, []
            return [
                (future, callbacks, None if error is None else fresh(error))
                for future, callbacks, error in done
            ]
        finally:
            leave(&section)

    # Outcomes: reported by the I/O thread, or by a waiting thread -----------------------

    cdef int64_t due_of(self, PubAckFuture future) except -1:
        """Return when the message is late.

        On a slow line it waits behind the earlier messages of the window, so its time
        begins with the last ack of those.
        """
        if self.newest >= future.number:
            return future.due
        return max(future.due, self.newest_acked + self.ack_timeout)

    cdef int fail_late(self, int64_t now) except -1:
        cdef PubAckFuture future
        while self.first != NO_SLOT:
            future = <PubAckFuture>self.slots[self.first].future
            if self.due_of(future) > now:
                break
            if future.refused and not future.ambiguous:
                error = future.last_error
            else:
                error = self.timeout_error(
                    f"no ack for the message to {future.subject!r} within "
                    f"{self.ack_timeout / 1e9:g} s: it may have been stored"
                    + ("" if future.last_error is None else
                       f"; the last answer: {future.last_error}"),
                    future.last_error,
                )
            self.conclude(future, error, None)
        return 0

    def expire(self) -> float | None:
        """Fail late messages. Return when to call it next, by the monotonic clock."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.fail_late(jsync_now())
            if self.first == NO_SLOT:
                self.timed = False
                return None
            return self.due_of(<PubAckFuture>self.slots[self.first].future) / 1e9
        finally:
            leave(&section)
            self.run_callbacks()

    def lost(self, error: "Exception") -> None:
        """Fail all that waits, or keep it for `resend_now`. The connection has broken."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.paused = True
            for future in self.all_waiting():
                if self.resend:
                    self.send_later(<PubAckFuture>future)
                else:
                    self.conclude(<PubAckFuture>future, error, None)
        finally:
            leave(&section)
            self.run_callbacks()

    cdef void send_later(self, PubAckFuture future) noexcept:
        """Have `resend_now` send it, although it may be stored unless it was refused."""
        future.unsent = True
        if not future.refused:
            future.ambiguous = True

    def connected(self) -> bool:
        """Use a new connection. Return True if `resend_now` must be called."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.resend and self.waiting:
                return True
            self.paused = False
            wait_queue_wake(&self.stalled)
            return False
        finally:
            leave(&section)

    def resend_now(self) -> None:
        """Write lost or refused messages again, in order. Blocks while the buffer is full.

        New messages wait until that is done.
        """
        cdef PubAckFuture future
        cdef list unsent
        cdef bint written
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.resending:
                return
            self.resending = True
            try:
                while True:
                    unsent = [
                        one for one in self.all_waiting() if (<PubAckFuture>one).unsent
                    ]
                    if not unsent:
                        break
                    for future in unsent:
                        if load_int(&self.callbacks_due):
                            self.run_callbacks_outside(&section)
                        if future.finished or not future.unsent:
                            continue
                        try:
                            written = self.write(future, future.slot, True, &section)
                        except MaxPayloadError as error:
                            self.conclude(future, self.ambiguous_error(future, error), None)
                            continue
                        if not written:
                            return  # lost again: the next connection calls
                self.paused = False
                wait_queue_wake(&self.stalled)
            finally:
                self.resending = False
        finally:
            leave(&section)
            self.run_callbacks()

    def retry(self) -> bool:
        """Have `resend_now` send refused messages that have waited. True if any have."""
        cdef PubAckFuture future
        cdef int64_t soon = jsync_now() + RETRY_SLACK_NS
        cdef bint found = False
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            self.retry_due = NEVER
            for future in self.all_waiting():
                if future.again_at == 0:
                    continue
                if future.again_at <= soon:
                    future.unsent = found = True
                    future.again_at = 0
                else:
                    self.retry_due = min(self.retry_due, future.again_at)
            return found
        finally:
            leave(&section)

    def retry_in(self) -> float | None:
        """Return in how many seconds `retry` has something to do, or None for nothing."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.retry_due == NEVER:
                return None
            return max(0, self.retry_due - jsync_now()) / 1e9
        finally:
            leave(&section)

    def resend_due(self, seconds: float) -> bool:
        """Have `resend_now` send messages without an answer for so long. True if any are.

        A leader that steps down loses what was on its way, and reports that to no client.
        """
        cdef PubAckFuture future
        cdef int64_t before = jsync_now() - <int64_t>(seconds * 1e9)
        cdef bint silent, found = False
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            # On a slow connection the acks come late, but in order.
            silent = self.answered < before and self.write_buffer.unsent() == 0
            for future in self.all_waiting():
                if future.sent < before and not future.refused and (
                    silent or future.number < self.newest
                ):
                    self.send_later(future)
                    found = True
            return found
        finally:
            leave(&section)

    def deny(self, subject: str, error: "Exception") -> None:
        """Fail messages to a subject that the server refuses."""
        cdef PubAckFuture future
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            for future in self.all_waiting():
                if future.subject == subject:
                    self.conclude(future, self.ambiguous_error(future, error), None)
        finally:
            leave(&section)
            self.run_callbacks()

    def flush(self, timeout: float | None) -> bool:
        """Wait until all that was published before has its ack or its error."""
        cdef int64_t deadline = deadline_after(timeout)
        cdef uint64_t mark
        cdef Section section
        check_fork(self.write_buffer.generation)  # first, as in `send`
        enter(&section, <PyObject*>self)
        try:
            mark = self.count_sent
            while self.oldest() <= mark:
                check_may_wait(self.write_buffer)
                if jsync_now() >= deadline:
                    return False
                if self.flushing == NULL or mark < self.flush_mark:
                    self.flush_mark = mark
                # While reconnecting no other thread checks the deadlines.
                self.wait_among(&self.flushing, min(
                    deadline,
                    self.due_of(<PubAckFuture>self.slots[self.first].future),
                ), &section)
                self.fail_late(jsync_now())
            return True
        finally:
            leave(&section)
            self.run_callbacks()

    def close(self, error: "Exception", closed_error: "Exception | None" = None) -> None:
        """Fail what waits with `error`. Later calls raise `closed_error`, or `error`."""
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.error is None:
                self.error = error if closed_error is None else closed_error
            for future in self.all_waiting():
                self.conclude(<PubAckFuture>future, error, None)
            wait_queue_wake(&self.stalled)
        finally:
            leave(&section)
            self.run_callbacks()
