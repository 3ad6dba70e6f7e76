# How a thread waits: parked on a lock of the interpreter, without the GIL, until it is
# woken, its deadline passes, or a signal handler raises. A thread that waits alone reads
# the socket meanwhile: see `IOLoop.read_until`. A greenlet of gevent waits as
# `greenlets.pxi` says.

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


cdef bint sleeper_wait(
    Sleeper* sleeper, int64_t deadline, int* waiting,
    IOThreadHandle handle = None, bint piggyback = False,
) except -1:
    """Wait for the wake-up, True, or give up at the deadline or once `waiting` is unset.

    The waker unsets `waiting` first. Once the GIL has been given up, the next thread in
    the chain of `handle` is woken, and with `piggyback` the I/O thread sends what
    waits there. Raises what a signal handler raises, such as KeyboardInterrupt. The GIL is
    held before and after.
    """
    cdef PyLockStatus status
    cdef int generation = -1
    cdef int64_t us, longest = MAX_SLICE_US
    if sleeper.hub != NULL:
        if handle is not None:
            generation = handle.generation
            if piggyback:
                handle.request_flush()
        return greenlet_wait(sleeper, deadline, waiting, generation)
    if PyThread_get_thread_ident() == main_thread:
        longest = SIGNAL_SLICE_US
    while True:
        # A signal that came while C code ran does not interrupt the wait below.
        PyErr_CheckSignals()
        if handle is not None:
            check_fork(handle.generation)  # a signal handler may have forked
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
            if handle is not None:
                if chain_pass(&handle.chain):
                    handle.wake_without_gil()
                if piggyback:
                    handle.request_flush()
            status = PyThread_acquire_lock_timed(sleeper.lock, us, 1)
        if status == PY_LOCK_ACQUIRED:
            sleeper.acquired = True
            return True


cdef bint park_wait(
    Park* park, int64_t deadline, IOThreadHandle handle = None, bint piggyback = False
) except -1:
    """Wait for a wake-up, True, or the deadline, False. Spurious wake-ups may happen.

    See `sleeper_wait` for `handle` and `piggyback`.

    With a GIL the caller's check of its predicate and the setting of `waiting` are one
    step, so that no wake-up is lost. Without a GIL the caller has armed the park.
    """
    if not PARALLEL:
        if prepare_hub():
            return True  # the caller has to look again at what it waits for
        park_arm(park)
    try:
        if sleeper_wait(&park.sleeper, deadline, &park.waiting, handle, piggyback):
            if PARALLEL:
                store_int(&park.waiting, AWAKE)
            return True
    except BaseException:
        park_leave(park)
        raise
    return park_leave(park)


cdef bint wait_for_wake(
    IOThreadHandle handle, Park* park, int64_t deadline, bint for_one, bint held = False,
    bint piggyback = False,
) except -1:
    """Wait as `park_wait` does for bytes of the connection: for one answer, or for more.

    With acks held, wait only in place of the I/O thread, where the next messages are close.
    `piggyback` means that the request is in the write buffer, and leaves as the caller
    parks.
    """
    if not PARALLEL and prepare_hub():
        return True  # the caller has to look again at what it waits for
    if for_one and hub_here() is None and read_for(handle, park, deadline):
        return True
    if held:
        return park_leave(park) if PARALLEL else False
    add_int(&handle.parked, 1)
    try:
        handle.wake_reader()
        return park_wait(park, deadline, handle, piggyback)
    finally:
        add_int(&handle.parked, -1)


cdef inline bint read_for(IOThreadHandle handle, Park* park, int64_t deadline) except -1:
    """Read the socket, if possible, until `park` is woken: True. See `read_until`."""
    cdef AbstractIOLoop io_loop
    if not PARALLEL:
        return (
            handle.io_loop is not None
            and handle.io_loop.read_until(park, deadline)
        )
    if load_int(&handle.parked):
        return False  # see `IOLoop.is_readable`
    try:
        io_loop = handle.reader()
        return io_loop is not None and io_loop.read_until(park, deadline)
    except BaseException:
        park_leave(park)
        raise


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
