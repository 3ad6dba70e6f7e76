# Streams of record batches in the Arrow C stream interface.

from cpython.exc cimport PyErr_SetInterrupt

cdef enum:
    ERROR_IO = 5
    ERROR_MEMORY = 12
    ERROR_RELEASED = 22


@cython.final
cdef class ArrowStream:
    """What is behind a stream: an iterator of `ArrowBatch`, asked as it is read."""

    cdef object batches
    cdef ArrowBatch batch  # that consists of several record batches,
    cdef Chunk* next       # and which of them comes next
    cdef Shape shape
    cdef bytes error

    @staticmethod
    cdef ArrowStream of(batches, Shape* shape):
        cdef ArrowStream stream = ArrowStream.__new__(ArrowStream)
        stream.batches = iter(batches)
        stream.shape = shape[0]
        return stream

    cdef int advance(self, ArrowArray* out) except -1:
        while self.next == NULL:
            self.batch = next(self.batches, None)
            if self.batch is None:
                return 0  # what is released already is the end
            self.next = self.batch.first
        if not make_batch(out, self.next, &self.shape):
            raise MemoryError
        self.next = self.next.next
        return 0

    cdef int failed(self, error) noexcept:
        """Keep what went wrong, which C calls cannot raise."""
        try:
            self.error = f"{type(error).__name__}: {error}".encode(
                "utf-8", "backslashreplace"
            ).replace(b"\0", b" ")
        except Exception:
            self.error = b"unknown error"
        if isinstance(error, KeyboardInterrupt):
            PyErr_SetInterrupt()  # the caller raises it as soon as it is back in Python
        return ERROR_MEMORY if isinstance(error, MemoryError) else ERROR_IO


cdef int stream_schema(ArrowArrayStream* out, ArrowSchema* schema) noexcept nogil:
    # Nothing of it ever changes, so that this needs no GIL.
    cdef Shape* shape = &(<ArrowStream><PyObject*>out.private_data).shape
    return 0 if make_batch_schema(schema, shape) else ERROR_MEMORY


cdef int stream_next(ArrowArrayStream* out, ArrowArray* array) noexcept with gil:
    cdef ArrowStream stream = <ArrowStream>out.private_data
    memset(array, 0, sizeof(ArrowArray))
    try:
        stream.advance(array)
    except BaseException as error:
        return stream.failed(error)
    return 0


cdef const char* stream_error(ArrowArrayStream* out) noexcept with gil:
    cdef ArrowStream stream = <ArrowStream>out.private_data
    return PyBytes_AS_STRING(stream.error) if stream.error is not None else NULL


cdef void release_stream_now(ArrowArrayStream* out) noexcept with gil:
    cdef ArrowStream stream = <ArrowStream>out.private_data
    try:
        close = getattr(stream.batches, "close", None)
        if close is not None:
            close()
    except BaseException as error:
        stream.failed(error)
    Py_DECREF(stream)


cdef void release_stream(ArrowArrayStream* out) noexcept nogil:
    # At the end of the interpreter nobody may take the GIL, and all is forgotten anyway.
    if not jsync_finalizing():
        release_stream_now(out)
    out.release = NULL


cdef void drop_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream
    stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    PyMem_RawFree(stream)


cdef object stream_capsule(ArrowStream stream):
    cdef ArrowArrayStream* out
    out = <ArrowArrayStream*>PyMem_RawCalloc(1, sizeof(ArrowArrayStream))
    if out == NULL:
        raise MemoryError
    out.get_schema = stream_schema
    out.get_next = stream_next
    out.get_last_error = stream_error
    out.release = release_stream
    Py_INCREF(stream)
    out.private_data = <void*>stream
    return PyCapsule_New(out, "arrow_array_stream", drop_stream)


def arrow_schema(columns: Columns) -> object:
    return schema_capsule(&columns.shape)


def arrow_stream(columns: Columns, batches: "Iterator[ArrowBatch]") -> object:
    return stream_capsule(ArrowStream.of(batches, &columns.shape))
