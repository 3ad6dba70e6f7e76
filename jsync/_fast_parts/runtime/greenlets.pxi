# How a greenlet of gevent waits: it switches to the hub of its thread, and the hub switches
# back once the greenlet is woken. A thread without a hub has no greenlets, and waits as
# `wait.pxi` says. So the order does not matter in which gevent and jsync are imported, or
# whether gevent has patched the process.
#
# Any thread wakes a greenlet, also without the GIL: it puts the greenlet's sleeper into a
# queue of the hub, and writes to a descriptor that the event loop of the hub watches. All
# greenlets that one read has answered cost one such write.
#
# While a greenlet waits, others use its part of the C stack. So whatever other threads and
# greenlets see of a wait is allocated: `WaitNode`, for example.

cdef enum:
    MAX_TIMER_SECONDS = 86_400

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

cdef dict loaded_modules = _modules
cdef object find_hub = None  # functions of gevent and greenlet, once these are imported
cdef object current_greenlet = None
# Each thread has its queue here, because gevent may keep a hub that has ended in memory.
cdef object queue_of_thread = None


cdef int find_gevent() except -1:
    global find_hub, current_greenlet, queue_of_thread
    # While it is being imported, there is no hub.
    if getattr(loaded_modules["gevent.hub"], "get_hub", None) is not None:
        from gevent._hub_local import get_hub_if_exists
        from gevent.monkey import get_original
        from greenlet import getcurrent
        queue_of_thread = get_original("_thread", "_local")()
        current_greenlet = getcurrent
        find_hub = get_hub_if_exists
    return 0


cdef inline object hub_here():
    """Return the hub that the caller can switch to. None if the caller waits as a thread.

    The hub itself waits as a thread, for example in a signal handler. Its greenlets stand
    still meanwhile.
    """
    if PARALLEL or (find_hub is None and "gevent.hub" not in loaded_modules):
        return None
    return running_hub()


cdef object running_hub():
    if find_hub is None:
        find_gevent()
    hub = None if find_hub is None else find_hub()
    return None if hub is None or current_greenlet() is hub else hub


cdef unsigned long caller_ident() except? 0:
    """Return a number that differs for each thread, and for each greenlet."""
    if hub_here() is None:
        return PyThread_get_thread_ident()
    greenlet = current_greenlet()
    return <unsigned long><size_t><PyObject*>greenlet


@cython.final
cdef class HubQueue:
    """Those greenlets of one hub that wait, and those that were woken."""

    cdef HubWakeups* wakeups
    cdef int[2] fds
    cdef Py_ssize_t waiting
    cdef object hub
    cdef object watcher

    def __cinit__(self):
        self.fds[0] = self.fds[1] = -1
        self.wakeups = <HubWakeups*>PyMem_RawCalloc(1, sizeof(HubWakeups))
        if self.wakeups == NULL:
            raise MemoryError
        self.wakeups.references = 1
        self.wakeups.notify_fd = -1
        self.wakeups.generation = jsync_forks
        pthread_mutex_init(&self.wakeups.mutex, NULL)

    def __init__(self, hub: object) -> None:
        self.hub = hub
        if jsync_notifier(self.fds) != 0:
            error = jsync_errno()
            raise OSError(error, os_strerror(error))
        self.wakeups.notify_fd = self.fds[1]
        self.watcher = hub.loop.io(self.fds[0], 1)

    def __dealloc__(self):
        if self.wakeups == NULL:
            return
        if self.wakeups.generation == jsync_forks:
            pthread_mutex_lock(&self.wakeups.mutex)
            self.wakeups.notify_fd = -1
            pthread_mutex_unlock(&self.wakeups.mutex)
        close_notifier(self.fds)
        hub_release(self.wakeups)

    def __repr__(self) -> str:
        return f"<HubQueue, {self.waiting} greenlets wait>"

    def close(self) -> None:
        """End it in a forked child, where the descriptor is the parent's, too."""
        self.watcher.stop()
        self.watcher.close()
        close_notifier(self.fds)

    cdef int count(self, int more) except -1:
        """Watch the descriptor while a greenlet waits.

        A watcher that is active keeps the event loop running, and it keeps the hub in
        memory even after the hub has ended.
        """
        self.waiting += more
        if self.wakeups.generation != jsync_forks:
            return 0
        if self.waiting == 0:
            self.watcher.stop()
        elif self.waiting == more:
            self.watcher.start(self.switch_to_woken)
        return 0

    def switch_to_woken(self) -> None:
        """Switch to the greenlets that were woken. The event loop calls this."""
        cdef Sleeper* sleeper
        cdef Py_ssize_t left
        if self.wakeups.generation != jsync_forks:
            self.close()
            return
        drain_pipe(self.fds[0])
        pthread_mutex_lock(&self.wakeups.mutex)
        self.wakeups.notified = False
        # A greenlet that is woken again meanwhile waits for the next iteration of the loop.
        left = self.wakeups.length
        pthread_mutex_unlock(&self.wakeups.mutex)
        while left > 0:
            left -= 1
            pthread_mutex_lock(&self.wakeups.mutex)
            sleeper = self.wakeups.first
            if sleeper != NULL:
                hub_remove(self.wakeups, sleeper)
            pthread_mutex_unlock(&self.wakeups.mutex)
            if sleeper == NULL:
                return
            greenlet = <object>sleeper.greenlet
            try:
                greenlet.switch()
            except BaseException:
                self.hub.handle_error(greenlet, *exc_info())


cdef HubQueue queue_of(object hub):
    cdef HubQueue queue = getattr(queue_of_thread, "queue", None)
    if queue is not None and queue.wakeups.generation != jsync_forks:
        queue.close()
        queue = None
    if queue is None or queue.hub is not hub:
        queue_of_thread.queue = queue = HubQueue(hub)
    return queue


cdef bint prepare_hub() except -1:
    """Prepare the first wait with gevent. True if other threads may have run meanwhile."""
    if PARALLEL or (find_hub is None and "gevent.hub" not in loaded_modules):
        return False
    if find_hub is None:
        find_gevent()
        return find_hub is not None
    hub = running_hub()
    if hub is None:
        return False
    before = getattr(queue_of_thread, "queue", None)
    return queue_of(hub) is not before


cdef bint hub_arm(Sleeper* sleeper) except -1:
    """Prepare for one wake-up of the calling greenlet. False if the caller is none."""
    cdef HubWakeups* wakeups
    hub = hub_here()
    if hub is None:
        return False
    greenlet = current_greenlet()
    wakeups = queue_of(hub).wakeups
    if sleeper.hub != wakeups:
        wakeups.references += 1
        hub_release(sleeper.hub)
        sleeper.hub = wakeups
    sleeper.queued = False
    sleeper.greenlet = <PyObject*>greenlet
    return True


cdef void hub_release(HubWakeups* hub) noexcept:
    """Drop a reference. The GIL guards the count: without a GIL no sleeper has a hub."""
    if hub == NULL:
        return
    hub.references -= 1
    if hub.references == 0:
        pthread_mutex_destroy(&hub.mutex)
        PyMem_RawFree(hub)


cdef void hub_add(Sleeper* sleeper) noexcept nogil:
    """Have the hub switch to a greenlet soon."""
    cdef HubWakeups* hub = sleeper.hub
    if hub.generation != jsync_forks:
        return  # in a forked child, where the mutex may be locked for ever
    pthread_mutex_lock(&hub.mutex)
    if not sleeper.queued:
        sleeper.queued = True
        sleeper.next = NULL
        if hub.first == NULL:
            hub.first = sleeper
        else:
            hub.last.next = sleeper
        hub.last = sleeper
        hub.length += 1
        if not hub.notified and hub.notify_fd >= 0:
            hub.notified = True
            notify(hub.notify_fd)
    pthread_mutex_unlock(&hub.mutex)


cdef void hub_discard(Sleeper* sleeper) noexcept nogil:
    """Take a greenlet that stops waiting out of the queue, if it is there."""
    if sleeper.hub.generation == jsync_forks:
        pthread_mutex_lock(&sleeper.hub.mutex)
        hub_remove(sleeper.hub, sleeper)
        pthread_mutex_unlock(&sleeper.hub.mutex)


cdef void hub_remove(HubWakeups* hub, Sleeper* sleeper) noexcept nogil:
    cdef Sleeper** at = &hub.first
    cdef Sleeper* before = NULL
    if not sleeper.queued:
        return
    while at[0] != sleeper:
        before = at[0]
        at = &before.next
    at[0] = sleeper.next
    if hub.last == sleeper:
        hub.last = before
    hub.length -= 1
    sleeper.queued = False


cdef bint greenlet_wait(
    Sleeper* sleeper, int64_t deadline, int* waiting, int generation
) except -1:
    """Do what `sleeper_wait` does, in a greenlet. Raises what is thrown into it.

    Raises `ForkedProcessError` when the `generation` has ended, unless it is -1.
    """
    cdef object hub = find_hub()
    cdef HubQueue queue = queue_of(hub)
    cdef object greenlet = <object>sleeper.greenlet  # perhaps the only reference to it
    cdef object timer = None
    cdef int64_t left
    queue.count(1)
    try:
        while load_int(waiting):
            if generation >= 0:
                check_fork(generation)
            if deadline != NEVER:
                left = deadline - jsync_now()
                if left <= 0:
                    return False
                if timer is not None and not timer.active:  # it came too early
                    timer.close()
                    timer = None
                if timer is None:
                    timer = hub.loop.timer(min(left / 1e9, <double>MAX_TIMER_SECONDS))
                    timer.start(greenlet.switch, update=True)
            hub.switch()
        return True
    finally:
        queue.count(-1)
        hub_discard(sleeper)
        if timer is not None:
            timer.stop()
            timer.close()
