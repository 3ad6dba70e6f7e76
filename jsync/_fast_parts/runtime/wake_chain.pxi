# Chains of threads that are woken one after the other.
#
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
