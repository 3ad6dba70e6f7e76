# Entries of key-value buckets, made of the messages of a consumer (ADR-8, ADR-48).

cdef extern from "Python.h":
    object PyObject_Vectorcall(
        object function, PyObject** arguments, size_t count, object names
    )

cdef tuple ENTRY_FIELDS = (
    "bucket", "key", "value", "revision", "timestamp_us", "delta", "operation"
)


@cython.annotation_typing(False)
def is_key(key: object) -> bool:
    cdef Py_ssize_t n = 0, i
    cdef const char* s
    cdef char c, last = 46
    # Other text would be encoded to UTF-8, and the string would keep the encoded copy.
    if not isinstance(key, str) or not (<str>key).isascii():
        return False
    s = utf8(key, &n)
    for i in range(n):
        c = s[i]
        if c == 46:
            if last == 46:
                return False
        elif not (
            97 <= c <= 122 or 65 <= c <= 90
            or 45 <= c <= 57  # - . / and digits
            or c == 95 or c == 61
        ):
            return False
        last = c
    return last != 46


cdef str ttl_in(bytes block):
    """Return the `Nats-TTL` of a header block, or of None. Empty if there is none."""
    cdef const char* s
    cdef Py_ssize_t n, i
    cdef HeaderLine line
    if block is None:
        return ""
    s, n = PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block)
    if not is_header_block(s, n):
        return ""
    i = line_end(s, n, 0) + 1
    while next_header(s, n, &i, &line):
        if is_word(line.name, line.name_size, b"Nats-TTL", 8):
            return decode_text(line.value, line.value_size)
    return ""


cdef str key_in(const char* subject, Py_ssize_t n, Py_ssize_t prefix_size):
    prefix_size = min(prefix_size, n)
    return decode_text(subject + prefix_size, n - prefix_size)


cdef object make_entry(
    object make, str bucket, str key, bytes payload,
    object revision, object timestamp_us, object delta, str operation,
):
    cdef PyObject* fields[7]
    cdef bytes value = payload if payload is not None else b""
    fields[0] = <PyObject*>bucket
    fields[1] = <PyObject*>key
    fields[2] = <PyObject*>value
    fields[3] = <PyObject*>revision
    fields[4] = <PyObject*>timestamp_us
    fields[5] = <PyObject*>delta
    fields[6] = <PyObject*>operation
    return PyObject_Vectorcall(make, fields, 0, ENTRY_FIELDS)


@cython.annotation_typing(False)
def read_entries(
    Mailbox mailbox not None, uint64_t previous, object make, str bucket not None,
    str prefix not None,
) -> "tuple[list[Any], int, int]":
    cdef Added added
    cdef HeaderLine line
    cdef Msg msg
    cdef uint64_t pending = 0
    cdef Py_ssize_t prefix_size = len(prefix.encode())
    cdef list entries = []
    while (msg := mailbox.first()) is not None:
        if (
            msg.status_number()
            or read_added(msg.block, True, &added) != NULL
            or added.found[ADDED_PENDING].name == NULL
            or added.previous != previous
        ):
            break
        if mailbox.take() is not msg:  # another thread has discarded it
            break
        previous, pending = added.sequence, added.pending
        line = added.found[ADDED_SUBJECT]
        entries.append(make_entry(
            make, bucket, key_in(line.value, line.value_size, prefix_size), msg.payload,
            added.sequence, added.timestamp_us, 0,
            operation_in(msg.block) if added.has_own else PUT,
        ))
    return entries, previous, pending


@cython.final
cdef class InitialState:
    """The progress of a watch through the entries that were in the bucket when it began.

    The entries are complete once the watch has read up to `end`, where the bucket ended
    before the consumer was made. The leader reports that. If the bucket has one server, the
    server of the consumer is the leader, so its count `expected` is as good (`exact`).

    A watch of the `latest` of each key reads no entry that is replaced before it is
    delivered, and the replacement lies behind `end`. So the entries are complete only at an
    end behind which no key can be that was there in the meantime. This is known if the
    leader has nothing behind the last entry, if all sequences came between the one at which
    it was asked and the end that it reported, or if each key that it has was `seen`.
    """

    cdef int64_t missing
    cdef uint64_t end, position
    cdef int inexact
    cdef bint latest
    cdef bint has_leader_end  # `end` is where the bucket ended during the reading
    cdef bint whole  # no sequence was left out since the leader was asked
    cdef readonly bint done
    # Hashes of the keys that came, with the lowest bit set for values. 0 is a free slot.
    cdef uint64_t* slots
    cdef size_t mask, used

    def __init__(
        self,
        expected: int,
        *,
        end: int = UINT64_MAX,
        after: int = 0,
        exact: bool = True,
        latest: bool = True,
    ) -> None:
        self.missing = expected
        self.end = end
        self.position = after
        self.inexact = not exact
        self.latest = latest
        self.done = self.end <= self.position or (exact and self.missing == 0)

    def __dealloc__(self):
        PyMem_RawFree(self.slots)

    def __repr__(self) -> str:
        return f"<InitialState {'done' if self.done else f'{self.missing} missing'}>"

    @property
    def exact(self) -> bool:
        return not load_int(&self.inexact)

    def on_server_changed(self) -> None:
        """Note, from any thread, that another consumer continues, perhaps elsewhere."""
        store_int(&self.inexact, True)

    cdef inline bint only_counts(self, uint64_t revision, uint64_t delta) noexcept:
        """Return whether `on_entry` would only count an entry with `delta` behind it."""
        return self.done or (
            delta != 0 and self.missing > 1 and revision < self.end
            and not self.has_leader_end
        )

    @cython.annotation_typing(False)
    def on_entry(self, revision: int, delta: int) -> bool:
        """Take note of an entry, and return whether the leader must be asked now."""
        cdef uint64_t sequence = revision
        self.missing -= 1
        self.whole = self.whole and sequence == self.position + 1
        self.position = sequence
        if self.done:
            return False
        if not self.latest:
            if sequence >= self.end or (self.missing == 0 and not load_int(&self.inexact)):
                self.finish()
            return (
                not self.done and not self.has_leader_end
                and (delta == 0 or self.missing <= 0)
            )
        if self.has_leader_end:
            if sequence < self.end:
                return False
            if self.whole:
                self.finish()
            return not self.done
        if self.missing == 0 and delta == 0 and sequence <= self.end:
            if not load_int(&self.inexact):
                self.finish()
                return False
        return delta == 0 or self.missing <= 0 or sequence >= self.end

    @cython.annotation_typing(False)
    def set_end(self, last: int) -> None:
        """Note that the leader has more behind the last entry that came, up to `last`."""
        self.has_leader_end = self.whole = True
        self.end = last
        if self.position >= self.end:
            self.finish()

    def finish(self) -> None:
        self.done = True
        PyMem_RawFree(self.slots)
        self.slots = NULL

    cdef bint record_key(self, str key, bint is_value) except -1:
        """Remember a key, and return whether a value of it came before."""
        cdef uint64_t number
        if self.done or not self.latest:
            return False
        if 2 * self.used >= self.mask:
            self.grow()
        number = (<uint64_t>hash(key) | 1) ^ (not is_value)
        return self.put(number if number else 2) and is_value

    cdef bint put(self, uint64_t number) noexcept:
        """Add a hash, and return whether it was there before."""
        cdef size_t i = <size_t>(number >> 1) & self.mask
        while self.slots[i]:
            if self.slots[i] == number:
                return True
            i = (i + 1) & self.mask
        self.slots[i] = number
        self.used += 1
        return False

    cdef int grow(self) except -1:
        cdef uint64_t* old = self.slots
        cdef size_t size = self.mask + 1 if old != NULL else 0
        cdef size_t i, count = 2 * size if size else 64
        cdef uint64_t* new = <uint64_t*>PyMem_RawCalloc(count, sizeof(uint64_t))
        if new == NULL:
            raise MemoryError
        self.slots = new
        self.mask = count - 1
        self.used = 0
        for i in range(size):
            if old[i]:
                self.put(old[i])
        PyMem_RawFree(old)
        return 0

    cdef bint has(self, uint64_t number) noexcept:
        cdef size_t i = <size_t>(number >> 1) & self.mask
        while self.slots[i]:
            if self.slots[i] == number:
                return True
            i = (i + 1) & self.mask
        return False

    @cython.annotation_typing(False)
    def seen(self, keys: "Iterable[str]") -> bool:
        """Return whether each of these keys has come, as a value or as a marker."""
        cdef uint64_t number
        for key in keys:
            number = <uint64_t>hash(key) | 1
            if self.slots == NULL or not (
                self.has(number) or self.has(number ^ 1 if number ^ 1 else 2)
            ):
                return False
        return True


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
