# A park is where one thread or greenlet waits for one wake-up, on a lock of the interpreter
# or in a poll. This part arms, wakes and leaves it, and `wait.pxi` waits there.

cdef int sleeper_arm(Sleeper* sleeper) except -1:
    """Prepare for one wake-up, before any other thread sees the sleeper."""
    if hub_arm(sleeper):
        return 0
    hub_release(sleeper.hub)
    sleeper.hub = NULL
    if sleeper.lock == NULL:
        sleeper.lock = PyThread_allocate_lock()
        if sleeper.lock == NULL:
            raise MemoryError
        PyThread_acquire_lock_timed(sleeper.lock, 0, 0)
    sleeper.acquired = False
    return 0


cdef inline void sleeper_wake(Sleeper* sleeper) noexcept nogil:
    if sleeper.hub == NULL:
        PyThread_release_lock(sleeper.lock)
    else:
        hub_add(sleeper)


cdef void sleeper_disarm(Sleeper* sleeper) noexcept:
    """Forget a wake-up that was not used. No other thread sees the sleeper any more."""
    if sleeper.hub == NULL:
        # Take the waker's release back.
        if PyThread_acquire_lock_timed(sleeper.lock, 0, 0) == PY_LOCK_ACQUIRED:
            sleeper.acquired = True
    else:
        hub_discard(sleeper)


cdef void sleeper_free(Sleeper* sleeper) noexcept:
    if sleeper.lock != NULL:
        PyThread_free_lock(sleeper.lock)
        sleeper.lock = NULL
    hub_release(sleeper.hub)
    sleeper.hub = NULL


cdef enum:  # values of `Park.waiting` without a GIL
    AWAKE
    ASLEEP    # on the lock
    POLLING   # in a poll, for `notify_fd`
    READING   # back from the poll, and perhaps the waker itself
    WAKING    # a waker of a poll is at work on it
    RELEASED  # a waker has released the lock, or is about to

cdef struct Park:
    Sleeper sleeper
    int waiting    # only the thread that changes it from not 0 wakes the sleeper
    bint reading   # it waits in a poll of `notify_fd` instead
    int notify_fd  # -1 while the waiting thread itself may be the waker


cdef void park_free(Park* park) noexcept:
    sleeper_free(&park.sleeper)


cdef inline void park_wake(Park* park) noexcept nogil:
    if PARALLEL:
        park_unpark(park)
    elif park.waiting:
        park.waiting = False
        if not park.reading:
            sleeper_wake(&park.sleeper)
        elif park.notify_fd >= 0:
            notify(park.notify_fd)


cdef void park_unpark(Park* park) noexcept nogil:
    """Wake it, from any thread, and be done with its memory before it continues.

    A thread that sleeps acquires the lock before it continues, so the release comes last.
    It must not wait for the waker otherwise, because it may run in the place of the waker.
    """
    cdef int how = load_int(&park.waiting)
    while how == ASLEEP or how == POLLING or how == READING:
        if how == ASLEEP:
            if replace_int(&park.waiting, ASLEEP, RELEASED):
                sleeper_wake(&park.sleeper)
                return
        elif replace_int(&park.waiting, how, WAKING):
            if how == POLLING:
                notify(park.notify_fd)
            store_int(&park.waiting, AWAKE)
            return
        how = load_int(&park.waiting)


cdef int park_arm(Park* park) except -1:
    """Begin to wait: a thread that changes the awaited state, and then wakes, is noticed.

    Without a GIL this comes before the last look at that state, or both are in the section
    of the waking thread. With a GIL nothing runs in between in any case.
    """
    sleeper_arm(&park.sleeper)
    store_int(&park.waiting, ASLEEP)
    return 0


cdef bint park_leave(Park* park) noexcept:
    """Stop waiting. Return True if a wake-up had come all the same."""
    if replace_int(&park.waiting, ASLEEP, AWAKE):
        return False
    if PARALLEL:
        park_settle(park)
    else:
        sleeper_disarm(&park.sleeper)
    return True


cdef void park_settle(Park* park) noexcept:
    """Wait until the waker has finished, without a GIL, and take its release back."""
    if load_int(&park.waiting) == RELEASED:
        PyThread_acquire_lock_timed(park.sleeper.lock, -1, 0)
        store_int(&park.waiting, AWAKE)
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
        return True
    woken = not park.waiting
    park.waiting = park.reading = False
    return woken
