# Blocks of frames that wait to be sent, and how a publish is written into one.

cdef enum:
    VIEW_BYTES = 4096  # to copy fewer costs less than a view

# Consecutive frames of one kind. A resendable frame that was not sent whole when the
# connection broke is retried on the next one. Any other would come late, and is dropped.
cdef struct FrameRun:
    size_t end
    bint resendable

cdef struct FrameBuffer:
    char* data
    size_t size
    size_t capacity
    FrameRun* runs
    size_t run_count
    size_t run_capacity


cdef char* frames_reserve(FrameBuffer* frames, size_t size, bint resendable) noexcept nogil:
    """Add room for a frame of `size` bytes at the end. Return NULL without memory."""
    cdef size_t capacity
    cdef void* resized
    if frames.size + size > frames.capacity:
        capacity = frames.capacity * 2 if frames.capacity else 64 * 1024
        while capacity < frames.size + size:
            capacity *= 2
        resized = PyMem_RawRealloc(frames.data, capacity)
        if resized == NULL:
            return NULL
        frames.data = <char*>resized
        frames.capacity = capacity
    if frames.run_count == 0 or frames.runs[frames.run_count - 1].resendable != resendable:
        if frames.run_count == frames.run_capacity:
            capacity = frames.run_capacity * 2 if frames.run_capacity else 16
            resized = PyMem_RawRealloc(frames.runs, capacity * sizeof(FrameRun))
            if resized == NULL:
                return NULL
            frames.runs = <FrameRun*>resized
            frames.run_capacity = capacity
        frames.runs[frames.run_count].resendable = resendable
        frames.run_count += 1
    frames.size += size
    frames.runs[frames.run_count - 1].end = frames.size
    return frames.data + frames.size - size


cdef void frames_shrink(FrameBuffer* frames, size_t size) noexcept nogil:
    """Remove the `size` bytes of room that `frames_reserve` added last."""
    frames.size -= size
    frames.runs[frames.run_count - 1].end = frames.size


cdef void frames_free(FrameBuffer* frames) noexcept nogil:
    PyMem_RawFree(frames.data)
    PyMem_RawFree(frames.runs)
    frames.data = NULL
    frames.runs = NULL
    frames.size = frames.capacity = frames.run_count = frames.run_capacity = 0


cdef size_t resendable_bytes(const FrameBuffer* frames, size_t begin) noexcept nogil:
    """Return the number of bytes of resendable frames from `begin` on."""
    cdef size_t i, at = begin, count = 0
    for i in range(frames.run_count):
        if frames.runs[i].end > at:
            if frames.runs[i].resendable:
                count += frames.runs[i].end - at
            at = frames.runs[i].end
    return count


cdef size_t frame_line(const char* s, size_t n, uint64_t* payload) noexcept nogil:
    """Return the size of the first line of the frame of ours that begins at `s`.

    `payload` becomes the size of headers and payload behind it, 0 unless it is a publish.
    """
    cdef const char* end = <const char*>memchr(s, c"\n", n)
    cdef const char* digits
    payload[0] = 0
    if end == NULL:
        return n
    if s[0] == c"H" or (s[0] == c"P" and s[1] == c"U"):  # HPUB or PUB
        digits = end - 1
        while (digits - 1)[0] != c" ":
            digits -= 1
        parse_number(digits, end - 1 - digits, payload)
    return end - s + 1


cdef size_t frame_size(const char* s, size_t n) noexcept nogil:
    """Return the size of the frame of ours that begins at `s`."""
    cdef uint64_t payload
    cdef size_t line = frame_line(s, n, &payload)
    if s[0] == c"H" or (s[0] == c"P" and s[1] == c"U"):
        return min(n, line + payload + 2)
    return line


cdef bint copy_fitting(FrameBuffer* frames, FrameBuffer* kept, size_t most) noexcept nogil:
    """Copy all frames but resendable ones above `most` bytes. False without memory."""
    cdef size_t i, size, at = 0
    cdef uint64_t payload
    cdef bint resendable
    cdef char* room
    for i in range(frames.run_count):
        resendable = frames.runs[i].resendable
        while at < frames.runs[i].end:
            size = frames.runs[i].end - at
            if resendable:
                frame_line(frames.data + at, size, &payload)
                size = frame_size(frames.data + at, size)
            if not resendable or payload <= most:
                room = frames_reserve(kept, size, resendable)
                if room == NULL:
                    return False
                memcpy(room, frames.data + at, size)
            at += size
    return True


cdef list frames_beyond(FrameBuffer* frames, size_t most):
    """Return subject and size of each resendable frame that `copy_fitting` leaves out."""
    cdef list found = []
    cdef size_t i, at = 0, size
    cdef uint64_t payload
    cdef const char* subject
    cdef const char* end
    for i in range(frames.run_count):
        while at < frames.runs[i].end:
            size = frames.runs[i].end - at
            if frames.runs[i].resendable:
                frame_line(frames.data + at, size, &payload)
                if payload > most:
                    subject = <const char*>memchr(frames.data + at, c" ", size) + 1
                    end = <const char*>memchr(subject, c" ", size)
                    found.append((decode_text(subject, end - subject), payload))
                size = frame_size(frames.data + at, size)
            at += size
    return found


cdef inline char* put(char* out, const char* data, Py_ssize_t size) noexcept nogil:
    if size:  # C leaves a copy from NULL undefined, even a copy of no bytes
        memcpy(out, data, size)
    return out + size


cdef inline size_t digits_of(uint64_t number) noexcept nogil:
    cdef size_t n = 1
    while number >= 10:
        number //= 10
        n += 1
    return n


# A message as it is published: a PUB, or an HPUB if it has a header block.
cdef struct PublishFrame:
    const char* subject
    const char* reply   # NULL: none
    uint64_t number     # follows `reply` unless it is 0, and `ending` comes behind it
    const char* ending
    const char* block   # NULL: none
    const char* data
    size_t subject_size, reply_size, ending_size, block_size, data_size


cdef inline void publish_to(
    PublishFrame* frame, const char* subject, size_t subject_size
) noexcept nogil:
    """Describe a message to `subject` without content."""
    frame.subject = subject
    frame.subject_size = subject_size
    frame.reply = frame.ending = frame.block = frame.data = NULL
    frame.reply_size = frame.ending_size = frame.block_size = frame.data_size = 0
    frame.number = 0


cdef inline void publish_bytes(PublishFrame* frame, bytes block, bytes data) noexcept:
    """Set the payload, and the header block if any. The caller keeps both alive."""
    if block is not None:
        frame.block = PyBytes_AS_STRING(block)
        frame.block_size = PyBytes_GET_SIZE(block)
    frame.data = PyBytes_AS_STRING(data)
    frame.data_size = PyBytes_GET_SIZE(data)


cdef int check_buffer(object data) except -1:
    cdef str advice = ""
    if not PyObject_CheckBuffer(data):
        if isinstance(data, str):
            advice = ": encode it first"
        elif isinstance(data, (dict, list)):
            advice = ": encode it first, as in json.dumps(data).encode()"
        raise TypeError(
            f"data must be bytes, bytearray or memoryview, not {type(data).__name__}"
            + advice
        )
    return 0


cdef bytes payload_bytes(object data):
    """Return a copy of a payload that is not `bytes`."""
    cdef Py_buffer view
    check_buffer(data)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return PyBytes_FromStringAndSize(<const char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


# A payload that waits for its ack is `bytes`, or a view of `bytes`, so that a part of a
# large file need not be copied.

cdef object lasting_payload(object data):
    """Return a payload that cannot change while it waits: a copy, unless it is of bytes."""
    cdef Py_buffer* view
    if PyMemoryView_Check(data):
        data = PyMemoryView_FromObject(data)  # the caller may release the other
        view = PyMemoryView_GET_BUFFER(data)
        if (
            view.len >= VIEW_BYTES and <void*>view.obj != NULL
            and PyBytes_CheckExact(view.obj) and PyBuffer_IsContiguous(view, b"C")
        ):
            return data
    return PyBytes_FromObject(data)


cdef inline size_t payload_length(object data) noexcept:
    """Return the number of bytes of a `lasting_payload`."""
    if PyBytes_CheckExact(data):
        return PyBytes_GET_SIZE(data)
    return PyMemoryView_GET_BUFFER(data).len


cdef inline void publish_payload(PublishFrame* frame, bytes block, object data) noexcept:
    """Do what `publish_bytes` does, with a `lasting_payload`."""
    if PyBytes_CheckExact(data):
        publish_bytes(frame, block, <bytes>data)
        return
    publish_bytes(frame, block, b"")
    frame.data = <const char*>PyMemoryView_GET_BUFFER(data).buf
    frame.data_size = PyMemoryView_GET_BUFFER(data).len


cdef inline size_t publish_size(const PublishFrame* frame) noexcept nogil:
    """Return the number of bytes that `put_publish` writes."""
    cdef size_t content = frame.block_size + frame.data_size
    cdef size_t size = frame.subject_size + digits_of(content) + content + 9
    if frame.reply != NULL:
        size += frame.reply_size + frame.ending_size + 1
        if frame.number:
            size += digits_of(frame.number)
    if frame.block != NULL:
        size += digits_of(frame.block_size) + 2
    return size


cdef char* put_publish(char* out, const PublishFrame* frame) noexcept nogil:
    """Write `PUB subject [reply] size`, or HPUB, and the content. Return where it ends."""
    if frame.block != NULL:
        out = put(out, b"HPUB ", 5)
    else:
        out = put(out, b"PUB ", 4)
    out = put(out, frame.subject, frame.subject_size)
    out = put(out, b" ", 1)
    if frame.reply != NULL:
        out = put(out, frame.reply, frame.reply_size)
        if frame.number:
            out = write_number(out, frame.number)
        out = put(out, frame.ending, frame.ending_size)
        out = put(out, b" ", 1)
    if frame.block != NULL:
        out = write_number(out, frame.block_size)
        out = put(out, b" ", 1)
    out = write_number(out, frame.block_size + frame.data_size)
    out = put(out, b"\r\n", 2)
    if frame.block != NULL:
        out = put(out, frame.block, frame.block_size)
    out = put(out, frame.data, frame.data_size)
    return put(out, b"\r\n", 2)
