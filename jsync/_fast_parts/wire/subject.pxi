# The rules of subjects, and numbers as NATS writes them.

from cpython.unicode cimport PyUnicode_AsUTF8AndSize

# A server closes a connection that sends more than 4096 bytes of subject, reply, queue
# and numbers in one command: its max_control_line, which it does not announce.
cdef enum:
    MAX_SUBJECT = 4000  # leaves room for an inbox of ours
    MAX_SUBJECTS = 4040  # of one command, without the numbers
    DELETE = 127  # not printable, like the characters up to the space


cdef const char* utf8(object text, Py_ssize_t* size) except NULL:
    """Return the UTF-8 of a subject. Raises an error for lone surrogates."""
    if not isinstance(text, str):
        raise TypeError(f"a subject is a str, not {type(text).__name__}")
    try:
        return PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError:
        raise InvalidSubjectError(f"subject {text!r} is not valid Unicode") from None


cdef inline int subject_fault(
    const char* s, Py_ssize_t n, bint wildcards
) noexcept nogil:
    """Return which rule of NATS subjects `s` breaks, or 0."""
    cdef Py_ssize_t i, token = 0  # where the token began
    cdef unsigned char c
    if n == 0:
        return 1
    if n > MAX_SUBJECT:
        return 6
    for i in range(n):
        c = <unsigned char>s[i]
        if c == c".":
            if i == token:
                return 2
            token = i + 1
        elif c <= c" " or c == DELETE:
            return 3
        elif c == c"*" or c == c">":
            # A wildcard is a whole token, ">" the last one. Elsewhere it is a letter to the
            # server, but one that no subscription can tell from a wildcard.
            if not wildcards:
                return 4
            if i != token or (i + 1 < n and (c == c">" or s[i + 1] != c".")):
                return 5
    if token == n:
        return 2
    return 0


cdef int refuse_subject(object subject, int fault) except -1:
    why = (
        "is empty",
        "has an empty token: no leading, trailing or doubled '.'",
        "has white space or a control character",
        "has a wildcard: '*' and '>' are for subscriptions",
        "has a misplaced wildcard: '*' stands for a whole token, '>' for the last ones",
        f"is longer than {MAX_SUBJECT} bytes: servers would close the connection",
    )[fault - 1]
    raise InvalidSubjectError(f"subject {subject!r:.200} {why}")


cdef inline int check_together(Py_ssize_t subject, Py_ssize_t other) except -1:
    """Check that the parts of one command are short enough for it."""
    if subject + other > MAX_SUBJECTS:
        raise InvalidSubjectError(
            f"{subject + other} bytes of subject and reply or queue are more than "
            f"{MAX_SUBJECTS}: servers would close the connection"
        )
    return 0


cdef const char* publish_subject(object subject, Py_ssize_t* size) except NULL:
    cdef const char* s = utf8(subject, size)
    cdef int fault = subject_fault(s, size[0], False)
    if fault:
        refuse_subject(subject, fault)
    return s


# Annotations are not enforced where a subclass of str may come, such as a StrEnum.
@cython.annotation_typing(False)
def check_publish_subject(subject: str) -> None:
    cdef Py_ssize_t size = 0
    publish_subject(subject, &size)


@cython.annotation_typing(False)
def check_subscribe_subject(subject: str, queue: str | None = None) -> None:
    cdef Py_ssize_t size = subscribe_subject(subject)
    if queue is not None:
        check_together(size, subscribe_subject(queue))


cdef Py_ssize_t subscribe_subject(object subject) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* s = utf8(subject, &size)
    cdef int fault = subject_fault(s, size, True)
    if fault:
        refuse_subject(subject, fault)
    return size


cdef inline bint parse_number(
    const char* s, Py_ssize_t n, uint64_t* number
) noexcept nogil:
    """Read decimal digits alone, at most 2**64 - 1. Return False for any other text."""
    cdef Py_ssize_t i
    cdef uint64_t value = 0, digit
    if n == 0 or n > 20:
        return False
    for i in range(n):
        digit = <uint64_t><unsigned char>s[i] - c"0"
        # Nineteen digits always fit.
        if digit > 9 or (i == 19 and value > (UINT64_MAX - digit) // 10):
            return False
        value = value * 10 + digit
    number[0] = value
    return True


cdef inline char* write_number(char* out, uint64_t number) noexcept nogil:
    """Write decimal digits and return where they end."""
    cdef char digits[20]
    cdef int n = 0
    while True:
        digits[n] = <char>(c"0" + number % 10)
        n += 1
        number //= 10
        if number == 0:
            break
    while n:
        n -= 1
        out[0] = digits[n]
        out += 1
    return out
