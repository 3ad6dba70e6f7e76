# WebSocket frames (RFC 6455). Ours are masked on their way to the socket. The server's are
# taken off where they are in the buffer of the parser.
#
# A frame is not a message of NATS: it begins and ends anywhere in the stream.

cdef extern from *:
    """
    /* `out` may be `in`. The key is taken as it stands in memory. */
    static void jsync_mask(char* out, const char* in, size_t n, uint32_t key) {
        uint64_t wide = (uint64_t)key << 32 | key, word;
        size_t i = 0;
        for (; i + 8 <= n; i += 8) {
            memcpy(&word, in + i, 8);
            word ^= wide;
            memcpy(out + i, &word, 8);
        }
        for (; i < n; i++)
            out[i] = (char)(in[i] ^ ((const char*)&key)[i & 3]);
    }

    /* SipHash-2-4 of one number. Nobody can tell the next mask from those before, as
       RFC 6455 demands, and none costs a system call. */
    #define JSYNC_TURN(x, n) ((x) << (n) | (x) >> (64 - (n)))
    #define JSYNC_SIP \\
        a += b; b = JSYNC_TURN(b, 13) ^ a; a = JSYNC_TURN(a, 32); \\
        c += d; d = JSYNC_TURN(d, 16) ^ c; \\
        a += d; d = JSYNC_TURN(d, 21) ^ a; \\
        c += b; b = JSYNC_TURN(b, 17) ^ c; c = JSYNC_TURN(c, 32);
    static uint64_t jsync_sip(const uint64_t key[2], uint64_t number) {
        uint64_t a = key[0] ^ 0x736f6d6570736575u, b = key[1] ^ 0x646f72616e646f6du;
        uint64_t c = key[0] ^ 0x6c7967656e657261u, d = key[1] ^ 0x7465646279746573u;
        const uint64_t last = (uint64_t)8 << 56;
        d ^= number; JSYNC_SIP JSYNC_SIP a ^= number;
        d ^= last; JSYNC_SIP JSYNC_SIP a ^= last;
        c ^= 0xff; JSYNC_SIP JSYNC_SIP JSYNC_SIP JSYNC_SIP
        return a ^ b ^ c ^ d;
    }
    """
    void jsync_mask(char*, const char*, size_t, uint32_t) nogil
    uint64_t jsync_sip(const uint64_t* key, uint64_t number) nogil

cdef enum:
    MAX_HEAD = 14  # bytes in front of a payload: 2, a long length, a mask
    MAX_CONTROL = 125
    FRAME_BYTES = 256 * 1024 - MAX_HEAD  # of ours, so that one system call sends it
    FINAL_BIT = 0x80
    COMPRESSED_BIT = 0x40
    UNKNOWN_BITS = 0x30
    MASK_BIT = 0x80
    SHORT_LENGTH = 126
    LONG_LENGTH = 127

cdef enum Opcode:
    CONTINUED = 0
    TEXT = 1
    BINARY = 2
    CLOSING = 8
    PINGED = 9
    PONGED = 10

# Our frames, on their way out. The bytes of NATS stay where they are until they have been
# sent, so that their content is known. A frame is a copy of some of them.
cdef struct WebSocketState:
    bint on, masked
    char* data
    size_t capacity, size
    size_t sent     # bytes of `data` that the socket has taken
    size_t head     # bytes of `data` that are not of NATS
    size_t counted  # bytes of NATS among those sent
    unsigned char control[139]  # a whole control frame, which goes before the next frame
    size_t control_size
    uint64_t key[2]
    uint64_t count  # masks so far


cdef size_t put_head(
    WebSocketState* wire, unsigned char* out, int first, uint64_t size, uint32_t* key
) noexcept nogil:
    """Write the head in front of a payload of `size` bytes. Return its length."""
    cdef size_t n = 2
    cdef int i
    out[0] = FINAL_BIT | first
    if size < SHORT_LENGTH:
        out[1] = <unsigned char>size
    elif size < 1 << 16:
        out[1] = SHORT_LENGTH
        n = 4
    else:
        out[1] = LONG_LENGTH
        n = 10
    for i in range(2, <int>n):
        out[i] = <unsigned char>(size >> (8 * (n - 1 - i)))
    key[0] = 0
    if wire.masked:
        out[1] |= MASK_BIT
        wire.count += 1
        key[0] = <uint32_t>jsync_sip(wire.key, wire.count)
        memcpy(out + n, key, 4)
        n += 4
    return n


cdef size_t put_frame(
    WebSocketState* wire, unsigned char* out, int first, const char* data, size_t size
) noexcept nogil:
    """Write a whole frame, for which there is room. Return its length."""
    cdef uint32_t key = 0
    cdef size_t n = put_head(wire, out, first, size, &key)
    jsync_mask(<char*>out + n, data, size, key)
    return n + size


cdef bint wire_fill(WebSocketState* wire, const char* data, size_t size) noexcept nogil:
    """Make the next frame, of up to `size` bytes. Return False without memory."""
    cdef size_t n = min(size, <size_t>FRAME_BYTES), capacity
    cdef void* resized
    if wire.capacity < n + MAX_HEAD:
        capacity = wire.capacity if wire.capacity else 4096
        while capacity < n + MAX_HEAD:
            capacity *= 2
        resized = PyMem_RawRealloc(wire.data, capacity)
        if resized == NULL:
            return False
        wire.data = <char*>resized
        wire.capacity = capacity
    wire.size = put_frame(wire, <unsigned char*>wire.data, BINARY, data, n)
    wire.head = wire.size - n
    wire.sent = wire.counted = 0
    return True


cdef bint wire_control(WebSocketState* wire) noexcept nogil:
    """Make the waiting control frame the next one. Return False if there is none."""
    cdef void* resized
    if wire.control_size == 0:
        return False
    if wire.capacity < sizeof(wire.control):
        resized = PyMem_RawRealloc(wire.data, 4096)
        if resized == NULL:
            return False  # tried again for the next frame
        wire.data = <char*>resized
        wire.capacity = 4096
    memcpy(wire.data, wire.control, wire.control_size)
    wire.size = wire.head = wire.control_size
    wire.sent = wire.counted = wire.control_size = 0
    return True


cdef void wire_queue_control(
    WebSocketState* wire, int opcode, const char* data, size_t size
) noexcept nogil:
    """Have a control frame sent next, in place of one whose sending has not begun.

    Only the last PING needs a PONG, and nothing follows a CLOSE frame.
    """
    if wire.control_size == 0 or (wire.control[0] & 15) != CLOSING:
        wire.control_size = put_frame(wire, wire.control, opcode, data, size)


cdef void wire_reset(WebSocketState* wire) noexcept nogil:
    """Forget what has not been sent."""
    wire.size = wire.sent = wire.head = wire.counted = wire.control_size = 0


# Frames of the server as they come, cut anywhere.
cdef struct Frames:
    bint on
    unsigned char head[10]
    int head_size
    bint inside      # the head is whole, and `left` bytes of the payload are missing
    uint64_t left
    int opcode
    bint final
    bint message     # a data frame has come that was not the last one
    bint compressed  # that message is compressed
    bint closed
    char control[MAX_CONTROL]
    int control_size
    const char* fault


cdef size_t frames_head(Frames* frames, const char* s, size_t n, bint inflates) noexcept:
    """Take bytes of a head, and return how many. A wrong head sets `fault`."""
    cdef size_t taken = 0, size = 2
    cdef int length = 0, i, first
    while True:
        if frames.head_size >= 2:
            length = frames.head[1] & 127
            size = 4 if length == SHORT_LENGTH else 10 if length == LONG_LENGTH else 2
            if <size_t>frames.head_size == size:
                break
        if taken == n:
            return taken
        frames.head[frames.head_size] = s[taken]
        frames.head_size += 1
        taken += 1
    first = frames.head[0]
    frames.left = 0
    if size == 2:
        frames.left = length
    else:
        for i in range(2, <int>size):
            frames.left = frames.left << 8 | frames.head[i]
    frames.head_size = 0
    frames.inside = True
    frames.opcode = first & 15
    frames.final = first & FINAL_BIT
    frames.fault = frames_fault(frames, first, inflates)
    return taken


cdef const char* frames_fault(Frames* frames, int first, bint inflates) noexcept:
    """Begin the frame whose head has come. Return what is wrong with it, or NULL."""
    cdef bint compressed = (first & COMPRESSED_BIT) != 0
    if frames.head[1] & MASK_BIT:
        return b"a frame of the server is masked"
    if first & UNKNOWN_BITS:
        return b"a frame has bits of an unknown extension"
    if frames.left >> 63:
        return b"a frame is longer than a frame can be"
    if frames.opcode >= CLOSING:
        if frames.opcode > PONGED:
            return b"a frame of an unknown kind"
        if not frames.final or frames.left > MAX_CONTROL or compressed:
            return b"a control frame is too long, fragmented or compressed"
        frames.control_size = 0
        return NULL
    if frames.opcode == CONTINUED:
        if not frames.message or compressed:
            return b"a frame continues a message that has not begun"
    elif frames.opcode > BINARY:
        return b"a frame of an unknown kind"
    elif frames.message:
        return b"a message begins inside another one"
    else:
        if compressed and not inflates:
            return b"a compressed frame, and no compression was agreed on"
        frames.compressed = compressed
    frames.message = not frames.final
    return NULL
