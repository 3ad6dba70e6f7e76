# distutils: language = c
# cython: freethreading_compatible = True
"""The hot path: everything that runs once for each message rather than once a call.

One extension module in parts, each with one idea, lowest first:

    platform.pxi   clock, sockets, mutex and fork counter of the operating system
    locks.pxi      sections and atomics, which replace the GIL on a build without one
    parking.pxi    waiting without the GIL, until a wake-up, a deadline or Ctrl-C
    finaliser.pxi  `__del__` methods that lose no Ctrl-C
    subject.pxi    the rules of subjects, and numbers as NATS writes them
    header.pxi     header blocks
    block.pxi      frames that wait to be sent: FrameBuffer, PublishFrame
    websocket.pxi  the frames of a WebSocket, ours and the server's
    records.pxi    the records of TLS, ours and the server's: TLSRecords
    outbox.pxi     the write buffer: who may write, when it leaves, what survives a loss
    plain_publisher.pxi  core publishes of a connection's users
    batch.pxi      messages of atomic batches: BatchMessage, BatchQueue
    message.pxi    Msg, JetStreamMsg and the ack subject's Metadata
    ack_reader.pxi ack subjects, one after the other
    order.pxi      the order of messages, and missing ones: SequenceChecker, GapTracker
    pin.pxi        the pin id of a priority group: PinId
    columns.pxi    messages as rows of columns, without an object for each: Columns
    arrow.pxi      columns in the Arrow C data interface: ArrowBatch
    arrow_stream.pxi  streams of these columns
    arrow_source.pxi  tables of other libraries, to be published: ArrowSource
    event.pxi      events that the parser and the I/O loop report: Event
    mailbox.pxi    messages that wait for their reader: Mailbox
    jetstream_mailbox.pxi  messages of a consumer that wait: JetStreamMailbox
    messages.pxi   iterators over mailboxes: MessageIterator
    direct.pxi     answers to direct gets: DirectGetReply
    entry.pxi      messages of key-value buckets as entries: InitialState, EntryReader
    plain_ack.pxi  acks of the usual form, and how to recognise answers of a stream
    replies.pxi    waiters for an answer, and how it finds them: Waiter, ReplyMux
    question.pxi   a request that is sent many times: PreparedRequest
    future.pxi     the future of one publish
    failures.pxi   futures with errors that no caller has seen
    slots.pxi      messages that wait for their acks, in slots
    window.pxi     publishing ahead of the acks
    ingest.pxi     the numbered publishes of fast-ingest batches
    parser.pxi     bytes to frames
    line.pxi       the I/O loop: poll, flush, receive, parse, deliver

Threads share the objects here by these rules. docs/locks.md has the protection of each.

- With a GIL each method is a critical section, because Python switches threads between
  bytecodes only, and a method here has none. A section then compiles to nothing.
- Without a GIL a section of `locks.pxi` takes its place: a lock of one object, which opens
  while its thread waits, as the GIL does. Whatever a thread has looked at may have changed
  after it has waited, so look again.
- A public method takes the section of its own object, and the functions that it calls in
  there do not take it again.
- A reader arms its park in the section in which it has found nothing, and waits outside.
- No section of a mailbox is held while user code runs.
- Tokens, flags and the states of acks are atomics.
- One thread at a time reads the socket: `reading_thread`.
- The write buffer has a mutex, which a thread without the GIL takes too. So no thread waits
  for the GIL, drops a reference or makes a blocking call while it holds the mutex.
- TLS has a lock that is held while Python's `ssl` gives up the GIL, and nothing else is
  done with it held.
"""

from collections import deque, namedtuple
from collections.abc import Iterable
from copy import copy as copy_of
from datetime import UTC as _UTC, datetime, timedelta
from enum import StrEnum
from os import strerror, urandom

from .validation import check_seconds
from .errors import (
    APIError,
    BlockingCallError,
    ConfigError,
    ConcurrentUseError,
    ConnectionLostError,
    DuplicateMessageConflictError,
    ForkedProcessError,
    InvalidHeaderError,
    InvalidSubjectError,
    JetStreamError,
    MaxPayloadError,
    NoReplySubjectError,
    NoStreamResponseError,
    NotJetStreamMessageError,
    ProtocolError,
    ReconnectBufferFullError,
    StallTimeoutError,
    SubscriptionClosedError,
    TimeoutError as DeadlineError,
    TooManyRequestsError,
    UnreadableHeadersError,
    WriteTimeoutError,
    WrongExpectationError,
)
from .headers import Headers

cimport cython
from cpython.buffer cimport (
    PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITE, PyBuffer_IsContiguous, PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromObject,
    PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport (
    PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc,
)
from cpython.memoryview cimport (
    PyMemoryView_Check, PyMemoryView_FromMemory, PyMemoryView_FromObject,
    PyMemoryView_GET_BUFFER,
)
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.errno cimport ENOMEM, EPROTO
from libc.stdint cimport (
    INT64_MAX, UINT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strlen

include "_fast_parts/platform.pxi"
include "_fast_parts/locks.pxi"
include "_fast_parts/parking.pxi"
include "_fast_parts/finaliser.pxi"
include "_fast_parts/subject.pxi"
include "_fast_parts/header.pxi"
include "_fast_parts/block.pxi"
include "_fast_parts/websocket.pxi"
include "_fast_parts/records.pxi"
include "_fast_parts/outbox.pxi"
include "_fast_parts/plain_publisher.pxi"
include "_fast_parts/batch.pxi"
include "_fast_parts/message.pxi"
include "_fast_parts/ack_reader.pxi"
include "_fast_parts/order.pxi"
include "_fast_parts/pin.pxi"
include "_fast_parts/columns.pxi"
include "_fast_parts/arrow.pxi"
include "_fast_parts/arrow_stream.pxi"
include "_fast_parts/arrow_source.pxi"
include "_fast_parts/event.pxi"
include "_fast_parts/mailbox.pxi"
include "_fast_parts/jetstream_mailbox.pxi"
include "_fast_parts/messages.pxi"
include "_fast_parts/direct.pxi"
include "_fast_parts/entry.pxi"
include "_fast_parts/plain_ack.pxi"
include "_fast_parts/replies.pxi"
include "_fast_parts/question.pxi"
include "_fast_parts/future.pxi"
include "_fast_parts/failures.pxi"
include "_fast_parts/slots.pxi"
include "_fast_parts/window.pxi"
include "_fast_parts/ingest.pxi"
include "_fast_parts/parser.pxi"
include "_fast_parts/line.pxi"
