# Columns in the Arrow C data interface, through the PyCapsule interface.
# https://arrow.apache.org/docs/format/CDataInterface.html
#
# An exported array refers only to its chunk. Releasing it needs no GIL, and a part taken
# out of it, such as a child, stays valid when the whole is released.

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New

cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    #define ARROW_FLAG_DICTIONARY_ORDERED 1
    #define ARROW_FLAG_NULLABLE 2
    #define ARROW_FLAG_MAP_KEYS_SORTED 4
    struct ArrowSchema {
        const char* format;
        const char* name;
        const char* metadata;
        int64_t flags;
        int64_t n_children;
        struct ArrowSchema** children;
        struct ArrowSchema* dictionary;
        void (*release)(struct ArrowSchema*);
        void* private_data;
    };
    struct ArrowArray {
        int64_t length;
        int64_t null_count;
        int64_t offset;
        int64_t n_buffers;
        int64_t n_children;
        const void** buffers;
        struct ArrowArray** children;
        struct ArrowArray* dictionary;
        void (*release)(struct ArrowArray*);
        void* private_data;
    };
    #endif
    #ifndef ARROW_C_STREAM_INTERFACE
    #define ARROW_C_STREAM_INTERFACE
    struct ArrowArrayStream {
        int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema*);
        int (*get_next)(struct ArrowArrayStream*, struct ArrowArray*);
        const char* (*get_last_error)(struct ArrowArrayStream*);
        void (*release)(struct ArrowArrayStream*);
        void* private_data;
    };
    #endif
    """
    int ARROW_FLAG_NULLABLE
    struct ArrowSchema:
        const char* format
        const char* name
        const char* metadata
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept nogil
        void* private_data
    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data
    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil
        void* private_data

cdef enum:
    MAX_BUFFERS = 3
    MAX_CHILDREN = 5

cdef struct SchemaRoom:  # the memory that a schema owns
    ArrowSchema children[MAX_CHILDREN]
    ArrowSchema* pointers[MAX_CHILDREN]

cdef struct ArrayRoom:
    ColumnChunk* chunk
    const void* buffers[MAX_BUFFERS]
    ArrowArray children[MAX_CHILDREN]
    ArrowArray* pointers[MAX_CHILDREN]


# Schemas -------------------------------------------------------------------------------

cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release != NULL:
            schema.children[i].release(schema.children[i])
    PyMem_RawFree(schema.private_data)
    schema.release = NULL


cdef bint make_schema(
    ArrowSchema* out, const char* format, const char* name, bint nullable, int children
) noexcept nogil:
    """Make a schema with empty children, which the caller makes next."""
    cdef SchemaRoom* room = NULL
    cdef int i
    memset(out, 0, sizeof(ArrowSchema))
    if children:
        room = <SchemaRoom*>PyMem_RawCalloc(1, sizeof(SchemaRoom))
        if room == NULL:
            return False
        for i in range(children):
            room.pointers[i] = &room.children[i]
        out.children = room.pointers
    out.format = format
    out.name = name
    out.flags = ARROW_FLAG_NULLABLE if nullable else 0
    out.n_children = children
    out.private_data = room
    out.release = release_schema
    return True


cdef bint make_column_schema(ArrowSchema* out, int column) noexcept nogil:
    if column == SUBJECTS:
        return make_schema(out, b"u", b"subject", False, 0)
    if column == PAYLOADS:
        return make_schema(out, b"z", b"data", False, 0)
    if column == SEQUENCES:
        return make_schema(out, b"L", b"sequence", False, 0)
    if column == TIMESTAMPS:
        return make_schema(out, b"tsn:UTC", b"timestamp", False, 0)
    return (
        make_schema(out, b"+m", b"headers", True, 1)
        and make_schema(out.children[0], b"+s", b"entries", False, 2)
        and make_schema(out.children[0].children[0], b"u", b"key", False, 0)
        and make_schema(out.children[0].children[1], b"+l", b"value", False, 1)
        and make_schema(
            out.children[0].children[1].children[0], b"u", b"item", False, 0
        )
    )


cdef bint make_batch_schema(ArrowSchema* out, ColumnLayout* shape) noexcept nogil:
    cdef int i
    if not make_schema(out, b"+s", b"", False, shape.width):
        return False
    for i in range(shape.width):
        if not make_column_schema(out.children[i], shape.column[i]):
            release_schema(out)
            return False
    return True


# Arrays --------------------------------------------------------------------------------

cdef const char* NOTHING_THERE = b"\0\0\0\0\0\0\0"  # where a buffer has no bytes


cdef void release_array(ArrowArray* array) noexcept nogil:
    cdef ArrayRoom* room = <ArrayRoom*>array.private_data
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
    chunk_unref(room.chunk)
    PyMem_RawFree(room)
    array.release = NULL


cdef bint make_array(
    ArrowArray* out, ColumnChunk* chunk, int64_t length, int children, int buffers,
    const void* first, const void* second, const void* third,
) noexcept nogil:
    """Make an array with empty children, which the caller makes next."""
    cdef ArrayRoom* room = <ArrayRoom*>PyMem_RawCalloc(1, sizeof(ArrayRoom))
    cdef int i
    memset(out, 0, sizeof(ArrowArray))
    if room == NULL:
        return False
    jsync_hold(&chunk.holders)
    room.chunk = chunk
    room.buffers[0] = first
    room.buffers[1] = second if second != NULL or buffers < 2 else NOTHING_THERE
    room.buffers[2] = third if third != NULL or buffers < 3 else NOTHING_THERE
    for i in range(children):
        room.pointers[i] = &room.children[i]
    out.length = length
    out.n_buffers = buffers
    out.n_children = children
    out.buffers = room.buffers
    out.children = room.pointers
    out.private_data = room
    out.release = release_array
    return True


cdef bint make_values(
    ArrowArray* out, ColumnChunk* chunk, int64_t length, ValueBuffer* values
) noexcept nogil:
    return make_array(out, chunk, length, 0, 3, NULL, values.ends, values.bytes)


cdef bint make_headers(ArrowArray* out, ColumnChunk* chunk) noexcept nogil:
    cdef ArrowArray* entries
    cdef ArrowArray* lists
    if not make_array(
        out, chunk, chunk.rows, 1, 2, chunk.has_headers, chunk.entry_ends, NULL
    ):
        return False
    out.null_count = chunk.without_headers
    entries = out.children[0]
    if not make_array(entries, chunk, chunk.entries, 2, 1, NULL, NULL, NULL):
        return False
    lists = entries.children[1]
    return (
        make_values(entries.children[0], chunk, chunk.entries, &chunk.names)
        and make_array(lists, chunk, chunk.entries, 1, 2, NULL, chunk.value_ends, NULL)
        and make_values(lists.children[0], chunk, chunk.value_count, &chunk.values)
    )


cdef bint make_column(ArrowArray* out, ColumnChunk* chunk, int column) noexcept nogil:
    if column == SUBJECTS:
        return make_values(out, chunk, chunk.rows, &chunk.subjects)
    if column == PAYLOADS:
        return make_values(out, chunk, chunk.rows, &chunk.payloads)
    if column == SEQUENCES:
        return make_array(out, chunk, chunk.rows, 0, 2, NULL, chunk.sequences, NULL)
    if column == TIMESTAMPS:
        return make_array(out, chunk, chunk.rows, 0, 2, NULL, chunk.timestamps, NULL)
    return make_headers(out, chunk)


cdef bint make_batch(
    ArrowArray* out, ColumnChunk* chunk, ColumnLayout* shape
) noexcept nogil:
    cdef int i
    if not make_array(out, chunk, chunk.rows, shape.width, 1, NULL, NULL, NULL):
        return False
    for i in range(shape.width):
        if not make_column(out.children[i], chunk, shape.column[i]):
            release_array(out)
            return False
    return True


# Capsules ------------------------------------------------------------------------------

cdef void drop_schema(object capsule) noexcept:
    cdef ArrowSchema* schema
    schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    PyMem_RawFree(schema)


cdef void drop_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    PyMem_RawFree(array)


cdef object schema_capsule(ColumnLayout* shape):
    cdef ArrowSchema* schema = <ArrowSchema*>PyMem_RawCalloc(1, sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError
    if not make_batch_schema(schema, shape):
        PyMem_RawFree(schema)
        raise MemoryError
    return PyCapsule_New(schema, "arrow_schema", drop_schema)


cdef object array_capsule(ColumnChunk* chunk, ColumnLayout* shape):
    cdef ArrowArray* array = <ArrowArray*>PyMem_RawCalloc(1, sizeof(ArrowArray))
    if array == NULL:
        raise MemoryError
    if not make_batch(array, chunk, shape):
        PyMem_RawFree(array)
        raise MemoryError
    return PyCapsule_New(array, "arrow_array", drop_array)


# Record batches -------------------------------------------------------------------------

@cython.internal
@cython.no_gc
cdef class ChunkList:
    """Chunks, each of which is exported as a record batch."""

    cdef ColumnChunk* first

    def __dealloc__(self):
        cdef ColumnChunk* chunk
        while self.first != NULL:
            chunk = self.first
            self.first = chunk.next
            chunk_unref(chunk)
