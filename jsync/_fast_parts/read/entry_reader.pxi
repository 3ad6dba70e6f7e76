# Messages of a mailbox, read as entries of a key-value bucket.


@cython.final
cdef class EntryReader:
    """Reads the messages of a mailbox as entries of a bucket. For one thread at a time.

    Entries that are already here, and that `initial` need only count, come from an
    `EntryIterator` or `hand_over`. Where these stop, `get` returns the next entry.
    """

    cdef JetStreamMailbox mailbox
    cdef InitialState initial
    cdef object make
    cdef str bucket
    cdef Py_ssize_t prefix_size
    cdef object decoded
    cdef bint ignore_deletes
    cdef AckSubjectReader reader
    cdef uint64_t last
    cdef public bint once
    cdef readonly bint repeated
    cdef public bint reads_ttl
    cdef readonly str ttl
    cdef public object held

    @cython.annotation_typing(False)
    def __init__(
        self,
        JetStreamMailbox mailbox not None,
        InitialState initial not None,
        object make,
        str bucket not None,
        str prefix not None,
        *,
        uint64_t revision = 0,
        object decoded = None,
        bint ignore_deletes = False,
    ) -> None:
        self.mailbox = mailbox
        self.initial = initial
        self.make = make
        self.bucket = bucket
        self.prefix_size = len(prefix.encode())
        self.last = revision
        self.decoded = decoded
        self.ignore_deletes = ignore_deletes

    def __repr__(self) -> str:
        return f"<EntryReader of {self.bucket!r} at {self.revision}>"

    @property
    def revision(self) -> int:
        return load_number_relaxed(&self.last)

    cdef JetStreamMsg take_ready(self, AckNumbers* ack):
        """Take the next message if it is here and `initial` only counts it, else None."""
        cdef JetStreamMailbox mailbox = self.mailbox
        cdef InitialState initial = self.initial
        cdef Msg msg = mailbox.first()
        if msg is None:
            return None
        if not read_ack(
            &self.reader, msg.head + msg.subject_size, msg.reply_size, ack
        ) or not initial.only_counts(ack.stream_sequence, ack.pending):
            return None
        if mailbox.take() is not msg:  # another thread has discarded it
            return None
        if not initial.done:
            initial.missing -= 1
            initial.position = ack.stream_sequence
        store_number_relaxed(&self.last, ack.stream_sequence)
        return <JetStreamMsg>msg

    cdef inline str key_of(self, Msg msg):
        return key_in(msg.head, msg.subject_size, self.prefix_size)

    cdef object entry(self, Msg msg, AckNumbers* ack, str operation):
        cdef str key = self.key_of(msg)
        self.repeated = self.initial.record_key(key, operation is PUT)
        if self.reads_ttl:
            self.ttl = ttl_in(msg.block)
        return make_entry(
            self.make, self.bucket, key, msg.payload,
            ack.stream_sequence, ack.timestamp // 1000, ack.pending, operation,
        )

    cdef object ready(self):
        """Take the next entry if it is here and `initial` only counts it, else None."""
        cdef AckNumbers ack
        cdef Msg msg
        cdef str operation
        while True:
            msg = self.take_ready(&ack)
            if msg is None:
                return None
            operation = operation_in(msg.block)
            if self.ignore_deletes and operation is not PUT:
                self.initial.record_key(self.key_of(msg), False)
                continue
            entry = self.entry(msg, &ack, operation)
            if self.once and self.repeated:
                continue
            if self.decoded is not None:
                entry = self.decoded(entry)
            if entry is not None:
                return entry

    cdef object ready_key(self):
        """Take the next entry like `ready`, and return its key."""
        cdef AckNumbers ack
        cdef Msg msg
        cdef str key
        cdef bint is_value
        if self.decoded is not None:
            entry = self.ready()
            return None if entry is None else entry.key
        while True:
            msg = self.take_ready(&ack)
            if msg is None:
                return None
            is_value = operation_in(msg.block) is PUT
            key = self.key_of(msg)
            if self.initial.record_key(key, is_value) and self.once:
                continue
            if is_value or not self.ignore_deletes:
                return key

    @cython.annotation_typing(False)
    def get(self, timeout: float | None = None) -> "Any":
        cdef AckNumbers ack
        cdef Msg msg = self.mailbox.get(timeout)
        if msg is None:
            return None
        if not read_ack(
            &self.reader, msg.head + msg.subject_size, msg.reply_size, &ack
        ):
            raise NotJetStreamMessageError(
                f"the message on {msg.subject!r} did not come from a consumer"
            )
        store_number_relaxed(&self.last, ack.stream_sequence)
        return self.entry(msg, &ack, operation_in(msg.block))

    def hand_over(
        self, callback: "Callable[[Any], object]",
        raised: "Callable[[Any, BaseException], object]",
        most: int = 1000,
    ) -> bool:
        cdef int64_t begun = jsync_now()
        cdef int entries
        for entries in range(1, most + 1):
            entry = self.ready()
            if entry is None:
                return True
            try:
                callback(entry)
            except BaseException as error:
                raised(entry, error)
            if self.mailbox.must_yield(entries, begun):
                return False
        return False


@cython.final
cdef class EntryIterator:
    """Iterates over entries, or their keys.

    `wait` is called for each entry that is not here, and raises `StopIteration` at the end.
    """

    cdef EntryReader entries
    cdef object wait
    cdef bint initial, keys

    @cython.annotation_typing(False)
    def __init__(
        self,
        EntryReader entries not None,
        object wait,
        *,
        bint initial = False,
        bint keys = False,
    ) -> None:
        self.entries = entries
        self.wait = wait
        self.initial = initial
        self.keys = keys

    def __iter__(self) -> "EntryIterator":
        return self

    def __next__(self) -> "Any":
        cdef EntryReader entries = self.entries
        if entries.held is not None:
            entry = self.wait()
            return entry.key if self.keys else entry
        if self.initial:
            if entries.initial.done:
                raise StopIteration
        elif entries.ignore_deletes and not entries.initial.done:
            return self.wait()  # `wait` looks for a value behind this one
        if not self.keys:
            entry = entries.ready()
            return self.wait() if entry is None else entry
        key = entries.ready_key()
        return self.wait().key if key is None else key
