# Iterating over the messages of a mailbox.


@cython.final
cdef class Messages:
    """Iterates over a mailbox to its end; `owner` is kept alive meanwhile.

    When nothing has come by `deadline`, of the monotonic clock, or for `silence` seconds,
    or when a wait for a message has lasted `idle` seconds, `owner.waited()` is called,
    which may close the mailbox.
    """

    cdef Mailbox mailbox
    cdef object owner
    cdef int64_t deadline, silence, idle

    def __init__(
        self,
        mailbox: Mailbox,
        owner: object,
        deadline: float | None = None,
        silence: float = 0.0,
        idle: float = 0.0,
    ) -> None:
        self.mailbox = mailbox
        self.owner = owner
        self.deadline = NEVER if deadline is None else <int64_t>(<double>deadline * 1e9)
        self.silence = <int64_t>(silence * 1e9)
        self.idle = <int64_t>(idle * 1e9)

    def __iter__(self) -> "Messages":
        return self

    def __next__(self) -> Msg:
        cdef Mailbox mailbox = self.mailbox
        cdef Msg msg
        cdef int64_t begun
        if mailbox.ready():
            return mailbox.pop()
        begun = jsync_now()
        while True:
            msg = mailbox.wait(self.until(begun))
            if msg is not None:
                return msg
            if mailbox.closed:
                if mailbox.error is not None:
                    raise fresh(mailbox.error)
                raise StopIteration
            # What came in the meantime, a heartbeat perhaps, has put it off.
            if jsync_now() >= self.until(begun):
                self.owner.waited()
                begun = jsync_now()

    cdef int64_t until(self, int64_t begun) noexcept:
        cdef int64_t when = self.deadline
        if self.silence and self.mailbox.arrived + self.silence < when:
            when = self.mailbox.arrived + self.silence
        if self.idle and begun + self.idle < when:
            when = begun + self.idle
        return when
