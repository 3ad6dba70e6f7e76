# How a thread waits: parked on a lock of the interpreter without the GIL, until it is
# woken, its deadline passes, or a signal handler raises. One that waits alone reads the
# socket meanwhile: see `Line.read_until`.

cdef extern from "pythread.h":
    ctypedef void* PyThread_type_lock
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock)
    void PyThread_release_lock(PyThread_type_lock) nogil
    PyLockStatus PyThread_acquire_lock_timed(
        PyThread_type_lock, long long microseconds, int intr_flag
    ) nogil
    unsigned long PyThread_get_thread_ident() nogil

# A signal that reaches another thread than the main one does not interrupt the main
# thread's wait, and macOS interrupts no wait at all: look this often.
cdef enum:
    SIGNAL_SLICE_US = 100_000
    LONGEST_SLICE_US = 60_000_000

cdef unsigned long main_thread = 0


cdef int remember_main_thread() except -1:
    global main_thread
    import threading
    main_thread = threading.main_thread().ident
    return 0

remember_main_thread()

cdef struct Park:
    PyThread_type_lock lock  # held, so that acquiring it waits; a wake-up releases it
    bint waiting             # only who flips it from 1 to 0 releases the lock
    bint reading             # it waits in a poll, and for this instead of the lock:
    int notify_fd            # -1 while the waiting thread itself may be the waker


cdef void park_free(Park* park) noexcept:
    if park.lock != NULL:
        PyThread_free_lock(park.lock)
        park.lock = NULL


cdef inline void park_wake(Park* park) noexcept nogil:
    if park.waiting:
        park.waiting = False
        if not park.reading:
            PyThread_release_lock(park.lock)
        elif park.notify_fd >= 0:
            notify(park.notify_fd)


cdef inline void notify(int fd) noexcept nogil:
    cdef uint64_t one = 1
    # A full pipe has already been written to; an eventfd takes eight bytes.
    c_write(fd, &one, sizeof(one))


cdef bint lock_wait(
    PyThread_type_lock lock, int64_t deadline, bint* waiting
) except -1:
    """Acquire `lock`, True, or give up at the deadline or once `waiting` is unset.

    Raises what a signal handler raises, KeyboardInterrupt for one. Called and left with
    the GIL held.
    """
    cdef PyLockStatus status
    cdef int64_t us, longest = LONGEST_SLICE_US
    if PyThread_get_thread_ident() == main_thread:
        longest = SIGNAL_SLICE_US
    while True:
        # A signal that came while C code ran does not interrupt the wait below.
        PyErr_CheckSignals()
        if not waiting[0]:
            return False
        us = longest
        if deadline != NEVER:
            us = (deadline - jsync_now()) // 1000 + 1
            if us <= 1:
                return False
            if us > longest:
                us = longest
        with nogil:
            status = PyThread_acquire_lock_timed(lock, us, 1)
        if status == PY_LOCK_ACQUIRED:
            return True


cdef bint park_wait(Park* park, int64_t deadline) except -1:
    """Wait for a wake-up, True, or the deadline, False. Spurious wake-ups may happen.

    The GIL makes the caller's check of its predicate and the setting of `waiting` one
    step, so that no wake-up is lost.
    """
    if park.lock == NULL:
        park.lock = PyThread_allocate_lock()
        if park.lock == NULL:
            raise MemoryError
        PyThread_acquire_lock_timed(park.lock, 0, 0)
    park.waiting = True
    try:
        if lock_wait(park.lock, deadline, &park.waiting):
            return True
    except BaseException:
        park_leave(park)
        raise
    return park_leave(park)


cdef bint park_leave(Park* park) noexcept:
    """Stop waiting; True when a wake-up had come all the same."""
    if park.waiting:
        park.waiting = False
        return False
    PyThread_acquire_lock_timed(park.lock, 0, 0)  # take back what the waker released
    return True


cdef struct Parked:  # a waiting thread, on that thread's stack
    PyThread_type_lock lock
    bint waiting
    Parked* next


cdef void crowd_wake(Parked** crowd) noexcept:
    """Wake all that wait there; the GIL keeps them, and their memory, where they are."""
    cdef Parked* one = crowd[0]
    crowd[0] = NULL
    while one != NULL:
        one.waiting = False
        PyThread_release_lock(one.lock)
        one = one.next


cdef int crowd_wait(Parked** crowd, int64_t deadline) except -1:
    """Wait beside any number of others, until woken or the deadline; see `park_wait`."""
    cdef Parked me
    cdef Parked** at
    me.lock = PyThread_allocate_lock()
    if me.lock == NULL:
        raise MemoryError
    PyThread_acquire_lock_timed(me.lock, 0, 0)
    me.waiting = True
    me.next = crowd[0]
    crowd[0] = &me
    try:
        lock_wait(me.lock, deadline, &me.waiting)
    finally:
        at = crowd
        while me.waiting and at[0] != NULL:
            if at[0] == &me:
                at[0] = me.next
                break
            at = &at[0].next
        PyThread_free_lock(me.lock)
    return 0
