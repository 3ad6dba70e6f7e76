# A request that is asked again and again: its frame is made once, and so is where the
# answer comes.


@cython.final
cdef class Question:
    """A request that is the same each time, but for the number at the end of `reply`.

    One message answers it, which `mailbox` takes; it is asked again only after that.
    """

    cdef Mailbox mailbox
    cdef bytes head, tail  # of the frame, around the number
    cdef Py_ssize_t size
    cdef readonly uint64_t number
    """How often it has been asked."""

    def __init__(
        self, mailbox: Mailbox, subject: str, reply: str, payload: bytes
    ) -> None:
        self.mailbox = mailbox
        self.size = len(payload)
        self.head = b"PUB %b %b" % (subject.encode(), reply.encode())
        self.tail = b" %d\r\n%b\r\n" % (self.size, payload)

    def ask(self, on_status: "Callable[[Msg], object]", deadline: float) -> Msg | None:
        """Ask and wait until `deadline`; None also when it has ended: see the mailbox.

        `on_status` is the mailbox's until the answer has come. Raises
        `ConnectionLostError` when it could not be asked.
        """
        cdef Mailbox mailbox = self.mailbox
        cdef Outbox outbox = mailbox.outbox
        cdef char digits[20]
        cdef Py_ssize_t head = PyBytes_GET_SIZE(self.head)
        cdef Py_ssize_t tail = PyBytes_GET_SIZE(self.tail), count
        cdef char* room
        cdef Msg msg
        mailbox.on_status = on_status
        mailbox.closed = False
        mailbox.error = None
        mailbox.delivered = 0
        mailbox.expected = 1
        self.number += 1
        count = write_number(digits, self.number) - digits
        outbox.check_size(self.size)
        room = outbox.begin(head + count + tail, False, False)
        if room == NULL:
            raise ConnectionLostError("not connected: reconnecting")
        memcpy(room, PyBytes_AS_STRING(self.head), head)
        memcpy(room + head, digits, count)
        memcpy(room + head + count, PyBytes_AS_STRING(self.tail), tail)
        outbox.out_msgs += 1
        outbox.out_bytes += self.size
        outbox.finish(True)
        msg = mailbox.wait(<int64_t>(deadline * 1e9))
        if msg is not None:
            mailbox.on_status = None
        return msg

    def __repr__(self) -> str:
        return f"<Question {self.number} of {self.mailbox!r}>"
