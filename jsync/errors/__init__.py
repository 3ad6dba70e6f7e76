"""Every error that jsync raises.

Error
    ├── TimeoutError                  a deadline passed (also builtins.TimeoutError)
    │   ├── DrainTimeoutError         a drain did not finish in time
    │   ├── WriteTimeoutError         the write buffer stayed full
    │   ├── StallTimeoutError         a publisher's window stayed full
    │   ├── IngestTimeoutError        a fast ingest was not answered in time
    │   ├── HandlerTimeoutError       a handler of a worker took too long
    │   └── ConnectTimeoutError       a server did not take the connection in time
    ├── ConnectionError               the connection (also builtins.ConnectionError)
    │   ├── NoServersError            no server of the pool could be connected to
    │   ├── ConnectTimeoutError       a server did not take the connection in time
    │   ├── ConnectionClosedError     the connection is closed
    │   ├── ConnectionLostError       it broke while this call was waiting
    │   │   ├── StaleConnectionError  the server stopped answering pings
    │   │   └── AtomicBatchLostError  with a batch that was not committed
    │   ├── ReconnectBufferFullError  too much was published while disconnected
    │   ├── ProtocolError             the peer does not speak NATS as it should
    │   ├── AuthenticationError       credentials missing, wrong, expired or revoked
    │   ├── TLSError                  certificate, hostname or handshake
    │   ├── ProxyError                the proxy does not connect to the server
    │   ├── WebSocketError            the other end did not make a WebSocket
    │   ├── ServerLimitError          the server refuses connections or payloads
    │   ├── IngestConnectionError     a fast ingest lost its connection
    │   └── ForkedProcessError        the connection belongs to the parent process
    ├── ConfigError                   an option is not valid (also ValueError)
    │   ├── PipelineFileError         the file of a pipeline is not valid
    │   └── InvalidBucketNameError  InvalidKeyError  InvalidObjectNameError
    ├── InvalidSubjectError           a subject is not valid (also ValueError)
    ├── InvalidHeaderError            a header is not valid (also ValueError)
    ├── UnreadableHeadersError        a message with headers that are none
    ├── MaxPayloadError               larger than the server accepts (also ValueError)
    ├── NoRespondersError             the subject of a request has no subscribers
    ├── NoReplySubjectError           the message has no reply subject
    ├── PermissionsError              the account may not publish or subscribe there
    │   └── SubscriptionLimitError    the connection has its maximum of subscriptions
    ├── SlowConsumerError             a subscription dropped messages: its reader is slow
    ├── CallbackPoolExhaustedError    messages wait, as all callback threads are busy
    ├── SubscriptionClosedError       the subscription has ended
    ├── ConcurrentUseError            a second thread on an object made for one
    ├── BlockingCallError             a blocking call on the connection's own thread
    ├── PipelineError                 a pipeline on Spark started and failed
    ├── WorkerError                   the processes of a worker cannot run
    ├── UnsupportedPlatformError      the call does not work on this operating system
    ├── CallbackError                 your callback raised `__cause__`
    ├── InvalidPayloadError           not of the type that a handler takes (also ValueError)
    ├── ServiceError                  a service answered with an error
    ├── ServiceReplyError             the reply of a service is not of the requested type
    ├── SystemAccountError            only users of the system account may query servers
    ├── ServerNotFoundError           no server has that name or id
    ├── SystemRequestError            a server rejected a request to it
    └── JetStreamError
        ├── APIError                  an error reply of the server, by err_code: see below
        ├── UnsupportedFeatureError   the server is too old for the request
        │   ├── AtomicBatchUnsupportedError  and may have stored a message of a batch
        │   └── IngestUnsupportedError  and has stored the first message of an ingest
        ├── AtomicBatchError          an atomic batch that was not committed
        │   ├── AtomicBatchClosedError  used after its end
        │   ├── AtomicBatchLostError  the connection broke before the commit
        │   └── AmbiguousCommitError  it may have been committed: `resolve()` finds out
        ├── IngestError               a fast ingest ended early: what it stored
        │   └── IngestTimeoutError  IngestConnectionError
        ├── IngestClosedError         a fast ingest that has ended, or has not yet
        ├── MessagesLostError         a fast ingest that allows gaps has one
        ├── MessagesUnconfirmedError  it cannot know whether messages are stored
        ├── BackupError               the backup of a stream broke off, or is damaged
        ├── CountersNotEnabledError   the stream is not for counters
        ├── CounterNotFoundError      nothing was added to this counter yet
        ├── SchedulesNotEnabledError  the stream is not for schedules
        ├── ScheduleNotFoundError     the subject has no schedule
        ├── NoStreamResponseError     no stream took the message
        ├── PublisherError            messages of a publisher were not acknowledged
        ├── PublisherClosedError      the publisher was closed
        ├── NotJetStreamMessageError  an ack or metadata of a message that has none
        ├── NoCachedInfoError         bound without a request: call `info()` first
        ├── AmbiguousSubjectError     several streams match a subject
        ├── IncompleteListError       some streams or consumers did not answer for a list
        ├── DirectGetError            a direct get was refused, or broken off
        │   └── DirectGetNotAllowedError  TooManyResultsError
        ├── SubscribeError            the existing consumer does not fit
        │   ├── DuplicateSubscriptionError  another client is subscribed to it already
        │   ├── ConsumerKindError     pull where it pushes, or the reverse
        │   │   └── PullRequiredError  PushRequiredError
        │   ├── DeliverGroupError     queue and deliver group do not fit together
        │   │   ├── QueueRequiredError  OtherDeliverGroupError  NoDeliverGroupError
        │   │   └── DeliverGroupFeatureError
        │   ├── FilterMismatchError   it is for other subjects
        │   └── ConfigMismatchError   it is set up otherwise: `differences`
        ├── ConsumerDeletedError      deleted while it was being read
        ├── ConsumerGroupNotFoundError  there is no such consumer group
        ├── ConsumerGroupExistsError  it exists with another configuration
        ├── ConsumerGroupChangedError  its configuration changed beyond its members
        ├── InvalidConsumerGroupError  its stored configuration is not valid
        ├── NotInConsumerGroupError   the static group has no such member
        ├── RetriesExhaustedError     a message used up its attempts
        ├── DeadLetterError           a dead letter could not be stored
        ├── MissedHeartbeatError      the server has been silent for too long
        ├── OrderedConsumerResetError  an ordered consumer continues with a new consumer
        ├── MessageGapError           messages of a push consumer did not arrive
        ├── PushError                 the server has sent an error to a push subscription
        ├── DataLossError             a stream lost what was unread, or written before (`jsync.spark`)
        ├── CheckpointError           a checkpoint that a query cannot continue from
        │   └── ReplayWindowExceededError  a batch comes again when its ids may be forgotten
        ├── InvalidBucketError        the stream is no key-value bucket
        ├── ReadOnlyBucketError       a mirror of a bucket cannot be written to
        ├── CodecError                a key or a value that a codec cannot decode
        │   └── InvalidObjectInfoError  an info in an object store that is none
        ├── LinkError                 a link in an object store that cannot be followed
        ├── ObjectReadError           an object that could not be read whole
        │   ├── DigestMismatchError   its bytes are not those that were put
        │   ├── ObjectIncompleteError  chunks of it are missing
        │   └── ObjectChangedError    it was replaced or deleted while it was read
        ├── ObjectExistsError         the name of a rename, a link or a new object is taken
        ├── AmbiguousPutError         a put or a change of an object may be done or not
        ├── ChunkOrderError           the server stored chunks in another order
        ├── LockLostError             a lock on a key was not renewed in time
        ├── LockNotHeldError          a lock on a key was not acquired
        ├── HandlerTimeoutError
        └── PullError                 the server refused or ended a pull

An error reply has a class for its condition, found by the reply's `err_code`, below a class
for its kind. Some are of two kinds, and stand below both:

APIError
    ├── NotFoundError
    │   ├── StreamNotFoundError
    │   │   └── BucketNotFoundError
    │   ├── MessageNotFoundError
    │   │   ├── KeyNotFoundError      (also KeyError)
    │   │   │   └── KeyDeletedError
    │   │   └── ObjectNotFoundError
    │   │       └── ObjectDeletedError
    │   ├── AccountNotFoundError
    │   └── ConsumerNotFoundError
    │       └── ConsumerDoesNotExistError
    ├── AlreadyExistsError
    │   ├── StreamNameInUseError
    │   │   └── BucketExistsError
    │   └── ConsumerExistsError
    ├── SubjectOverlapError  StreamMoveInProgressError  ReplicasNotSupportedError
    ├── JetStreamNotEnabledError  JetStreamNotEnabledForAccountError
    ├── JetStreamUnavailableError     for the moment
    │   └── StreamOfflineError  ConsumerOfflineError
    ├── RequiredAPILevelError
    ├── InvalidRequestError
    │   └── InvalidJSONError  PedanticError
    ├── InvalidStreamConfigError
    │   └── StreamLimitExceededError
    ├── InvalidConsumerConfigError
    │   ├── DuplicateFilterSubjectsError  OverlappingFilterSubjectsError  EmptyFilterError
    │   └── PriorityGroupError  WorkQueueConsumerError  ConsumerLimitExceededError
    ├── InvalidResetError
    ├── LimitExceededError
    │   ├── MaximumStreamsError  MaximumConsumersError  AccountResourcesExceededError
    │   ├── StreamLimitExceededError  ConsumerLimitExceededError  MessageTooLargeError
    │   ├── InsufficientResourcesError
    │   │   └── NoSuitablePeersError
    │   ├── TooManyRequestsError
    │   │   └── AtomicPublishTooManyInflightError  BatchPublishTooManyInflightError
    │   └── AtomicPublishTooLargeBatchError
    ├── OperationFailedError          the server tried, and failed
    │   ├── StreamCreateError  StreamUpdateError  StreamDeleteError  StreamPurgeError
    │   ├── ConsumerCreateError  ConsumerStoreError
    │   └── MessageDeleteError  StreamStoreError  RollupError
    ├── StreamSealedError  DuplicateMessageConflictError  SourceHeaderError
    ├── WrongExpectationError         the stream is not as the publisher expected
    │   ├── WrongLastSequenceError
    │   │   └── WrongRevisionError
    │   │       └── KeyExistsError
    │   └── WrongLastMsgIDError  StreamMismatchError
    ├── FeatureDisabledError          the stream is not set up for it
    │   ├── MessageTTLDisabledError  MessageIncrDisabledError
    │   ├── MessageSchedulesDisabledError
    │   └── AtomicPublishDisabledError  BatchPublishDisabledError
    ├── MessageTTLError
    │   └── MessageTTLDisabledError  MessageTTLInvalidError
    ├── MessageCounterError
    │   └── MessageIncrDisabledError  MessageIncrInvalidError  MessageCounterBrokenError
    ├── MessageScheduleError
    │   └── MessageSchedulesDisabledError  MessageScheduleInvalidError
    ├── AtomicPublishError            an atomic batch was refused
    │   ├── AtomicPublishDisabledError  AtomicPublishIncompleteBatchError
    │   ├── AtomicPublishDuplicateMessageError  AtomicPublishMissingSeqError
    │   ├── AtomicPublishUnsupportedHeaderError  AtomicPublishInvalidBatchIDError
    │   ├── AtomicPublishInvalidBatchCommitError  AtomicPublishTooLargeBatchError
    │   └── AtomicPublishTooManyInflightError
    └── BatchPublishError             a fast-ingest batch, or a message of it, was refused
        ├── BatchPublishDisabledError  BatchPublishUnknownBatchIDError
        ├── BatchPublishInvalidPatternError  BatchPublishInvalidBatchIDError
        └── BatchPublishTooManyInflightError

All of them derive from `Error`, survive pickling, and never carry a secret.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .api import (
    AccountNotFoundError as AccountNotFoundError,
    AccountResourcesExceededError as AccountResourcesExceededError,
    AlreadyExistsError as AlreadyExistsError,
    APIError as APIError,
    AtomicPublishDisabledError as AtomicPublishDisabledError,
    AtomicPublishDuplicateMessageError as AtomicPublishDuplicateMessageError,
    AtomicPublishError as AtomicPublishError,
    AtomicPublishIncompleteBatchError as AtomicPublishIncompleteBatchError,
    AtomicPublishInvalidBatchCommitError as AtomicPublishInvalidBatchCommitError,
    AtomicPublishInvalidBatchIDError as AtomicPublishInvalidBatchIDError,
    AtomicPublishMissingSeqError as AtomicPublishMissingSeqError,
    AtomicPublishTooLargeBatchError as AtomicPublishTooLargeBatchError,
    AtomicPublishTooManyInflightError as AtomicPublishTooManyInflightError,
    AtomicPublishUnsupportedHeaderError as AtomicPublishUnsupportedHeaderError,
    BatchPublishDisabledError as BatchPublishDisabledError,
    BatchPublishError as BatchPublishError,
    BatchPublishInvalidBatchIDError as BatchPublishInvalidBatchIDError,
    BatchPublishInvalidPatternError as BatchPublishInvalidPatternError,
    BatchPublishTooManyInflightError as BatchPublishTooManyInflightError,
    BatchPublishUnknownBatchIDError as BatchPublishUnknownBatchIDError,
    ConsumerCreateError as ConsumerCreateError,
    ConsumerDoesNotExistError as ConsumerDoesNotExistError,
    ConsumerExistsError as ConsumerExistsError,
    ConsumerLimitExceededError as ConsumerLimitExceededError,
    ConsumerNotFoundError as ConsumerNotFoundError,
    ConsumerOfflineError as ConsumerOfflineError,
    ConsumerStoreError as ConsumerStoreError,
    DuplicateFilterSubjectsError as DuplicateFilterSubjectsError,
    DuplicateMessageConflictError as DuplicateMessageConflictError,
    EmptyFilterError as EmptyFilterError,
    FeatureDisabledError as FeatureDisabledError,
    InsufficientResourcesError as InsufficientResourcesError,
    InvalidConsumerConfigError as InvalidConsumerConfigError,
    InvalidJSONError as InvalidJSONError,
    InvalidRequestError as InvalidRequestError,
    InvalidResetError as InvalidResetError,
    InvalidStreamConfigError as InvalidStreamConfigError,
    JetStreamNotEnabledError as JetStreamNotEnabledError,
    JetStreamNotEnabledForAccountError as JetStreamNotEnabledForAccountError,
    JetStreamUnavailableError as JetStreamUnavailableError,
    LimitExceededError as LimitExceededError,
    MaximumConsumersError as MaximumConsumersError,
    MaximumStreamsError as MaximumStreamsError,
    MessageCounterBrokenError as MessageCounterBrokenError,
    MessageCounterError as MessageCounterError,
    MessageDeleteError as MessageDeleteError,
    MessageIncrDisabledError as MessageIncrDisabledError,
    MessageIncrInvalidError as MessageIncrInvalidError,
    MessageNotFoundError as MessageNotFoundError,
    MessageScheduleError as MessageScheduleError,
    MessageScheduleInvalidError as MessageScheduleInvalidError,
    MessageSchedulesDisabledError as MessageSchedulesDisabledError,
    MessageTooLargeError as MessageTooLargeError,
    MessageTTLDisabledError as MessageTTLDisabledError,
    MessageTTLError as MessageTTLError,
    MessageTTLInvalidError as MessageTTLInvalidError,
    NoSuitablePeersError as NoSuitablePeersError,
    NotFoundError as NotFoundError,
    OperationFailedError as OperationFailedError,
    OverlappingFilterSubjectsError as OverlappingFilterSubjectsError,
    PedanticError as PedanticError,
    PriorityGroupError as PriorityGroupError,
    ReplicasNotSupportedError as ReplicasNotSupportedError,
    RequiredAPILevelError as RequiredAPILevelError,
    RollupError as RollupError,
    SourceHeaderError as SourceHeaderError,
    StreamCreateError as StreamCreateError,
    StreamDeleteError as StreamDeleteError,
    StreamLimitExceededError as StreamLimitExceededError,
    StreamMismatchError as StreamMismatchError,
    StreamMoveInProgressError as StreamMoveInProgressError,
    StreamNameInUseError as StreamNameInUseError,
    StreamNotFoundError as StreamNotFoundError,
    StreamOfflineError as StreamOfflineError,
    StreamPurgeError as StreamPurgeError,
    StreamSealedError as StreamSealedError,
    StreamStoreError as StreamStoreError,
    StreamUpdateError as StreamUpdateError,
    SubjectOverlapError as SubjectOverlapError,
    TooManyRequestsError as TooManyRequestsError,
    WorkQueueConsumerError as WorkQueueConsumerError,
    WrongExpectationError as WrongExpectationError,
    WrongLastMsgIDError as WrongLastMsgIDError,
    WrongLastSequenceError as WrongLastSequenceError,
)
from .client import (
    AuthenticationError as AuthenticationError,
    BlockingCallError as BlockingCallError,
    CallbackError as CallbackError,
    CallbackPoolExhaustedError as CallbackPoolExhaustedError,
    ConcurrentUseError as ConcurrentUseError,
    ConfigError as ConfigError,
    ConnectionClosedError as ConnectionClosedError,
    ConnectionError as ConnectionError,
    ConnectionLostError as ConnectionLostError,
    ConnectTimeoutError as ConnectTimeoutError,
    DrainTimeoutError as DrainTimeoutError,
    Error as Error,
    ForkedProcessError as ForkedProcessError,
    InvalidHeaderError as InvalidHeaderError,
    InvalidPayloadError as InvalidPayloadError,
    InvalidSubjectError as InvalidSubjectError,
    MaxPayloadError as MaxPayloadError,
    NoReplySubjectError as NoReplySubjectError,
    NoRespondersError as NoRespondersError,
    NoServersError as NoServersError,
    PermissionsError as PermissionsError,
    PipelineError as PipelineError,
    PipelineFileError as PipelineFileError,
    ProtocolError as ProtocolError,
    ProxyError as ProxyError,
    ReconnectBufferFullError as ReconnectBufferFullError,
    ServerLimitError as ServerLimitError,
    SlowConsumerError as SlowConsumerError,
    StaleConnectionError as StaleConnectionError,
    StallTimeoutError as StallTimeoutError,
    SubscriptionClosedError as SubscriptionClosedError,
    SubscriptionLimitError as SubscriptionLimitError,
    TimeoutError as TimeoutError,
    TLSError as TLSError,
    UnreadableHeadersError as UnreadableHeadersError,
    UnsupportedPlatformError as UnsupportedPlatformError,
    WebSocketError as WebSocketError,
    WorkerError as WorkerError,
    WriteTimeoutError as WriteTimeoutError,
)
from .groups import (
    ConsumerGroupChangedError as ConsumerGroupChangedError,
    ConsumerGroupExistsError as ConsumerGroupExistsError,
    ConsumerGroupNotFoundError as ConsumerGroupNotFoundError,
    InvalidConsumerGroupError as InvalidConsumerGroupError,
    NotInConsumerGroupError as NotInConsumerGroupError,
)
from .jetstream import (
    AmbiguousCommitError as AmbiguousCommitError,
    AmbiguousSubjectError as AmbiguousSubjectError,
    AtomicBatchClosedError as AtomicBatchClosedError,
    AtomicBatchError as AtomicBatchError,
    AtomicBatchLostError as AtomicBatchLostError,
    AtomicBatchUnsupportedError as AtomicBatchUnsupportedError,
    BackupError as BackupError,
    CheckpointError as CheckpointError,
    ConfigMismatchError as ConfigMismatchError,
    ConsumerDeletedError as ConsumerDeletedError,
    ConsumerKindError as ConsumerKindError,
    CounterNotFoundError as CounterNotFoundError,
    CountersNotEnabledError as CountersNotEnabledError,
    DataLossError as DataLossError,
    DeadLetterError as DeadLetterError,
    DeliverGroupError as DeliverGroupError,
    DeliverGroupFeatureError as DeliverGroupFeatureError,
    DirectGetError as DirectGetError,
    DirectGetNotAllowedError as DirectGetNotAllowedError,
    DuplicateSubscriptionError as DuplicateSubscriptionError,
    FailedMessage as FailedMessage,
    FilterMismatchError as FilterMismatchError,
    HandlerTimeoutError as HandlerTimeoutError,
    IncompleteListError as IncompleteListError,
    IngestClosedError as IngestClosedError,
    IngestConnectionError as IngestConnectionError,
    IngestError as IngestError,
    IngestTimeoutError as IngestTimeoutError,
    IngestUnsupportedError as IngestUnsupportedError,
    JetStreamError as JetStreamError,
    LostRange as LostRange,
    MessageGapError as MessageGapError,
    MessagesLostError as MessagesLostError,
    MessagesUnconfirmedError as MessagesUnconfirmedError,
    MissedHeartbeatError as MissedHeartbeatError,
    NoCachedInfoError as NoCachedInfoError,
    NoDeliverGroupError as NoDeliverGroupError,
    NoStreamResponseError as NoStreamResponseError,
    NotJetStreamMessageError as NotJetStreamMessageError,
    OrderedConsumerResetError as OrderedConsumerResetError,
    OtherDeliverGroupError as OtherDeliverGroupError,
    PublisherClosedError as PublisherClosedError,
    PublisherError as PublisherError,
    PullError as PullError,
    PullRequiredError as PullRequiredError,
    PushError as PushError,
    PushRequiredError as PushRequiredError,
    QueueRequiredError as QueueRequiredError,
    ReplayWindowExceededError as ReplayWindowExceededError,
    RetriesExhaustedError as RetriesExhaustedError,
    ScheduleNotFoundError as ScheduleNotFoundError,
    SchedulesNotEnabledError as SchedulesNotEnabledError,
    SubscribeError as SubscribeError,
    TooManyResultsError as TooManyResultsError,
    UnconfirmedRange as UnconfirmedRange,
    UnsupportedFeatureError as UnsupportedFeatureError,
)
from .keyvalue import (
    BucketExistsError as BucketExistsError,
    BucketNotFoundError as BucketNotFoundError,
    CodecError as CodecError,
    InvalidBucketError as InvalidBucketError,
    InvalidBucketNameError as InvalidBucketNameError,
    InvalidKeyError as InvalidKeyError,
    KeyDeletedError as KeyDeletedError,
    KeyExistsError as KeyExistsError,
    KeyNotFoundError as KeyNotFoundError,
    LockLostError as LockLostError,
    LockNotHeldError as LockNotHeldError,
    ReadOnlyBucketError as ReadOnlyBucketError,
    WrongRevisionError as WrongRevisionError,
)
from .objects import (
    AmbiguousPutError as AmbiguousPutError,
    ChunkOrderError as ChunkOrderError,
    DigestMismatchError as DigestMismatchError,
    InvalidObjectInfoError as InvalidObjectInfoError,
    InvalidObjectNameError as InvalidObjectNameError,
    LinkError as LinkError,
    ObjectChangedError as ObjectChangedError,
    ObjectDeletedError as ObjectDeletedError,
    ObjectExistsError as ObjectExistsError,
    ObjectIncompleteError as ObjectIncompleteError,
    ObjectNotFoundError as ObjectNotFoundError,
    ObjectReadError as ObjectReadError,
)
from .service import (
    ServiceError as ServiceError,
    ServiceReplyError as ServiceReplyError,
)
from .system import (
    ServerNotFoundError as ServerNotFoundError,
    SystemAccountError as SystemAccountError,
    SystemRequestError as SystemRequestError,
)

if not _TYPE_CHECKING:  # a type checker would accept every name
    from ..hints import explain_error as __getattr__  # noqa: F401

# Tracebacks and pickles name this module.
for _kind in [kind for kind in globals().values() if isinstance(kind, type)]:
    _kind.__module__ = __name__
del _kind
