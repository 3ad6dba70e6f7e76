# Batches of messages as columns, which users get.


@cython.final
@cython.no_gc
cdef class ArrowBatch(ChunkList):
    """Messages as columns: an Arrow record batch.

    `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)` and `FROM batch` in DuckDB
    use the memory of the batch without a copy, and keep it as long as they need. You
    choose the columns among:

    - `subject`: `utf8`, not null. Bytes that are not UTF-8 are replaced by U+FFFD.
    - `data`: `binary`, not null. The payload.
    - `sequence`: `uint64`, not null. The stream sequence.
    - `timestamp`: `timestamp[ns, UTC]`, not null. When the stream stored the message.
    - `headers`: `map<utf8, list<utf8>>`, null if there are none, or if they are
      unreadable. Each name once, with its values in their order.

    A batch of more than 2 GiB consists of several record batches, and has only
    `__arrow_c_stream__`: pass it where a table is expected.

    You can acknowledge a batch like its messages, from any thread. See `JetStreamMsg`.

    Example:
        ```python
        import pyarrow

        for batch in stream.read_arrow():
            print(pyarrow.record_batch(batch).num_rows)
        ```
    """

    cdef ColumnLayout shape
    cdef size_t rows, bytes_in_all
    cdef WriteBuffer write_buffer
    cdef bint acks, together, done
    cdef ColumnChunk* acked      # where to continue acks that an error has cut short
    cdef size_t acked_row

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError("a batch comes from fetch, arrow_batches or read_arrow")

    def __len__(self) -> int:
        return self.rows

    @property
    def num_rows(self) -> int:
        """The number of messages."""
        return self.rows

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple([
            COLUMN_NAMES[self.shape.column[i]] for i in range(self.shape.width)
        ])

    @property
    def size(self) -> int:
        """The bytes of subjects, replies, headers and payloads together."""
        return self.bytes_in_all

    @property
    def last_sequence(self) -> int | None:
        """The highest stream sequence. None for an empty batch."""
        cdef uint64_t highest = 0
        cdef ColumnChunk* chunk = self.first
        while chunk != NULL:
            highest = max(highest, chunk.highest)
            chunk = chunk.next
        return highest if self.rows else None

    @property
    def unreadable_headers(self) -> int:
        """The number of messages with headers that are unreadable, at least in part.

        Other clients may publish any bytes as headers. `headers` has the readable ones.
        0 if `headers` is not among the columns.
        """
        cdef size_t count = 0
        cdef ColumnChunk* chunk = self.first
        while chunk != NULL:
            count += chunk.unreadable
            chunk = chunk.next
        return count

    def __repr__(self) -> str:
        return f"<ArrowBatch of {self.rows} messages: {', '.join(self.columns)}>"

    # Arrow ----------------------------------------------------------------------------

    def __arrow_c_schema__(self) -> object:
        """Its schema, as a capsule."""
        return schema_capsule(&self.shape)

    @property
    def __arrow_c_array__(self) -> object:
        """Called: schema and record batch, as capsules.

        What is too large for one record batch does not have it.
        """
        if self.first == NULL or self.first.next != NULL:
            raise AttributeError(
                "this batch is too large for one record batch: take it as a stream, "
                "as a table does (__arrow_c_stream__)"
            )
        return self._as_one

    @cython.annotation_typing(False)
    def _as_one(self, requested_schema: object = None) -> tuple[object, object]:
        return schema_capsule(&self.shape), array_capsule(self.first, &self.shape)

    @cython.annotation_typing(False)
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new stream of its record batches, as a capsule."""
        return stream_capsule(ArrowStream.of((self,), &self.shape))

    # Acks -----------------------------------------------------------------------------

    def ack(self) -> None:
        """Tell the server that all these messages are done. Does not wait.

        With the ack policy `all` jsync sends one ack, for the highest sequence, which
        also covers every message before it. With `explicit` it sends one ack for each
        message, and with `none` nothing. A consumer from `JetStream.consumer` has no
        known policy, so each message is acknowledged. If an error cut the acks short,
        you can call `ack` again.

        Raises:
            ConnectionClosedError: The connection is closed.
            WriteTimeoutError: The write buffer was full for `write_timeout` seconds.
        """
        if self.together and not self.done:
            self.acknowledge_highest()
        else:
            self.acknowledge(b"+ACK", True)

    def nak(self, delay: float | None = None) -> None:
        """Make the server redeliver each message. Does not wait for the server.

        Args:
            delay: Seconds until the redelivery. Default: immediately.
        """
        self.acknowledge(nak_payload(delay), True)

    def term(self, reason: str | None = None) -> None:
        """Tell the server not to deliver these messages again. Does not wait.

        Args:
            reason: The reason, for the server's advisory. Needs nats-server 2.10.4.
        """
        self.acknowledge(term_payload(reason), True)

    def in_progress(self) -> None:
        """Request another `ack_wait` from the server until it redelivers these messages."""
        self.acknowledge(b"+WPI", False)

    @property
    def is_acked(self) -> bool:
        """True once a final ack was sent or buffered."""
        return self.done and self.acks

    cdef int acknowledge_highest(self) except -1:
        cdef ColumnChunk* chunk = self.first
        cdef ColumnChunk* best = NULL
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            while chunk != NULL:
                if chunk.rows and (best == NULL or chunk.highest > best.highest):
                    best = chunk
                chunk = chunk.next
            if best != NULL:
                self.answer(best, best.highest_row, b"+ACK", 4)
            self.done = True
            return 0
        finally:
            leave(&section)

    cdef int acknowledge(self, bytes data, bint terminal) except -1:
        cdef ColumnChunk* chunk
        cdef size_t row
        cdef Section section
        enter(&section, <PyObject*>self)
        try:
            if self.done or not self.acks:
                return 0
            chunk, row = self.first, 0
            if terminal and self.acked != NULL:
                chunk, row = self.acked, self.acked_row
            while chunk != NULL:
                while row < chunk.rows:
                    self.answer(
                        chunk, row, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
                    )
                    row += 1
                    if terminal:
                        self.acked, self.acked_row = chunk, row
                chunk, row = chunk.next, 0
            if terminal:
                self.done = True
            return 0
        finally:
            leave(&section)

    cdef int answer(
        self, ColumnChunk* chunk, size_t row, const char* data, Py_ssize_t size
    ) except -1:
        cdef int32_t begin = chunk.replies.ends[row]
        return self.write_buffer.write_ack(
            chunk.replies.bytes + begin, chunk.replies.ends[row + 1] - begin, data, size
        )


cdef ArrowBatch batch_of(RowBuffer columns, ColumnChunk* chunks, WriteBuffer write_buffer):
    """Make a batch that takes over `chunks`, which may be NULL."""
    cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
    cdef ColumnChunk* chunk = chunks
    batch.first = chunks
    batch.shape = columns.shape
    batch.write_buffer = write_buffer
    batch.acks = columns.acks
    batch.together = columns.together
    if chunks == NULL:
        chunk = batch.first = columns.begin_empty()
    while chunk != NULL:
        chunk_finish(chunk, &batch.shape)
        batch.rows += chunk.rows
        batch.bytes_in_all += chunk.wire
        chunk = chunk.next
    return batch
