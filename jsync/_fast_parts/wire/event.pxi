# Events that the parser and the I/O loop report to the session: `(Event, value)`.
#
# A message without a subscription is not an Event but the plain string `MSG`, because the
# collector does not track tuples of strings and messages, which cannot be in a cycle.


class Event(StrEnum):
    """Something that has come or has happened, which is reported together with a value.

    A frame of the server:

    - `INFO`: bytes, the JSON text,
    - `ERR`: str, the words of -ERR without quotes,
    - `PING`, `PONG`, `OK`: None.

    Reported by the I/O loop:

    - `STATUS`: `(mailbox, msg)`, a JetStream status,
    - `SLOW`: the mailbox that began to drop messages,
    - `FIRST`: the mailbox whose first message came and that has an `on_first`,
    - `ENDED`: the mailbox that has all it expected,
    - `ORDER`: the mailbox whose `order` has stopped or has passed messages over, or whose
      `trail` has found a gap,
    - `CALL`: a callable that does not block,
    - `BROKEN`: the error, after which the connection is of no use,
    - `READABLE`, `WRITABLE`: None, for a stream that is not direct.
    """

    INFO = "INFO"
    ERR = "-ERR"
    OK = "+OK"
    PING = "PING"
    PONG = "PONG"
    STATUS = "STATUS"
    SLOW = "SLOW"
    FIRST = "FIRST"
    ENDED = "ENDED"
    ORDER = "ORDER"
    CALL = "CALL"
    BROKEN = "BROKEN"
    READABLE = "READABLE"
    WRITABLE = "WRITABLE"


# Kept under names of C, so that each is looked up once.
cdef object EVENT_INFO = Event.INFO
cdef object EVENT_ERR = Event.ERR
cdef object EVENT_OK = Event.OK
cdef object EVENT_PING = Event.PING
cdef object EVENT_PONG = Event.PONG
cdef object EVENT_STATUS = Event.STATUS
cdef object EVENT_SLOW = Event.SLOW
cdef object EVENT_FIRST = Event.FIRST
cdef object EVENT_ENDED = Event.ENDED
cdef object EVENT_ORDER = Event.ORDER
cdef object EVENT_CALL = Event.CALL
cdef object EVENT_BROKEN = Event.BROKEN
cdef object EVENT_READABLE = Event.READABLE
cdef object EVENT_WRITABLE = Event.WRITABLE
