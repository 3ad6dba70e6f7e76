# Sections and atomics, which replace the GIL on a build without one, and the locks of the
# interpreter.
#
# With a GIL sections and atomics compile to nothing, or to a plain load or store.

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define JSYNC_PARALLEL 1
    typedef PyCriticalSection jsync_section;
    #define jsync_enter(section, object) PyCriticalSection_Begin((section), (object))
    #define jsync_leave(section) PyCriticalSection_End(section)
    #define jsync_load(at) __atomic_load_n((at), __ATOMIC_SEQ_CST)
    #define jsync_store(at, value) __atomic_store_n((at), (value), __ATOMIC_SEQ_CST)
    #define jsync_swap(at, value) __atomic_exchange_n((at), (value), __ATOMIC_SEQ_CST)
    #define jsync_add(at, n) __atomic_add_fetch((at), (n), __ATOMIC_SEQ_CST)
    /* Store `value` if `was` is there: whether it was. */
    #ifdef JSYNC_INTERLOCKED
    #define jsync_replace jsync_exchange_if
    #else
    #define jsync_replace(at, was, value) __extension__ ({ \\
        __typeof__(*(at)) jsync_was = (was); \\
        __atomic_compare_exchange_n((at), &jsync_was, (value), 0, \\
                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); })
    #endif
    #else
    #define JSYNC_PARALLEL 0
    typedef char jsync_section;
    #define jsync_enter(section, object) ((void)(section))
    #define jsync_leave(section) ((void)(section))
    #define jsync_load(at) (*(at))
    #define jsync_store(at, value) ((void)(*(at) = (value)))
    #ifdef JSYNC_INTERLOCKED
    #define jsync_swap(at, value) __atomic_exchange_n((at), (value), __ATOMIC_SEQ_CST)
    #else
    #define jsync_swap(at, value) __extension__ ({ \\
        __typeof__(*(at)) jsync_was = *(at); *(at) = (value); jsync_was; })
    #endif
    #define jsync_add(at, n) (*(at) += (n))
    #define jsync_replace(at, was, value) (*(at) == (was) ? (*(at) = (value), 1) : 0)
    #endif

    /* For words that other threads look at without a lock, on every build: never torn. */
    #define jsync_load_relaxed(at) __atomic_load_n((at), __ATOMIC_RELAXED)
    #define jsync_store_relaxed(at, value) __atomic_store_n((at), (value), __ATOMIC_RELAXED)

    /* An owned reference, or None; NULL with an exception. */
    static PyObject* jsync_dict_get(PyObject* dict, PyObject* key) {
        PyObject* found;
    #ifdef Py_GIL_DISABLED
        int some = PyDict_GetItemRef(dict, key, &found);
        if (some < 0) return NULL;
        if (some) return found;
    #else
        found = PyDict_GetItemWithError(dict, key);
        if (found == NULL && PyErr_Occurred()) return NULL;
        if (found != NULL) { Py_INCREF(found); return found; }
    #endif
        Py_RETURN_NONE;
    }
    """
    const bint PARALLEL "JSYNC_PARALLEL"
    ctypedef struct Section "jsync_section":
        pass
    void enter "jsync_enter"(Section*, PyObject*)
    void leave "jsync_leave"(Section*)

    int load_int "jsync_load"(int*) nogil
    void store_int "jsync_store"(int*, int) nogil
    int swap_int "jsync_swap"(int*, int) nogil
    int add_int "jsync_add"(int*, int) nogil
    bint replace_int "jsync_replace"(int*, int was, int value) nogil
    bint replace_byte "jsync_replace"(unsigned char*, int was, int value) nogil
    int load_byte "jsync_load"(unsigned char*) nogil
    void store_byte "jsync_store"(unsigned char*, int) nogil
    bint replace_ident "jsync_replace"(unsigned long*, unsigned long, unsigned long) nogil
    unsigned long load_ident "jsync_load"(unsigned long*) nogil
    void store_ident "jsync_store"(unsigned long*, unsigned long) nogil
    uint64_t load_number "jsync_load"(uint64_t*) nogil
    uint64_t add_number "jsync_add"(uint64_t*, uint64_t) nogil
    size_t swap_size "jsync_swap"(size_t*, size_t) nogil
    size_t add_size "jsync_add"(size_t*, size_t) nogil

    int load_int_relaxed "jsync_load_relaxed"(int*) nogil
    Py_ssize_t load_count_relaxed "jsync_load_relaxed"(Py_ssize_t*) nogil
    size_t load_size_relaxed "jsync_load_relaxed"(size_t*) nogil
    uint64_t load_number_relaxed "jsync_load_relaxed"(uint64_t*) nogil
    int64_t load_time_relaxed "jsync_load_relaxed"(int64_t*) nogil
    void store_int_relaxed "jsync_store_relaxed"(int*, int) nogil
    void store_count_relaxed "jsync_store_relaxed"(Py_ssize_t*, Py_ssize_t) nogil
    void store_size_relaxed "jsync_store_relaxed"(size_t*, size_t) nogil
    void store_number_relaxed "jsync_store_relaxed"(uint64_t*, uint64_t) nogil
    void store_time_relaxed "jsync_store_relaxed"(int64_t*, int64_t) nogil

    object dict_get "jsync_dict_get"(dict, object key)

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
