# Entries of key-value buckets, made of the messages of a consumer (ADR-8, ADR-48).

cdef extern from "Python.h":
    object PyObject_Vectorcall(
        object function, PyObject** arguments, size_t count, object names
    )

cdef str PUT = "PUT", DEL = "DEL", PURGE = "PURGE"
cdef tuple ENTRY_FIELDS = (
    "bucket", "key", "value", "revision", "timestamp_us", "delta", "operation"
)


@cython.annotation_typing(False)
def is_key(key: object) -> bool:
    cdef Py_ssize_t n = 0, i
    cdef const char* s
    cdef char c, last = 46
    # Text of other characters would be encoded, and kept so beside it.
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


cdef str operation_in(bytes block):
    """The operation that a header block, or None, stands for.

    `KV-Operation` before `Nats-Marker-Reason`, and the first of each. A block that cannot
    be read says nothing: any publisher may have put it there.
    """
    cdef const char* s
    cdef Py_ssize_t n, i
    cdef HeaderLine line
    cdef str by_reason = None
    if block is None:
        return PUT
    s, n = PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block)
    if not is_header_block(s, n):
        return PUT
    i = line_end(s, n, 0) + 1
    while next_header(s, n, &i, &line):
        if is_word(line.name, line.name_size, b"KV-Operation", 12):
            if is_word(line.value, line.value_size, b"DEL", 3):
                return DEL
            if is_word(line.value, line.value_size, b"PURGE", 5):
                return PURGE
            return PUT  # any other word is a value for the other clients, too
        if by_reason is None and is_word(
            line.name, line.name_size, b"Nats-Marker-Reason", 18
        ):
            if is_word(line.value, line.value_size, b"Remove", 6):
                by_reason = DEL
            elif (
                is_word(line.value, line.value_size, b"MaxAge", 6)
                or is_word(line.value, line.value_size, b"Purge", 5)
            ):
                by_reason = PURGE
            else:
                by_reason = PUT
    return PUT if by_reason is None else by_reason


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
        if mailbox.take() is not msg:  # somebody has discarded it meanwhile
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
cdef class Initial:
    """Where a watch is among the entries that were in the bucket when it began.

    The server says how many there were. An entry may be replaced or deleted before it is
    sent. So the end is an entry with none behind it. Or, once as many have come, what the
    bucket ends at by then: whatever has replaced one of them is not behind that.

    The server may be a replica that is behind the leader, which has had `least` by then.
    So the end does not come before that revision.
    """

    cdef int64_t missing
    cdef uint64_t least, last
    cdef bint asked  # `last` is the last revision of the bucket
    cdef readonly bint done

    def __init__(self, expected: int, least: int = 0) -> None:
        self.missing = expected
        self.least = least
        self.done = not self.missing and not self.least

    def __repr__(self) -> str:
        return f"<Initial {'done' if self.done else f'{self.missing} missing'}>"

    cdef inline bint changes_nothing(self, uint64_t delta) noexcept:
        """Whether `came` would count an entry with `delta` behind it, and no more."""
        return self.done or (delta != 0 and self.missing > 1 and not self.asked)

    @cython.annotation_typing(False)
    def came(self, uint64_t revision, uint64_t delta) -> bool:
        self.missing -= 1
        if delta == 0:
            self.done = revision >= self.least
        elif self.asked:
            self.done = revision >= self.last
        return self.missing <= 0 and not self.done and not self.asked

    @cython.annotation_typing(False)
    def ends_at(self, uint64_t last, uint64_t revision) -> None:
        self.asked = True
        self.last = last
        self.done = self.done or revision >= last

    def all_came(self) -> None:
        self.done = True


@cython.final
cdef class Entries:
    """Reads the messages of a mailbox as entries of a bucket. For one thread at a time.

    What can be had at once, and is no turn of `initial`, comes from an `EntryIterator` or
    `hand_over`. Whatever they stop at comes from `get`.
    """

    cdef JetStreamMailbox mailbox
    cdef Initial initial
    cdef object make
    cdef str bucket
    cdef Py_ssize_t prefix_size
    cdef object decoded
    cdef bint ignore_deletes
    cdef AckReader reader
    cdef readonly uint64_t revision
    cdef public str caught_up

    @cython.annotation_typing(False)
    def __init__(
        self,
        JetStreamMailbox mailbox not None,
        Initial initial not None,
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
        self.revision = revision
        self.decoded = decoded
        self.ignore_deletes = ignore_deletes

    def __repr__(self) -> str:
        return f"<Entries of {self.bucket!r} at {self.revision}>"

    cdef JetStreamMsg take_ready(self, AckNumbers* ack):
        """The next message if it is here, and no turn of `initial`; else None."""
        cdef JetStreamMailbox mailbox = self.mailbox
        cdef Initial initial = self.initial
        cdef Msg msg = mailbox.first()
        if msg is None:
            return None
        if not read_ack(
            &self.reader, msg.head + msg.subject_size, msg.reply_size, ack
        ) or not initial.changes_nothing(ack.pending):
            return None
        if mailbox.take() is not msg:  # somebody has discarded it meanwhile
            return None
        if not initial.done:
            initial.missing -= 1
        self.took(msg, ack)
        return <JetStreamMsg>msg

    cdef inline int took(self, Msg msg, AckNumbers* ack) except -1:
        cdef AckSubject parts
        cdef Section here
        enter(&here, <PyObject*>self)
        try:
            self.revision = ack.stream_sequence
            if ack.pending:
                self.caught_up = None
            elif split_ack_subject(msg.head + msg.subject_size, msg.reply_size, &parts):
                self.caught_up = ack_text(&parts, CONSUMER)
            return 0
        finally:
            leave(&here)

    cdef inline str key_of(self, Msg msg):
        return key_in(msg.head, msg.subject_size, self.prefix_size)

    cdef inline object entry(self, Msg msg, AckNumbers* ack, str operation):
        return make_entry(
            self.make, self.bucket, self.key_of(msg), msg.payload,
            ack.stream_sequence, ack.timestamp // 1000, ack.pending, operation,
        )

    cdef object ready(self):
        """The next entry if it is here, and no turn of `initial`; else None."""
        cdef AckNumbers ack
        cdef Msg msg
        cdef str operation
        while True:
            msg = self.take_ready(&ack)
            if msg is None:
                return None
            operation = operation_in(msg.block)
            if self.ignore_deletes and operation is not PUT:
                continue
            entry = self.entry(msg, &ack, operation)
            if self.decoded is not None:
                entry = self.decoded(entry)
            if entry is not None:
                return entry

    cdef object ready_key(self):
        """Its key."""
        cdef AckNumbers ack
        cdef Msg msg
        if self.decoded is not None:
            entry = self.ready()
            return None if entry is None else entry.key
        while True:
            msg = self.take_ready(&ack)
            if msg is None:
                return None
            if self.ignore_deletes and operation_in(msg.block) is not PUT:
                continue
            return self.key_of(msg)

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
        self.took(msg, &ack)
        return self.entry(msg, &ack, operation_in(msg.block))

    def hand_over(
        self, callback: "Callable[[Any], object]",
        raised: "Callable[[Any, BaseException], object]",
    ) -> None:
        while True:
            entry = self.ready()
            if entry is None:
                return
            try:
                callback(entry)
            except BaseException as error:
                raised(entry, error)


@cython.final
cdef class EntryIterator:
    """Iterates over entries, or their keys.

    `wait` is called for whatever is not at hand, and raises `StopIteration` at the end.
    """

    cdef Entries entries
    cdef object wait
    cdef bint initial, keys

    @cython.annotation_typing(False)
    def __init__(
        self,
        Entries entries not None,
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
        cdef Entries entries = self.entries
        if self.initial and entries.initial.done:
            raise StopIteration
        if not self.keys:
            entry = entries.ready()
            return self.wait() if entry is None else entry
        key = entries.ready_key()
        return self.wait().key if key is None else key
