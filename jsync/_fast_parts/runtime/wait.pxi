# How a thread waits: parked on a lock of the interpreter, without the GIL, until it is
# woken, its deadline passes, or a signal handler raises. A thread that waits alone reads
# the socket meanwhile: see `IOLoop.read_until`. A greenlet of gevent waits as
# `greenlets.pxi` says.

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
    monkey = _modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        # That was the number of a greenlet.
        from gevent.hub import MAIN_THREAD_IDENT
        main_thread = MAIN_THREAD_IDENT
    return 0

remember_main_thread()

cdef struct HubWakeups:  # the greenlets of a hub that were woken and do not run yet
    int references  # of its `HubQueue` and of sleepers, which may last longer
    pthread_mutex_t mutex
    Sleeper* first
    Sleeper* last
    Py_ssize_t length
    int notify_fd   # -1 once the hub has ended
    bint notified   # since the hub has last looked
    int generation  # the forks before it was made

cdef struct Sleeper:  # a thread or a greenlet that waits for one wake-up
    PyThread_type_lock lock  # of a thread: held, so that acquiring it waits
    bint acquired            # the waker's release was taken back
    HubWakeups* hub          # of a greenlet: NULL if a thread waits
    PyObject* greenlet
    Sleeper* next            # in `hub`
    bint queued


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


cdef bint sleeper_wait(
    Sleeper* sleeper, int64_t deadline, int* waiting,
    WriteBuffer write_buffer = None, bint piggyback = False,
) except -1:
    """Wait for the wake-up, True, or give up at the deadline or once `waiting` is unset.

    The waker unsets `waiting` first. Once the GIL has been given up, the next thread in
    the chain of `write_buffer` is woken, and with `piggyback` the I/O thread sends what
    waits there. Raises what a signal handler raises, such as KeyboardInterrupt. The GIL is
    held before and after.
    """
    cdef PyLockStatus status
    cdef int64_t us, longest = MAX_SLICE_US
    if sleeper.hub != NULL:
        return greenlet_wait(sleeper, deadline, waiting, write_buffer, piggyback)
    if PyThread_get_thread_ident() == main_thread:
        longest = SIGNAL_SLICE_US
    while True:
        # A signal that came while C code ran does not interrupt the wait below.
        PyErr_CheckSignals()
        if write_buffer is not None:
            check_fork(write_buffer.generation)  # a signal handler may have forked
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
            if write_buffer is not None:
                if chain_pass(&write_buffer.chain):
                    write_buffer.wake_without_gil()
                if piggyback:
                    write_buffer.request_flush()
            status = PyThread_acquire_lock_timed(sleeper.lock, us, 1)
        if status == PY_LOCK_ACQUIRED:
            sleeper.acquired = True
            return True


cdef int park_arm(Park* park) except -1:
    """Begin to wait: a thread that changes the awaited state, and then wakes, is noticed.

    Without a GIL this comes before the last look at that state, or both are in the section
    of the waking thread. With a GIL nothing runs in between in any case.
    """
    sleeper_arm(&park.sleeper)
    store_int(&park.waiting, ASLEEP)
    return 0


cdef bint park_wait(
    Park* park, int64_t deadline, WriteBuffer write_buffer = None, bint piggyback = False
) except -1:
    """Wait for a wake-up, True, or the deadline, False. Spurious wake-ups may happen.

    See `sleeper_wait` for `write_buffer` and `piggyback`.

    With a GIL the caller's check of its predicate and the setting of `waiting` are one
    step, so that no wake-up is lost. Without a GIL the caller has armed the park.
    """
    if not PARALLEL:
        if prepare_hub():
            return True  # the caller has to look again at what it waits for
        park_arm(park)
    try:
        if sleeper_wait(&park.sleeper, deadline, &park.waiting, write_buffer, piggyback):
            if PARALLEL:
                store_int(&park.waiting, AWAKE)
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


# With a GIL, all threads that one read has answered would wait for it at the same time,
# and each would sleep twice. In a chain they are woken one after the other: the I/O thread
# wakes the first, and each wakes the next when it has given up the GIL to wait again. If
# it does not wait again soon, the I/O thread wakes the others: see `chain_watch`. Without
# a GIL there are no chains.
#
# The I/O thread reads once the chain has come to its end, as it would wait for the GIL
# before, and the threads for it: see `chain_defers`.
#
# While threads of a chain are about to run, requests are not sent one by one, because
# those threads are likely to have requests, too: see `JOINED`.

cdef enum:
    CHAIN_NS = 250_000  # for so long the I/O thread leaves a chain to its threads
    EAGER_WAKES = 256
    LAST_NS = 50_000  # for so long its last thread is likely to wait again
    DEFER_NS = 500_000  # for so long a chain may defer reading

cdef struct ChainLink:  # a waiting thread that has its answer
    Park* park  # NULL: in no chain
    ChainLink* next
    bint queued

cdef struct WakeChain:
    pthread_mutex_t mutex
    ChainLink* first
    ChainLink* last
    int length
    int resuming  # threads that have an answer, and do not run yet
    int passing  # a thread that was woken wakes the next one when it waits again
    int running  # and has the GIL
    bint deferring  # the I/O thread reads after that
    int64_t woken_at
    int eager  # so many threads wake the next one as soon as they run, not when they wait
    PyThread_type_lock* locks  # see `chain_keep_lock`
    Py_ssize_t lock_count
    Py_ssize_t lock_capacity


cdef inline void chain_note(WakeChain* chain, ChainLink* link, Park* park) noexcept:
    """Note that a thread or a greenlet is about to run: it calls `chain_leave`."""
    store_int_relaxed(&chain.resuming, chain.resuming + 1)
    link.park = park


cdef void chain_add(WakeChain* chain, ChainLink* link, Park* park) noexcept:
    """Have a waiting thread woken in its turn."""
    chain_note(chain, link, park)
    link.next = NULL
    pthread_mutex_lock(&chain.mutex)
    link.queued = True
    if chain.first == NULL:
        chain.first = link
    else:
        chain.last.next = link
    chain.last = link
    store_int_relaxed(&chain.length, chain.length + 1)
    pthread_mutex_unlock(&chain.mutex)


cdef void chain_wake_and_unlock(WakeChain* chain) noexcept nogil:
    """Wake the first thread in the chain, which is not empty."""
    cdef ChainLink* link = chain.first
    cdef PyThread_type_lock lock = link.park.sleeper.lock
    chain.first = link.next
    store_int_relaxed(&chain.length, chain.length - 1)
    link.queued = False
    store_int_relaxed(&link.park.waiting, False)
    store_int_relaxed(&chain.passing, True)
    store_int_relaxed(&chain.running, False)
    chain.woken_at = jsync_now()
    # Outside the mutex, because the woken thread takes it. That thread may run before the
    # release returns, so from here on only the lock exists for certain.
    pthread_mutex_unlock(&chain.mutex)
    PyThread_release_lock(lock)


cdef void chain_start(WakeChain* chain) noexcept nogil:
    """Wake the first thread, unless one is running that will, for the I/O thread."""
    if not load_int_relaxed(&chain.length):
        return
    pthread_mutex_lock(&chain.mutex)
    if chain.length and (not chain.passing or chain.eager):
        chain_wake_and_unlock(chain)
    else:
        pthread_mutex_unlock(&chain.mutex)


cdef bint chain_pass(WakeChain* chain) noexcept nogil:
    """Wake the next thread, after the caller has given up the GIL.

    Return True if the I/O thread must be woken, because there is no next thread.
    """
    cdef bint deferring
    if not load_int_relaxed(&chain.length) and not chain_is_passing(chain):
        return False
    pthread_mutex_lock(&chain.mutex)
    if chain.length:
        chain_wake_and_unlock(chain)
        return False
    store_int_relaxed(&chain.passing, False)
    store_int_relaxed(&chain.running, False)
    deferring, chain.deferring = chain.deferring, False
    pthread_mutex_unlock(&chain.mutex)
    return deferring


cdef inline bint chain_is_passing(WakeChain* chain) noexcept nogil:
    """Return whether a thread was woken that is likely to wait again soon."""
    return load_int_relaxed(&chain.passing) or load_int_relaxed(&chain.running)


cdef bint chain_defers(WakeChain* chain, int64_t since, int64_t now) noexcept nogil:
    """Return whether the I/O thread should read later: `chain_pass` tells when."""
    cdef bint deferring
    if not load_int_relaxed(&chain.length) and not chain_is_passing(chain):
        return False
    pthread_mutex_lock(&chain.mutex)
    deferring = now - since < DEFER_NS and (
        chain.length > 0
        or (chain_is_passing(chain) and now - chain.woken_at < LAST_NS)
    )
    chain.deferring = deferring
    pthread_mutex_unlock(&chain.mutex)
    return deferring


cdef void chain_wake_all(WakeChain* chain) noexcept nogil:
    while load_int_relaxed(&chain.length):
        pthread_mutex_lock(&chain.mutex)
        if chain.length:
            chain_wake_and_unlock(chain)
        else:
            pthread_mutex_unlock(&chain.mutex)


cdef void chain_watch(WakeChain* chain, int64_t now) noexcept nogil:
    """Wake all threads if the last one has not woken the next in time.

    It waits for the GIL beside a busy thread, or it does other work than to wait again. In
    the second case the next threads do not rely on that.
    """
    cdef bint late
    pthread_mutex_lock(&chain.mutex)
    late = chain.length > 0 and now - chain.woken_at >= CHAIN_NS
    if late and chain.running:
        chain.eager = EAGER_WAKES
    pthread_mutex_unlock(&chain.mutex)
    if late:
        chain_wake_all(chain)


cdef void chain_leave(WakeChain* chain, ChainLink* link) noexcept:
    """Take out the caller, a thread that has stopped waiting."""
    cdef ChainLink** at
    cdef ChainLink* before = NULL
    cdef Sleeper* sleeper = &link.park.sleeper
    cdef bint woken
    store_int_relaxed(&chain.resuming, chain.resuming - 1)
    pthread_mutex_lock(&chain.mutex)
    woken = not link.queued and sleeper.hub == NULL
    if link.queued:  # its wait has ended before its turn
        at = &chain.first
        while at[0] != link:
            before = at[0]
            at = &before.next
        at[0] = link.next
        if chain.last == link:
            chain.last = before
        store_int_relaxed(&chain.length, chain.length - 1)
    link.park = NULL
    store_int_relaxed(&chain.running, True)
    if not chain.length:
        store_int_relaxed(&chain.passing, False)
        pthread_mutex_unlock(&chain.mutex)
    elif chain.eager:
        chain.eager -= 1
        chain_wake_and_unlock(chain)
    else:
        pthread_mutex_unlock(&chain.mutex)
    if woken and not sleeper.acquired:
        # Its wait has ended otherwise, and the waker, which needs no GIL, is late.
        PyThread_acquire_lock_timed(sleeper.lock, -1, 0)


# The locks of threads that waited are used again, and not freed: the waker may be inside
# the release of such a lock while the woken thread runs already. The GIL guards the list.

cdef void chain_lend_lock(WakeChain* chain, Sleeper* sleeper) noexcept:
    """Give a thread that is about to wait the lock of an earlier one."""
    if sleeper.lock == NULL and chain.lock_count:
        chain.lock_count -= 1
        sleeper.lock = chain.locks[chain.lock_count]


cdef void chain_keep_lock(WakeChain* chain, Sleeper* sleeper) noexcept:
    """Keep the lock of a thread that has waited. Without memory it is never freed."""
    cdef Py_ssize_t capacity = 2 * chain.lock_capacity + 8
    cdef PyThread_type_lock* locks
    cdef PyThread_type_lock lock = sleeper.lock
    sleeper.lock = NULL
    if lock == NULL:
        return
    if chain.lock_count == chain.lock_capacity:
        locks = <PyThread_type_lock*>PyMem_RawRealloc(
            chain.locks, capacity * sizeof(PyThread_type_lock)
        )
        if locks == NULL:
            return
        chain.locks, chain.lock_capacity = locks, capacity
    chain.locks[chain.lock_count] = lock
    chain.lock_count += 1


cdef void chain_init(WakeChain* chain) noexcept:
    pthread_mutex_init(&chain.mutex, NULL)


cdef void chain_free(WakeChain* chain) noexcept:
    while chain.lock_count:
        chain.lock_count -= 1
        PyThread_free_lock(chain.locks[chain.lock_count])
    PyMem_RawFree(chain.locks)
    pthread_mutex_destroy(&chain.mutex)


cdef struct WaitNode:  # a waiting thread, with memory that greenlets do not move
    Sleeper sleeper
    int waiting
    WaitNode* next


cdef WaitNode* wait_node_new() except NULL:
    """Return a node that is armed. `wait_node_free` frees it.

    Other threads may run meanwhile, so the caller looks again at what it waits for.
    """
    cdef WaitNode* node = <WaitNode*>PyMem_RawCalloc(1, sizeof(WaitNode))
    if node == NULL:
        raise MemoryError
    try:
        sleeper_arm(&node.sleeper)
    except BaseException:
        PyMem_RawFree(node)
        raise
    node.waiting = True
    return node


cdef void wait_node_free(WaitNode* node) noexcept:
    """Free a node that is in no queue any more."""
    sleeper_disarm(&node.sleeper)
    sleeper_free(&node.sleeper)
    PyMem_RawFree(node)


cdef void wait_queue_wake(WaitNode** queue) noexcept nogil:
    """Wake all threads that wait there.

    The GIL keeps them, and their memory, where they are. Without a GIL the section of the
    queue's owner does that, or its mutex, because both sides are in it.
    """
    cdef WaitNode* one = queue[0]
    cdef WaitNode* next
    queue[0] = NULL
    while one != NULL:
        next = one.next
        store_int(&one.waiting, False)
        sleeper_wake(&one.sleeper)
        one = next


cdef void wait_queue_remove(WaitNode** queue, WaitNode* node) noexcept nogil:
    """Take a thread out of the queue, if it is there."""
    while queue[0] != NULL:
        if queue[0] == node:
            queue[0] = node.next
            return
        queue = &queue[0].next


cdef int wait_queue_wait(
    WaitNode** queue, int64_t deadline, Section* section, object owner
) except -1:
    """Wait among any number of others, until woken or the deadline: see `park_wait`.

    The section of the queue's owner is left meanwhile, as signal handlers may run.
    """
    cdef WaitNode* me
    if prepare_hub():
        return 0  # the caller has to look again at what it waits for
    me = wait_node_new()
    me.next = queue[0]
    queue[0] = me
    leave(section)
    try:
        sleeper_wait(&me.sleeper, deadline, &me.waiting)
    finally:
        enter(section, <PyObject*>owner)
        wait_queue_remove(queue, me)
        wait_node_free(me)
    return 0
