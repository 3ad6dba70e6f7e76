# The failures of a publisher that its user may not have seen.

cdef enum:
    MAX_FAILURES = 1000  # kept for the error of `flush`, further ones are only counted


@cython.final
@cython.internal
cdef class UnretrievedErrors:
    """Futures with errors that their user has not received yet."""

    cdef list futures
    cdef size_t seen    # how many of them have been seen
    cdef size_t unkept  # failures past MAX_FAILURES
    cdef uint64_t epoch  # how often they were taken: earlier failures are reported

    def __cinit__(self):
        self.futures = []

    cdef int keep(self, PubAckFuture future) except -1:
        future.epoch = self.epoch
        if self.seen and len(self.futures) >= MAX_FAILURES:
            self.futures = [one for one in self.futures if not (<PubAckFuture>one).seen]
            self.seen = 0
        if len(self.futures) < MAX_FAILURES:
            self.futures.append(future)
            future.kept = True
        else:
            self.unkept += 1
        return 0

    cdef int mark_retrieved(self, PubAckFuture future) except -1:
        """Note that the caller has received the error, so that `take` leaves it out."""
        if not future.seen:
            future.seen = True
            if future.kept:
                self.seen += 1
            elif future.epoch == self.epoch:
                self.unkept -= 1
        return 0

    cdef tuple take(self):
        cdef PubAckFuture future
        cdef list unseen = []
        for future in self.futures:
            if not future.seen:
                future.seen = True
                unseen.append(future)
        more, self.unkept, self.futures, self.seen = self.unkept, 0, [], 0
        self.epoch += 1
        return unseen, more
