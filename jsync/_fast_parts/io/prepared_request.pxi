# A request that is sent many times. Its frame is made once, and so is the mailbox in which
# the answers arrive.


@cython.final
cdef class PreparedRequest:
    """A request that is the same each time, except for the number at the end of `reply`.

    Its answer is one message, which `mailbox` takes. Only then may it be sent again.
    """

    cdef JetStreamMailbox mailbox
    cdef bytes subject, reply, payload
    cdef readonly uint64_t number
    """The number of requests so far."""

    def __init__(
        self, mailbox: JetStreamMailbox, subject: str, reply: str, payload: bytes
    ) -> None:
        self.mailbox = mailbox
        self.subject, self.reply = subject.encode(), reply.encode()
        self.payload = payload

    def send(self, on_status: "Callable[[Msg], object]", deadline: float) -> Msg | None:
        """Send the request and wait for its answer until `deadline`.

        Return None at the deadline, or at the end of the mailbox, which has the reason.
        `on_status` is the mailbox's until the answer has come. Raises `ConnectionLostError`
        if the request could not be sent.
        """
        cdef JetStreamMailbox mailbox = self.mailbox
        cdef WriteBuffer write_buffer = mailbox.write_buffer
        cdef PublishFrame frame
        cdef Msg msg
        cdef Section section
        enter(&section, <PyObject*>mailbox)
        mailbox._on_status = on_status
        store_int_relaxed(&mailbox.over, False)
        mailbox.error = None
        mailbox.delivered_count = 0
        mailbox.expected = 1
        leave(&section)
        self.number += 1
        publish_to(
            &frame, PyBytes_AS_STRING(self.subject), PyBytes_GET_SIZE(self.subject)
        )
        publish_bytes(&frame, None, self.payload)
        frame.reply = PyBytes_AS_STRING(self.reply)
        frame.reply_size = PyBytes_GET_SIZE(self.reply)
        frame.number = self.number
        write_buffer.write_message(&frame, NOW)
        msg = mailbox.wait(<int64_t>(deadline * 1e9))
        if msg is not None:
            enter(&section, <PyObject*>mailbox)
            on_status, mailbox._on_status = mailbox._on_status, None
            leave(&section)
        return msg

    def __repr__(self) -> str:
        return f"<PreparedRequest {self.number} of {self.mailbox!r}>"
