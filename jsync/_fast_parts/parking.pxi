# How a thread waits: parked on a lock of the interpreter, without the GIL, until it is
# woken, its deadline passes, or a signal handler raises. A thread that waits alone reads
# the socket meanwhile: see `IOLoop.read_until`.

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

# A signal that reaches a thread other than the main one does not interrupt the main
# thread's wait, and macOS interrupts no wait at all, so look this often.
cdef enum:
    SIGNAL_SLICE_US = 100_000
    MAX_SLICE_US = 60_000_000

cdef unsigned long main_thread = 0


cdef int remember_main_thread() except -1:
    global main_thread
    import threading
    main_thread = threading.main_thread().ident
    return 0

remember_main_thread()

cdef enum:  # values of `Park.waiting` without a GIL
    AWAKE
    ASLEEP   # on the lock
    POLLING  # in a poll, for `notify_fd`
    READING  # back from the poll, and perhaps the waker itself
    WAKING   # a waker is at work on it

cdef struct Park:
    PyThread_type_lock lock  # held, so that acquiring it waits until a wake-up releases it
    int waiting              # only the thread that changes it from not 0 releases the lock
    bint reading             # it waits in a poll of `notify_fd` instead of on the lock
    int notify_fd            # -1 while the waiting thread itself may be the waker


cdef void park_free(Park* park) noexcept:
    if park.lock != NULL:
        PyThread_free_lock(park.lock)
        park.lock = NULL


cdef inline void park_wake(Park* park) noexcept nogil:
    if PARALLEL:
        park_unpark(park)
    elif park.waiting:
        park.waiting = False
        if not park.reading:
            PyThread_release_lock(park.lock)
        elif park.notify_fd >= 0:
            notify(park.notify_fd)


cdef void park_unpark(Park* park) noexcept nogil:
    """Wake it, from any thread, and be done with its memory before it continues."""
    cdef int how = load_int(&park.waiting)
    while how == ASLEEP or how == POLLING or how == READING:
        if replace_int(&park.waiting, how, WAKING):
            if how == ASLEEP:
                PyThread_release_lock(park.lock)
            elif how == POLLING:
                notify(park.notify_fd)
            store_int(&park.waiting, AWAKE)
            return
        how = load_int(&park.waiting)


cdef inline void notify(int fd) noexcept nogil:
    cdef uint64_t one = 1
    # A full pipe has been written to already, and an eventfd takes eight bytes.
    c_write(fd, &one, sizeof(one))


cdef bint lock_wait(
    PyThread_type_lock lock, int64_t deadline, int* waiting, WriteBuffer piggyback = None
) except -1:
    """Acquire `lock`, True, or give up at the deadline or once `waiting` is unset.

    The I/O thread sends what waits in the write buffer `piggyback`, if there is one, once
    the GIL has been given up. Raises what a signal handler raises, such as
    KeyboardInterrupt. The GIL is held before and after.
    """
    cdef PyLockStatus status
    cdef int64_t us, longest = MAX_SLICE_US
    if PyThread_get_thread_ident() == main_thread:
        longest = SIGNAL_SLICE_US
    while True:
        # A signal that came while C code ran does not interrupt the wait below.
        PyErr_CheckSignals()
        if not load_int(waiting):
            return False
        us = longest
        if deadline != NEVER:
            us = (deadline - jsync_now()) // 1000 + 1
            if us <= 1:
                return False
            if us > longest:
                us = longest
        with nogil:
            if piggyback is not None:
                piggyback.request_flush()
            status = PyThread_acquire_lock_timed(lock, us, 1)
        if status == PY_LOCK_ACQUIRED:
            return True


cdef int park_arm(Park* park) except -1:
    """Begin to wait: a thread that changes the awaited state, and then wakes, is noticed.

    Without a GIL this comes before the last look at that state, or both are in the section
    of the waking thread. With a GIL nothing runs in between in any case.
    """
    if park.lock == NULL:
        park.lock = PyThread_allocate_lock()
        if park.lock == NULL:
            raise MemoryError
        PyThread_acquire_lock_timed(park.lock, 0, 0)
    store_int(&park.waiting, ASLEEP)
    return 0


cdef bint park_wait(Park* park, int64_t deadline, WriteBuffer piggyback = None) except -1:
    """Wait for a wake-up, True, or the deadline, False. Spurious wake-ups may happen.

    `piggyback` is the write buffer that has the request of this wait: see `lock_wait`.

    With a GIL the caller's check of its predicate and the setting of `waiting` are one
    step, so that no wake-up is lost. Without a GIL the caller has armed the park.
    """
    if not PARALLEL:
        park_arm(park)
    try:
        if lock_wait(park.lock, deadline, &park.waiting, piggyback):
            if PARALLEL:
                park_settle(park)
            return True
    except BaseException:
        park_leave(park)
        raise
    return park_leave(park)


cdef bint park_leave(Park* park) noexcept:
    """Stop waiting. Return True if a wake-up had come all the same."""
    if replace_int(&park.waiting, ASLEEP, AWAKE):
        return False
    if PARALLEL:
        park_settle(park)
    PyThread_acquire_lock_timed(park.lock, 0, 0)  # take the waker's release back
    return True


cdef void park_settle(Park* park) noexcept:
    """Wait until the waker has finished."""
    while load_int(&park.waiting) == WAKING:
        sched_yield()


# Parking of a thread that reads the socket while it waits: see `IOLoop.read_until`.

cdef inline void park_begin_reading(Park* park, int fd) noexcept:
    park.notify_fd = fd
    if PARALLEL:
        replace_int(&park.waiting, ASLEEP, POLLING)
    else:
        park.waiting = park.reading = True


cdef inline bint park_waits(Park* park) noexcept:
    if PARALLEL:
        return AWAKE < load_int(&park.waiting) < WAKING
    return park.waiting


cdef inline void park_reads(Park* park) noexcept:
    """Note that the waiting thread itself may be the waker now."""
    if PARALLEL:
        replace_int(&park.waiting, POLLING, READING)
    else:
        park.notify_fd = -1


cdef inline void park_polls(Park* park, int fd) noexcept:
    """Note that the waiting thread is back in the poll, and cannot be the waker."""
    if PARALLEL:
        replace_int(&park.waiting, READING, POLLING)
    else:
        park.notify_fd = fd


cdef inline bint park_end_reading(Park* park) noexcept:
    """Stop polling. Return whether it was woken. If not, it stays armed without a GIL."""
    cdef bint woken
    if PARALLEL:
        if replace_int(&park.waiting, POLLING, ASLEEP) or replace_int(
            &park.waiting, READING, ASLEEP
        ):
            return False
        park_settle(park)
        # If the waker came before the reading, it has released the lock.
        PyThread_acquire_lock_timed(park.lock, 0, 0)
        return True
    woken = not park.waiting
    park.waiting = park.reading = False
    return woken


cdef struct WaitNode:  # a waiting thread, on the stack of that thread
    PyThread_type_lock lock
    int waiting
    WaitNode* next


cdef void wait_queue_wake(WaitNode** queue) noexcept:
    """Wake all threads that wait there.

    The GIL keeps them, and their memory, where they are. Without a GIL the section of the
    queue's owner does that, because both sides are in it.
    """
    cdef WaitNode* one = queue[0]
    queue[0] = NULL
    while one != NULL:
        store_int(&one.waiting, False)
        PyThread_release_lock(one.lock)
        one = one.next


cdef int wait_queue_wait(
    WaitNode** queue, int64_t deadline, Section* here, object owner
) except -1:
    """Wait among any number of others, until woken or the deadline: see `park_wait`.

    The section `here` of the queue's owner is left meanwhile, as signal handlers may run.
    """
    cdef WaitNode me
    cdef WaitNode** at
    me.lock = PyThread_allocate_lock()
    if me.lock == NULL:
        raise MemoryError
    PyThread_acquire_lock_timed(me.lock, 0, 0)
    me.waiting = True
    me.next = queue[0]
    queue[0] = &me
    leave(here)
    try:
        lock_wait(me.lock, deadline, &me.waiting)
    finally:
        enter(here, <PyObject*>owner)
        at = queue
        while me.waiting and at[0] != NULL:
            if at[0] == &me:
                at[0] = me.next
                break
            at = &at[0].next
        PyThread_free_lock(me.lock)
    return 0
