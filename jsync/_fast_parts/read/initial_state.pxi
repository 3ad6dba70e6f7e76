# The end of the entries with which a watch begins.


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
