# Streams of record batches in the Arrow C stream interface.

from cpython.exc cimport (
    PyErr_Fetch,
    PyErr_NormalizeException,
    PyErr_Restore,
    PyErr_SetInterrupt,
    PyErr_SetObject,
    PyErr_WriteUnraisable,
)

cdef extern from "Python.h":
    int Py_AddPendingCall(int (*call)(void*) except -1, void* argument)

cdef enum:
    ERROR_IO = 5
    ERROR_MEMORY = 12
    ERROR_RELEASED = 22

cdef const char* INTERPRETER_ENDED = b"the interpreter has ended"


@cython.final
cdef class ArrowStream:
    """The source of a stream: an iterator of `ArrowBatch`, which reading advances."""

    cdef object batches
    cdef ChunkList batch  # the one being read, which may consist of several record batches
    cdef ColumnChunk* next       # its record batch that comes next
    cdef ColumnLayout shape
    cdef object error      # why reading failed
    cdef bytes text        # of `error`
    cdef const char* last_error  # `text` for C, or INTERPRETER_ENDED
    cdef object interrupt  # Ctrl-C or another exception of a signal handler, for the user
    cdef bint raised       # `interrupt` was raised, though a finalizer may have lost it

    @staticmethod
    cdef ArrowStream of(batches, ColumnLayout* shape):
        cdef ArrowStream stream = ArrowStream.__new__(ArrowStream)
        stream.batches = iter(batches)
        stream.shape = shape[0]
        return stream

    cdef int advance(self, ArrowArray* out) except -1:
        while self.next == NULL:
            self.batch = next(self.batches, None)
            if self.batch is None:
                return 0  # a stream that is released is at its end
            self.next = self.batch.first
        if not make_batch(out, self.next, &self.shape):
            raise MemoryError
        self.next = self.next.next
        return 0

    cdef int failed(self, error) noexcept:
        """Keep the error for the caller, because C calls cannot raise it."""
        self.error = error
        try:
            self.text = f"{type(error).__name__}: {error}".encode(
                "utf-8", "backslashreplace"
            ).replace(b"\0", b" ")
        except Exception:
            self.text = b"unknown error"
        self.last_error = PyBytes_AS_STRING(self.text)
        if not isinstance(error, Exception):
            self.interrupt = error
            self.raise_soon()
        return ERROR_MEMORY if isinstance(error, MemoryError) else ERROR_IO

    cdef int raise_soon(self) noexcept:
        """Raise the interrupt as soon as the main thread is back in Python.

        Other threads do nothing here, because signals interrupt the main thread alone.
        """
        self.raised = False
        if PyThread_get_thread_ident() != main_thread:
            return 0
        Py_INCREF(self)
        if Py_AddPendingCall(raise_interrupt, <void*>self) < 0:
            Py_DECREF(self)
            PyErr_SetInterrupt()
        return 0

    cdef int close(self) noexcept:
        """Stop reading."""
        try:
            close = getattr(self.batches, "close", None)
            if close is not None:
                close()
        except Exception:
            PyErr_WriteUnraisable(self.batches)
        except BaseException as interrupt:
            self.interrupt, self.raised = interrupt, False

    cdef bint explains(self, error) noexcept:
        """Return whether the `error` of a library quotes the one reported here."""
        try:
            return self.text is not None and self.text.decode() in str(error)
        except Exception:
            return False


cdef int raise_interrupt(void* waiting) except -1:
    cdef ArrowStream stream = <ArrowStream>waiting
    Py_DECREF(stream)
    if not stream.raised:
        stream.raised = True
        raise stream.interrupt
    return 0


cdef int stream_schema(ArrowArrayStream* out, ArrowSchema* schema) noexcept nogil:
    # The shape never changes, so this needs no GIL.
    cdef ColumnLayout* shape = &(<ArrowStream><PyObject*>out.private_data).shape
    return 0 if make_batch_schema(schema, shape) else ERROR_MEMORY


cdef int stream_next_now(ArrowArrayStream* out, ArrowArray* array) noexcept with gil:
    cdef ArrowStream stream = <ArrowStream>out.private_data
    cdef PyObject* kind = NULL
    cdef PyObject* value = NULL
    cdef PyObject* trace = NULL
    cdef int code = 0
    # The caller may be handling an error, which calls into Python would lose.
    PyErr_Fetch(&kind, &value, &trace)
    try:
        stream.advance(array)
    except BaseException as error:
        code = stream.failed(error)
    PyErr_Restore(kind, value, trace)
    return code


cdef int stream_next(ArrowArrayStream* out, ArrowArray* array) noexcept nogil:
    memset(array, 0, sizeof(ArrowArray))
    # While the interpreter ends, a thread that requests the GIL never comes back.
    if jsync_finalizing():
        (<ArrowStream><PyObject*>out.private_data).last_error = INTERPRETER_ENDED
        return ERROR_IO
    return stream_next_now(out, array)


cdef const char* stream_error(ArrowArrayStream* out) noexcept nogil:
    return (<ArrowStream><PyObject*>out.private_data).last_error


cdef void release_stream_now(ArrowArrayStream* out) noexcept with gil:
    cdef ArrowStream stream = <ArrowStream>out.private_data
    cdef PyObject* kind = NULL
    cdef PyObject* value = NULL
    cdef PyObject* trace = NULL
    cdef bint told = stream.interrupt is None or stream.raised
    cdef bint explained
    # A library that reports a failure may release the stream with its error pending.
    PyErr_Fetch(&kind, &value, &trace)
    if kind != NULL:
        PyErr_NormalizeException(&kind, &value, &trace)
    explained = value != NULL and stream.explains(<object>value)
    stream.raised = True  # so that the calls below do not raise it: they would lose it
    stream.close()
    stream.batches = None
    told = told and stream.raised
    if explained and stream.interrupt is not None:
        # The interrupt caused the library's error. `except Exception` must not catch it.
        stream.raised = True
        PyErr_SetObject(type(stream.interrupt), stream.interrupt)
        Py_XDECREF(<PyObject*>kind)
        Py_XDECREF(<PyObject*>value)
        Py_XDECREF(<PyObject*>trace)
    else:
        if not told:
            stream.raise_soon()
        elif explained and (<object>value).__cause__ is None:
            (<object>value).__cause__ = stream.error
        PyErr_Restore(kind, value, trace)
    Py_DECREF(stream)


cdef void release_stream(ArrowArrayStream* out) noexcept nogil:
    # While the interpreter ends, no thread may take the GIL. The memory is freed with it.
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


def arrow_schema(columns: RowBuffer) -> object:
    return schema_capsule(&columns.shape)


def arrow_stream(columns: RowBuffer, batches: "Iterator[ArrowBatch]") -> object:
    return stream_capsule(ArrowStream.of(batches, &columns.shape))
