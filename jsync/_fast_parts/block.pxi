# Blocks of frames that wait to be sent, and how a publish is written into one.

# Frames in a row of one kind. A lasting frame that was not sent whole when the connection
# broke is sent again on the next one; any other would come late, and is dropped there.
cdef struct Run:
    size_t end
    bint lasting

cdef struct Block:
    char* data
    size_t size
    size_t capacity
    Run* runs
    size_t run_count
    size_t run_capacity


cdef char* block_room(Block* block, size_t size, bint lasting) noexcept nogil:
    """Room for a frame of `size` bytes at the end, already counted in; NULL: no memory."""
    cdef size_t capacity
    cdef void* grown
    if block.size + size > block.capacity:
        capacity = block.capacity * 2 if block.capacity else 64 * 1024
        while capacity < block.size + size:
            capacity *= 2
        grown = PyMem_RawRealloc(block.data, capacity)
        if grown == NULL:
            return NULL
        block.data = <char*>grown
        block.capacity = capacity
    if block.run_count == 0 or block.runs[block.run_count - 1].lasting != lasting:
        if block.run_count == block.run_capacity:
            capacity = block.run_capacity * 2 if block.run_capacity else 16
            grown = PyMem_RawRealloc(block.runs, capacity * sizeof(Run))
            if grown == NULL:
                return NULL
            block.runs = <Run*>grown
            block.run_capacity = capacity
        block.runs[block.run_count].lasting = lasting
        block.run_count += 1
    block.size += size
    block.runs[block.run_count - 1].end = block.size
    return block.data + block.size - size


cdef void block_shrink(Block* block, size_t size) noexcept nogil:
    """Take back the room that `block_room` gave last."""
    block.size -= size
    block.runs[block.run_count - 1].end = block.size


cdef void block_free(Block* block) noexcept nogil:
    PyMem_RawFree(block.data)
    PyMem_RawFree(block.runs)
    block.data = NULL
    block.runs = NULL
    block.size = block.capacity = block.run_count = block.run_capacity = 0


cdef size_t frame_size(const char* s, size_t n) noexcept nogil:
    """The size of the frame of ours that begins at `s`."""
    cdef const char* end = <const char*>memchr(s, 10, n)
    cdef const char* digits
    cdef uint64_t payload = 0
    cdef size_t line
    if end == NULL:
        return n
    line = end - s + 1
    if s[0] != 80 and s[0] != 72:  # neither PUB nor HPUB
        return line
    if s[0] == 80 and s[1] != 85:  # PING, PONG
        return line
    digits = end - 1
    while (digits - 1)[0] != 32:
        digits -= 1
    parse_number(digits, end - 1 - digits, &payload)
    return line + payload + 2


cdef inline char* put(char* out, const char* data, Py_ssize_t size) noexcept nogil:
    if size:  # C leaves a copy from NULL undefined, even a copy of no bytes
        memcpy(out, data, size)
    return out + size


cdef inline size_t put_sizes(
    char* line, bint with_headers, Py_ssize_t block_size, Py_ssize_t size
) noexcept nogil:
    """The numbers and the end of a control line, at most 44 bytes."""
    cdef char* p = line
    if with_headers:
        p = write_number(p, block_size)
        p[0] = 32
        p += 1
    p = write_number(p, block_size + size)
    p[0] = 13
    p[1] = 10
    return p + 2 - line


cdef void put_publish(
    char* out, const char* subject, Py_ssize_t subject_size,
    const char* reply, Py_ssize_t reply_size, const char* line, Py_ssize_t line_size,
    const char* block, Py_ssize_t block_size, const char* data, Py_ssize_t size,
) noexcept nogil:
    if block != NULL:
        out = put(out, b"HPUB ", 5)
    else:
        out = put(out, b"PUB ", 4)
    out = put(out, subject, subject_size)
    out = put(out, b" ", 1)
    if reply != NULL:
        out = put(out, reply, reply_size)
        out = put(out, b" ", 1)
    out = put(out, line, line_size)
    if block != NULL:
        out = put(out, block, block_size)
    out = put(out, data, size)
    put(out, b"\r\n", 2)
