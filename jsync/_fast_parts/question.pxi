# A request that is sent many times: its frame is made once, and so is the place where the
# answer comes.


@cython.final
cdef class Question:
    """A request that is the same each time, but for the number at the end of `reply`.

    One message answers it, which `mailbox` takes; it is asked again only after that.
    """

    cdef JetStreamMailbox mailbox
    cdef bytes subject, reply, payload
    cdef readonly uint64_t number
    """How often it has been asked."""

    def __init__(
        self, mailbox: JetStreamMailbox, subject: str, reply: str, payload: bytes
    ) -> None:
        self.mailbox = mailbox
        self.subject, self.reply = subject.encode(), reply.encode()
        self.payload = payload

    def ask(self, on_status: "Callable[[Msg], object]", deadline: float) -> Msg | None:
        """Ask and wait until `deadline`; None also when it has ended: see the mailbox.

        `on_status` is the mailbox's until the answer has come. Raises
        `ConnectionLostError` when it could not be asked.
        """
        cdef JetStreamMailbox mailbox = self.mailbox
        cdef Outbox outbox = mailbox.outbox
        cdef Publish frame
        cdef Msg msg
        cdef Section here
        enter(&here, <PyObject*>mailbox)
        mailbox._on_status = on_status
        note_int(&mailbox.over, False)
        mailbox.error = None
        mailbox.came = 0
        mailbox.expected = 1
        leave(&here)
        self.number += 1
        publish_to(
            &frame, PyBytes_AS_STRING(self.subject), PyBytes_GET_SIZE(self.subject)
        )
        publish_bytes(&frame, None, self.payload)
        frame.reply = PyBytes_AS_STRING(self.reply)
        frame.reply_size = PyBytes_GET_SIZE(self.reply)
        frame.number = self.number
        outbox.write_message(&frame, AT_ONCE)
        msg = mailbox.wait(<int64_t>(deadline * 1e9))
        if msg is not None:
            enter(&here, <PyObject*>mailbox)
            on_status, mailbox._on_status = mailbox._on_status, None
            leave(&here)
        return msg

    def __repr__(self) -> str:
        return f"<Question {self.number} of {self.mailbox!r}>"
