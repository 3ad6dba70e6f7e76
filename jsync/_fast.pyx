# distutils: language = c
# cython: freethreading_compatible = True
"""The hot path: everything that runs once for each message rather than once a call.

One extension module in parts, each with one idea, in six folders. The `include`s at the end
of this file have the order of the parts: each part uses names of the parts before it only.

    runtime/  the platform, locks, waiting
        platform           clock, sockets, mutex and fork counter of the operating system
        locks              sections and atomics, which replace the GIL where there is none
        greenlets          waiting in a greenlet of gevent
        park               where a thread waits for a wake-up: Park
        wake_chain         threads that are woken one after the other: WakeChain
        io_thread          the I/O thread, for those who wait for it
        wait               waiting without the GIL, until a wake-up, a deadline or Ctrl-C
        handoff_queue      a queue between threads: HandoffQueue
        finalizer          `__del__` methods that lose no Ctrl-C
    wire/  the bytes of the protocol
        subject            the rules of subjects, and numbers as NATS writes them
        header             header blocks
        frame              frames that wait to be sent: FrameBuffer, PublishFrame
        websocket          the frames of a WebSocket, ours and the server's
        tls_records        the records of TLS, ours and the server's: TLSRecords
        event              events that the parser and the I/O loop report: Event
        parser             bytes to frames
    io/  the I/O loop, and what leaves by it
        write_buffer       who may write, when it leaves, what survives a loss
        reply_mux          waiters for an answer: Waiter, ReplyMux
        prepared_request   a request that is sent many times: PreparedRequest
        io_loop            the I/O loop: poll, flush, receive, parse, deliver
    delivery/  messages on their way to their reader
        message            Msg, JetStreamMsg and the ack subject's Metadata
        ack_subject        ack subjects, one after the other
        sequence           the order of messages: SequenceChecker, GapTracker
        pin_id             the pin id of a priority group: PinId
        sink               what the I/O loop delivers to: Sink
        ready_queue        mailboxes that wait for a thread: ReadyQueue
        mailbox            messages that wait for their reader: Mailbox
        pool_thread        the threads of a callback pool: PoolThread
        jetstream_mailbox  messages of a consumer that wait: JetStreamMailbox
        iterator           iterators over mailboxes: MessageIterator
    publish/  messages on their way to a stream, and their acks
        core_publisher     core publishes of a connection's users
        atomic_batch       messages of atomic batches: BatchMessage, BatchQueue
        stream_ack         acks of the usual form, and how to recognise answers of a stream
        future             the future of one publish
        unretrieved_errors futures with errors that no caller has seen
        pending_acks       messages that wait for their acks, in slots
        ack_window         publishing ahead of the acks
        fast_ingest        the numbered publishes of fast-ingest batches
    read/  stored messages as entries and columns
        columns            messages as rows of columns, without an object for each: Columns
        arrow_array        columns in the Arrow C data interface
        arrow_stream       streams of these columns
        arrow_batch        batches of messages as columns: ArrowBatch
        arrow_source       tables of other libraries, to be published: ArrowSource
        kv_operation       the operation that an entry of a bucket stands for
        direct_get         answers to direct gets: DirectGetReply
        kv_entry           messages of buckets as entries
        initial_state      the end of the entries with which a watch begins: InitialState
        entry_reader       the entries of a watch, one by one: EntryReader

Threads share the objects here by these rules. docs/locks.md has the protection of each.

- With a GIL each method is a critical section, because Python switches threads between
  bytecodes only, and a method here has none. A section then compiles to nothing.
- Without a GIL a section of `runtime/locks.pxi` takes its place: a lock of one object,
  which opens while its thread waits, as the GIL does. Whatever a thread has looked at may
  have changed after it has waited, so look again.
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
from queue import Empty
from sys import exc_info, modules as _modules

from .validation import check_seconds, format_seconds
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

include "_fast_parts/runtime/platform.pxi"
include "_fast_parts/runtime/locks.pxi"
include "_fast_parts/runtime/greenlets.pxi"
include "_fast_parts/runtime/park.pxi"
include "_fast_parts/runtime/wake_chain.pxi"
include "_fast_parts/runtime/io_thread.pxi"
include "_fast_parts/runtime/wait.pxi"
include "_fast_parts/runtime/handoff_queue.pxi"
include "_fast_parts/runtime/finalizer.pxi"
include "_fast_parts/wire/subject.pxi"
include "_fast_parts/wire/header.pxi"
include "_fast_parts/wire/frame.pxi"
include "_fast_parts/wire/websocket.pxi"
include "_fast_parts/wire/tls_records.pxi"
include "_fast_parts/wire/event.pxi"
include "_fast_parts/io/write_buffer.pxi"
include "_fast_parts/publish/core_publisher.pxi"
include "_fast_parts/publish/atomic_batch.pxi"
include "_fast_parts/delivery/message.pxi"
include "_fast_parts/delivery/ack_subject.pxi"
include "_fast_parts/delivery/sequence.pxi"
include "_fast_parts/delivery/pin_id.pxi"
include "_fast_parts/read/columns.pxi"
include "_fast_parts/read/arrow_array.pxi"
include "_fast_parts/read/arrow_stream.pxi"
include "_fast_parts/read/arrow_batch.pxi"
include "_fast_parts/read/arrow_source.pxi"
include "_fast_parts/delivery/sink.pxi"
include "_fast_parts/delivery/ready_queue.pxi"
include "_fast_parts/delivery/mailbox.pxi"
include "_fast_parts/delivery/pool_thread.pxi"
include "_fast_parts/delivery/jetstream_mailbox.pxi"
include "_fast_parts/delivery/iterator.pxi"
include "_fast_parts/read/kv_operation.pxi"
include "_fast_parts/read/direct_get.pxi"
include "_fast_parts/read/kv_entry.pxi"
include "_fast_parts/read/initial_state.pxi"
include "_fast_parts/read/entry_reader.pxi"
include "_fast_parts/publish/stream_ack.pxi"
include "_fast_parts/io/reply_mux.pxi"
include "_fast_parts/io/prepared_request.pxi"
include "_fast_parts/publish/future.pxi"
include "_fast_parts/publish/unretrieved_errors.pxi"
include "_fast_parts/publish/pending_acks.pxi"
include "_fast_parts/publish/ack_window.pxi"
include "_fast_parts/publish/fast_ingest.pxi"
include "_fast_parts/wire/parser.pxi"
include "_fast_parts/io/io_loop.pxi"
