# Core publishes, as a connection's users make them.


@cython.no_gc_clear  # a finaliser may still publish
cdef class PlainPublisher:
    """The part of `Connection` that is done once a message."""

    cdef readonly Outbox _outbox

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    @cython.annotation_typing(False)
    def publish(
        self,
        subject: str,
        data: "bytes | bytearray | memoryview" = b"",
        *,
        reply: str | None = None,
        headers: "HeadersLike | None" = None,
    ) -> None:
        """Publish a message; returns once it is on its way, not when it has arrived.

        A lone message is given to the socket before this returns; in a burst it is
        appended to the write buffer, which blocks while full. While reconnecting it is
        kept and sent later. Raises `InvalidSubjectError`, `InvalidHeaderError`,
        `MaxPayloadError`, `WriteTimeoutError`, `ReconnectBufferFullError` or
        `ConnectionClosedError`, all before anything is sent. A missing permission is
        reported to `on_error`: NATS does not answer a publish.
        """
        cdef Py_ssize_t size = 0
        cdef const char* r = NULL
        if reply is not None:
            r = publish_subject(reply, &size)
        self._outbox.put_message(subject, data, r, size, headers, False)
