# Clock, sockets, mutex, atomics and fork counter of the operating system.
#
# One interface, in the names of POSIX and GCC, has two implementations: POSIX and Windows.
# The C compiler chooses one, so that one generated file serves both.

cdef extern from *:
    """
    #include <stdint.h>
    #ifdef _WIN32
    #define JSYNC_WINDOWS 1
    #ifndef WIN32_LEAN_AND_MEAN
    #define WIN32_LEAN_AND_MEAN
    #endif
    #include <winsock2.h>
    #include <ws2tcpip.h>
    #include <windows.h>

    typedef SRWLOCK jsync_mutex;
    #define jsync_mutex_init(mutex, nothing) (InitializeSRWLock(mutex), 0)
    #define jsync_mutex_destroy(mutex) ((void)(mutex), 0)
    #define jsync_mutex_lock(mutex) (AcquireSRWLockExclusive(mutex), 0)
    #define jsync_mutex_unlock(mutex) (ReleaseSRWLockExclusive(mutex), 0)
    #define jsync_yield() ((void)SwitchToThread(), 0)

    static int jsync_forks = 0;  /* there is no fork */
    static int jsync_watch_forks(void) { return 0; }

    /* A SOCKET is wide, but 32 bits of it say all, as of every handle of Windows. */
    #define MSG_DONTWAIT 0  /* no socket of ours blocks */
    #define MSG_NOSIGNAL 0
    static int jsync_bounded(size_t size) {
        return size > INT32_MAX ? INT32_MAX : (int)size;
    }
    static Py_ssize_t jsync_send(int fd, const void* data, size_t size, int flags) {
        return send((SOCKET)fd, (const char*)data, jsync_bounded(size), flags);
    }
    static Py_ssize_t jsync_recv(int fd, void* data, size_t size, int flags) {
        return recv((SOCKET)fd, (char*)data, jsync_bounded(size), flags);
    }
    #define jsync_read(fd, data, size) jsync_recv((fd), (data), (size), 0)
    #define jsync_write(fd, data, size) jsync_send((fd), (data), (size), 0)
    #define jsync_close(fd) closesocket((SOCKET)(fd))

    /* Like poll, with a limit in nanoseconds, which becomes whole milliseconds. */
    static int jsync_poll(struct pollfd* fds, unsigned long count, int64_t ns) {
        int64_t ms = (ns + 999999) / 1000000;
        if (ms > INT32_MAX) ms = INT32_MAX;
        if (count == 0) {  /* WSAPoll rejects that */
            Sleep((DWORD)ms);
            return 0;
        }
        return WSAPoll(fds, count, (INT)ms);
    }

    static SOCKET jsync_socket(void) {  /* no child process inherits it */
        return WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0,
                          WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    }

    static int jsync_join(SOCKET listener, SOCKET ends[2]) {
        struct sockaddr_in at, ours, theirs;
        int size = sizeof(at), one = 1;
        u_long on = 1;
        memset(&at, 0, sizeof(at));
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(listener, (struct sockaddr*)&at, sizeof(at)) != 0
            || getsockname(listener, (struct sockaddr*)&at, &size) != 0
            || listen(listener, 1) != 0
            || connect(ends[1], (struct sockaddr*)&at, sizeof(at)) != 0)
            return -1;
        size = sizeof(ours);
        if (getsockname(ends[1], (struct sockaddr*)&ours, &size) != 0) return -1;
        size = sizeof(theirs);
        ends[0] = accept(listener, (struct sockaddr*)&theirs, &size);
        if (ends[0] == INVALID_SOCKET) return -1;
        if (theirs.sin_port != ours.sin_port) {  /* another process has connected */
            WSASetLastError(WSAECONNREFUSED);
            return -1;
        }
        if (ioctlsocket(ends[0], FIONBIO, &on) != 0
            || ioctlsocket(ends[1], FIONBIO, &on) != 0)
            return -1;
        return setsockopt(
            ends[1], IPPROTO_TCP, TCP_NODELAY, (const char*)&one, sizeof(one)
        );
    }

    /* One that is written to and one that is read: WSAPoll takes sockets only. */
    static int jsync_notifier(int fds[2]) {
        SOCKET ends[2] = {INVALID_SOCKET, INVALID_SOCKET};
        SOCKET listener = jsync_socket();
        int joined = -1, error, i;
        if (listener == INVALID_SOCKET) return -1;
        ends[1] = jsync_socket();
        if (ends[1] != INVALID_SOCKET) joined = jsync_join(listener, ends);
        error = WSAGetLastError();
        closesocket(listener);
        for (i = 0; i < 2; i++) {
            if (joined == 0) fds[i] = (int)ends[i];
            else if (ends[i] != INVALID_SOCKET) closesocket(ends[i]);
        }
        WSASetLastError(error);
        return joined;
    }

    static int jsync_errno(void) { return WSAGetLastError(); }
    static int jsync_would_block(int e) { return e == WSAEWOULDBLOCK || e == WSAEINTR; }

    #else  /* POSIX */
    #define JSYNC_WINDOWS 0
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE  /* ppoll */
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <poll.h>
    #include <pthread.h>
    #include <sched.h>
    #ifdef __linux__
    #include <sys/eventfd.h>
    #endif
    #include <sys/socket.h>
    #include <unistd.h>

    #ifndef MSG_NOSIGNAL  /* macOS: Python ignores SIGPIPE for the whole process */
    #define MSG_NOSIGNAL 0
    #endif

    typedef pthread_mutex_t jsync_mutex;
    #define jsync_mutex_init pthread_mutex_init
    #define jsync_mutex_destroy pthread_mutex_destroy
    #define jsync_mutex_lock pthread_mutex_lock
    #define jsync_mutex_unlock pthread_mutex_unlock
    #define jsync_yield sched_yield
    #define jsync_send send
    #define jsync_recv recv
    #define jsync_read read
    #define jsync_write write
    #define jsync_close close

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

    static int jsync_errno(void) { return errno; }
    static int jsync_would_block(int e) {
        return e == EAGAIN || e == EWOULDBLOCK || e == EINTR;
    }
    #endif

    /* The clock of time.monotonic(), since deadlines cross from Python to C and back. The
       interpreter chooses it for each system: on macOS mach_absolute_time(), which stands
       still while the machine sleeps, unlike CLOCK_MONOTONIC there; on Windows
       GetTickCount64() up to Python 3.12, QueryPerformanceCounter() since. Neither function
       needs the GIL. */
    static int64_t jsync_now(void) {
    #if PY_VERSION_HEX >= 0x030D0000
        PyTime_t now;
        (void)PyTime_MonotonicRaw(&now);  /* 0 when it fails, as the other gives */
        return now;
    #else
        return _PyTime_GetMonotonicClock();
    #endif
    }

    static int jsync_finalizing(void) {
    #if PY_VERSION_HEX >= 0x030D0000
        return Py_IsFinalizing();
    #else
        return _Py_IsFinalizing();
    #endif
    }

    /* The atomics of GCC and Clang, for Microsoft's compiler, which has none of them: full
       barriers, unless relaxed. JSYNC_INTERLOCKED makes another compiler take them too, so
       that they can be tested without Microsoft's. */
    #if defined(_MSC_VER) && !defined(__clang__)
    #define JSYNC_INTERLOCKED
    #define __ATOMIC_RELAXED 0
    #define __ATOMIC_ACQ_REL 4
    #define __ATOMIC_SEQ_CST 5
    typedef Py_ssize_t ssize_t;
    #endif
    #ifdef JSYNC_INTERLOCKED
    #include <intrin.h>
    #ifdef __GNUC__  /* of mingw-w64, whose intrin.h has all but this one */
    #define _InterlockedCompareExchange8(at, value, was) \\
        __sync_val_compare_and_swap((at), (was), (value))
    #endif
    #define JSYNC_1(at) ((volatile char*)(at))
    #define JSYNC_4(at) ((volatile long*)(at))
    #define JSYNC_8(at) ((volatile __int64*)(at))
    static char jsync_exchange_byte(volatile char* at, char value) {
        char was = *at, found;
        while ((found = _InterlockedCompareExchange8(at, value, was)) != was) was = found;
        return was;
    }
    #define __atomic_load_n(at, order) ((order) == __ATOMIC_RELAXED \\
        ? (sizeof(*(at)) == 8 ? *JSYNC_8(at) : sizeof(*(at)) == 4 ? *JSYNC_4(at) \\
            : *JSYNC_1(at)) \\
        : (sizeof(*(at)) == 8 ? _InterlockedOr64(JSYNC_8(at), 0) \\
            : sizeof(*(at)) == 4 ? _InterlockedOr(JSYNC_4(at), 0) \\
            : _InterlockedOr8(JSYNC_1(at), 0)))
    #define __atomic_exchange_n(at, value, order) (sizeof(*(at)) == 8 \\
        ? _InterlockedExchange64(JSYNC_8(at), (__int64)(value)) : sizeof(*(at)) == 4 \\
        ? _InterlockedExchange(JSYNC_4(at), (long)(value)) \\
        : jsync_exchange_byte(JSYNC_1(at), (char)(value)))
    #define __atomic_store_n(at, value, order) ((void)((order) == __ATOMIC_RELAXED \\
        ? (sizeof(*(at)) == 8 ? (*JSYNC_8(at) = (__int64)(value)) \\
            : sizeof(*(at)) == 4 ? (*JSYNC_4(at) = (long)(value)) \\
            : (*JSYNC_1(at) = (char)(value))) \\
        : __atomic_exchange_n(at, value, order)))
    #define __atomic_add_fetch(at, n, order) (sizeof(*(at)) == 8 \\
        ? _InterlockedExchangeAdd64(JSYNC_8(at), (__int64)(n)) + (__int64)(n) \\
        : _InterlockedExchangeAdd(JSYNC_4(at), (long)(n)) + (long)(n))
    #define __atomic_sub_fetch(at, n, order) __atomic_add_fetch(at, -(n), order)
    #define jsync_exchange_if(at, was, value) (sizeof(*(at)) == 8 \\
        ? _InterlockedCompareExchange64(JSYNC_8(at), (__int64)(value), (__int64)(was)) \\
            == (__int64)(was) \\
        : sizeof(*(at)) == 4 \\
        ? _InterlockedCompareExchange(JSYNC_4(at), (long)(value), (long)(was)) \\
            == (long)(was) \\
        : _InterlockedCompareExchange8(JSYNC_1(at), (char)(value), (char)(was)) \\
            == (char)(was))
    #endif
    """
    const bint WINDOWS "JSYNC_WINDOWS"
    int64_t jsync_now() nogil
    int jsync_forks
    int jsync_watch_forks()
    bint jsync_finalizing() nogil
    int jsync_errno() nogil
    bint jsync_would_block(int e) nogil

    ctypedef struct pthread_mutex_t "jsync_mutex":
        pass
    int pthread_mutex_init "jsync_mutex_init"(pthread_mutex_t*, void*) nogil
    int pthread_mutex_destroy "jsync_mutex_destroy"(pthread_mutex_t*) nogil
    int pthread_mutex_lock "jsync_mutex_lock"(pthread_mutex_t*) nogil
    int pthread_mutex_unlock "jsync_mutex_unlock"(pthread_mutex_t*) nogil
    int sched_yield "jsync_yield"() nogil

    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL
    int jsync_poll(pollfd*, unsigned long, int64_t ns) nogil
    int jsync_notifier(int* fds)

    int MSG_DONTWAIT, MSG_NOSIGNAL
    ssize_t c_send "jsync_send"(int, const void*, size_t, int) nogil
    ssize_t c_recv "jsync_recv"(int, void*, size_t, int) nogil
    ssize_t c_read "jsync_read"(int, void*, size_t) nogil
    ssize_t c_write "jsync_write"(int, const void*, size_t) nogil
    int c_close "jsync_close"(int)

if jsync_watch_forks() != 0:
    raise MemoryError("pthread_atfork")

cdef int64_t NEVER = INT64_MAX


cdef int64_t deadline_after(timeout) except? -1:
    """Return the deadline that lies `timeout` seconds ahead. None is never."""
    if timeout is None:
        return NEVER
    cdef double ahead
    if type(timeout) is float and timeout == timeout:
        ahead = timeout
    else:
        ahead = check_seconds(timeout, "timeout")
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


def os_strerror(code: int) -> str:
    """Return the system's description of an error of a socket."""
    # Windows has separate numbers for sockets, which os.strerror() does not know.
    if WINDOWS and code >= 10_000:
        from ctypes import FormatError
        return FormatError(code).strip()
    return strerror(code)


def forks() -> int:
    """Return how often this process, or an ancestor since the import, was forked off."""
    return jsync_forks


def monotonic_ns() -> int:
    """Return the clock of every deadline here, in nanoseconds: `time.monotonic_ns`."""
    return jsync_now()


@cython.final
cdef class Waker:
    """Ends the I/O thread's waits: the write buffer writes to it, from any thread.

    Its descriptors are opened and closed in C, so that Ctrl-C cannot come between the
    opening of one and the object that owns it.
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
        """Close the descriptors, if they are open."""
        close_notifier(self.fds)


cdef inline void notify(int fd) noexcept nogil:
    cdef uint64_t one = 1
    # A full pipe has been written to already, and an eventfd takes eight bytes.
    c_write(fd, &one, sizeof(one))


cdef void drain_pipe(int fd) noexcept nogil:
    cdef char scratch[64]
    while c_read(fd, scratch, sizeof(scratch)) == sizeof(scratch):
        pass


cdef void close_notifier(int* fds) noexcept:
    if fds[0] >= 0:
        c_close(fds[0])
        if fds[1] != fds[0]:
            c_close(fds[1])
    fds[0] = fds[1] = -1


cdef object fresh(error):
    """Return a copy to raise: one object in many threads would grow its traceback."""
    again = copy_of(error)
    again.__cause__ = error.__cause__
    return again
