# Sinks, to which the I/O loop delivers.


cdef class Sink:
    """Something to which the messages of one sid are delivered."""

    cdef bint jetstream  # the parser makes JetStreamMsg for it
    cdef int columnar    # it is a mailbox that takes messages without objects

    cdef int deliver(self, Msg msg, AbstractIOLoop io_loop) except -1:
        raise NotImplementedError  # Cython has no abstract methods


cdef inline int deliver_to(Sink sink, Msg msg, AbstractIOLoop io_loop) except -1:
    """Deliver in the section of the sink, in which its readers take from it, too."""
    cdef Section section
    if not PARALLEL:
        return sink.deliver(msg, io_loop)
    enter(&section, <PyObject*>sink)
    try:
        sink.deliver(msg, io_loop)
    finally:
        leave(&section)
    return 0
