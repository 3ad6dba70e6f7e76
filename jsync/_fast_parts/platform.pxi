# Clock, sockets, mutex and fork counter of the operating system. POSIX.

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE  /* ppoll */
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <poll.h>
    #include <pthread.h>
    #include <sched.h>
    #include <stdint.h>
    #ifdef __linux__
    #include <sys/eventfd.h>
    #endif
    #include <sys/socket.h>
    #include <unistd.h>

    #ifndef MSG_NOSIGNAL  /* macOS: Python ignores SIGPIPE for the whole process */
    #define MSG_NOSIGNAL 0
    #endif

    /* The clock of time.monotonic(), since deadlines cross from Python to C and back. The
       interpreter chooses it for each system: on macOS mach_absolute_time(), which stands
       still while the machine sleeps, unlike CLOCK_MONOTONIC there. Neither function needs
       the GIL. */
    static int64_t jsync_now(void) {
    #if PY_VERSION_HEX >= 0x030D0000
        PyTime_t now;
        (void)PyTime_MonotonicRaw(&now);  /* 0 when it fails, as the other gives */
        return now;
    #else
        return _PyTime_GetMonotonicClock();
    #endif
    }

    /* os.register_at_fork misses forks made in C, and os.getpid() is a system call. */
    static volatile int jsync_forks = 0;
    static void jsync_count_fork(void) { jsync_forks++; }
    static int jsync_watch_forks(void) {
        return pthread_atfork(NULL, NULL, jsync_count_fork);
    }

    /* Like poll, with a limit in nanoseconds where the system has that. */
    static int jsync_poll(struct pollfd* fds, unsigned long count, int64_t ns) {
    #ifdef __linux__
        struct timespec limit = {ns / 1000000000, ns % 1000000000};
        return ppoll(fds, count, &limit, NULL);
    #else
        return poll(fds, count, (int)((ns + 999999) / 1000000));
    #endif
    }

    /* One that is written to and one that is read: an eventfd is both. */
    static int jsync_notifier(int fds[2]) {
    #ifdef __linux__
        fds[0] = fds[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        return fds[0] < 0 ? -1 : 0;
    #else
        if (pipe(fds) != 0) return -1;
        for (int i = 0; i < 2; i++) {
            fcntl(fds[i], F_SETFL, O_NONBLOCK);
            fcntl(fds[i], F_SETFD, FD_CLOEXEC);
        }
        return 0;
    #endif
    }

    static int jsync_finalizing(void) {
    #if PY_VERSION_HEX >= 0x030D0000
        return Py_IsFinalizing();
    #else
        return _Py_IsFinalizing();
    #endif
    }

    static int jsync_errno(void) { return errno; }
    static int jsync_would_block(int e) {
        return e == EAGAIN || e == EWOULDBLOCK || e == EINTR;
    }
    """
    int64_t jsync_now() nogil
    int jsync_forks
    int jsync_watch_forks()
    bint jsync_finalizing() nogil
    int jsync_errno() nogil
    bint jsync_would_block(int e) nogil

    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*) nogil
    int pthread_mutex_destroy(pthread_mutex_t*) nogil
    int pthread_mutex_lock(pthread_mutex_t*) nogil
    int pthread_mutex_unlock(pthread_mutex_t*) nogil
    int sched_yield() nogil

    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL
    int jsync_poll(pollfd*, unsigned long, int64_t ns) nogil
    int jsync_notifier(int* fds)

    int MSG_DONTWAIT, MSG_NOSIGNAL
    ssize_t c_send "send"(int, const void*, size_t, int) nogil
    ssize_t c_recv "recv"(int, void*, size_t, int) nogil
    ssize_t c_read "read"(int, void*, size_t) nogil
    ssize_t c_write "write"(int, const void*, size_t) nogil
    int c_close "close"(int)

if jsync_watch_forks() != 0:
    raise MemoryError("pthread_atfork")

cdef int64_t NEVER = INT64_MAX


cdef int64_t deadline_after(timeout) except? -1:
    """The deadline that lies `timeout` seconds ahead; None is never."""
    if timeout is None:
        return NEVER
    cdef double ahead
    if type(timeout) is float and timeout == timeout:
        ahead = timeout
    else:
        ahead = seconds(timeout, "timeout")
    if ahead >= 1e9:
        return NEVER
    if ahead <= 0:
        return 0
    return jsync_now() + <int64_t>(ahead * 1e9)


cdef int check_fork(int generation) except -1:
    if generation != jsync_forks:
        raise ForkedProcessError(
            "this connection was made before a fork and belongs to the parent process: "
            "call jsync.connect() again in the child"
        )
    return 0


def forks() -> int:
    """How often this process, or an ancestor since the import, has been forked off."""
    return jsync_forks


def monotonic_ns() -> int:
    """The clock of every deadline here, in nanoseconds: that of `time.monotonic_ns`."""
    return jsync_now()


@cython.final
cdef class Waker:
    """Ends the I/O thread's waits: the outbox writes to it, from any thread.

    Its descriptors are opened and closed in C. Ctrl-C cannot come between the opening of
    one and the object that owns it.
    """

    cdef int[2] fds

    def __cinit__(self):
        self.fds[0] = self.fds[1] = -1
        if jsync_notifier(self.fds) != 0:
            error = jsync_errno()
            raise OSError(error, os_strerror(error))

    def __dealloc__(self):
        self.close()

    @property
    def read_fd(self) -> int:
        return self.fds[0]

    @property
    def write_fd(self) -> int:
        return self.fds[1]

    def clear(self) -> None:
        """Forget the wake-ups so far."""
        drain_pipe(self.fds[0])

    cpdef close(self):
        """Close the descriptors; once."""
        close_notifier(self.fds)


cdef void close_notifier(int* fds) noexcept:
    if fds[0] >= 0:
        c_close(fds[0])
        if fds[1] != fds[0]:
            c_close(fds[1])
    fds[0] = fds[1] = -1


cdef object fresh(error):
    """A copy to raise: raising one object from many threads would grow its traceback."""
    again = copy_of(error)
    again.__cause__ = error.__cause__
    return again
