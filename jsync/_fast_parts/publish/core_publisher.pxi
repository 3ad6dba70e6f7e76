# Core publishes of a connection's users.


@cython.no_gc_clear  # a finalizer may still publish
cdef class CorePublisher:
    """The part of `Connection` that runs once for each message."""

    cdef readonly WriteBuffer _write_buffer

    def __init__(self, write_buffer: WriteBuffer) -> None:
        self._write_buffer = write_buffer

    @cython.annotation_typing(False)
    def publish(
        self,
        subject: str,
        data: "bytes | bytearray | memoryview" = b"",
        *,
        reply: str | None = None,
        headers: "HeadersLike | None" = None,
    ) -> None:
        """Publish a message, without waiting until it has arrived.

        A single message is given to the socket before the call returns. Messages in a
        burst are buffered, and the call blocks while the buffer is full. While
        reconnecting, the message is buffered and sent later. NATS does not answer a
        publish, so a missing permission is reported to `on_error`.

        Args:
            subject: The subject to publish to.
            data: The payload.
            reply: The subject for replies. Default: none.
            headers: The headers of the message.

        Raises:
            InvalidSubjectError: Nothing can be published to the subject.
            InvalidHeaderError: A header cannot be sent.
            MaxPayloadError: The message is too large for the server.
            WriteTimeoutError: The write buffer was full for `write_timeout` seconds.
            ReconnectBufferFullError: The buffer for the time of a reconnect is full.
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            nc.publish("news.sport", b"1:0", headers={"Source": "ticker"})
            nc.flush()  # the server has the message
            ```
        """
        cdef Py_ssize_t size = 0
        cdef const char* r = NULL
        if reply is not None:
            r = publish_subject(reply, &size)
        self._write_buffer.publish_message(subject, data, r, size, headers, AUTO)
