"""Error replies of the JetStream API: a class for each condition, found by `err_code`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .jetstream import JetStreamError

if TYPE_CHECKING:
    from collections.abc import Mapping


class APIError(JetStreamError):
    """An error reply of the JetStream API.

    A known `err_code` has a class of its own. An unknown `err_code` raises this class.
    """

    by_err_code: ClassVar[dict[int, type[APIError]]] = {}
    advice: ClassVar[str] = ""
    """A remedy, appended to the server's description. Empty if none is needed."""

    def __init_subclass__(
        cls, *, err_codes: tuple[int, ...] = (), advice: str = ""
    ) -> None:
        super().__init_subclass__()
        cls.advice = advice or cls.advice
        for err_code in err_codes:
            APIError.by_err_code[err_code] = cls

    def __init__(
        self, message: str, *, code: int = 0, err_code: int = 0, description: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        """HTTP-like: 400, 404, 503."""
        self.err_code = err_code
        """The server's number of the error, such as 10003."""
        self.description = description
        """The server's words."""


# What is not there, and what is there already ------------------------------------------


class NotFoundError(APIError):
    """The stream, consumer or message does not exist."""


class StreamNotFoundError(
    NotFoundError,
    err_codes=(10059, 10096),
    advice="create it, or check its name, the account and the domain",
):
    """There is no stream of that name. Create it, or check the account and the domain."""


class ConsumerNotFoundError(
    NotFoundError, err_codes=(10014,), advice="create it, or check its name"
):
    """There is no consumer of that name, or it expired because it was not used."""


class ConsumerDoesNotExistError(ConsumerNotFoundError, err_codes=(10149,)):
    """You updated a consumer that does not exist. Create it."""


class MessageNotFoundError(NotFoundError, err_codes=(10037, 10043)):
    """The stream has no such message, or the message was deleted or has expired."""


class AccountNotFoundError(NotFoundError, err_codes=(10035,)):
    """The server that should hold the stream does not know the account."""


class AlreadyExistsError(APIError):
    """A stream or consumer of that name exists with another configuration.

    `differences` has the fields that differ: `{name: (requested, existing)}`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        err_code: int = 0,
        description: str = "",
        differences: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> None:
        super().__init__(message, code=code, err_code=err_code, description=description)
        self.differences = dict(differences or {})


class StreamNameInUseError(AlreadyExistsError, err_codes=(10058,)):
    """A stream of that name exists with another configuration.

    Update it, or use another name.
    """


class ConsumerExistsError(AlreadyExistsError, err_codes=(10148, 10013, 10105, 10106)):
    """A consumer of that name exists with another configuration.

    Update it, or use another name.
    """


class SubjectOverlapError(APIError, err_codes=(10065,)):
    """Another stream has some of these subjects. Use other subjects, or source that stream."""


# JetStream itself ----------------------------------------------------------------------


class JetStreamNotEnabledError(APIError, err_codes=(10076,)):
    """The server runs without JetStream. Start it with `-js`, or check the domain."""


class JetStreamNotEnabledForAccountError(APIError, err_codes=(10039,)):
    """JetStream is not enabled for this account.

    Enable it in the configuration of the server.
    """


class JetStreamUnavailableError(APIError, err_codes=(10007, 10008, 10009, 10063)):
    """There is no leader, or the leader is behind, as during an election.

    Retry in a second.
    """


class StreamOfflineError(JetStreamUnavailableError, err_codes=(10118, 10194)):
    """The servers of the stream are down, or too old for it."""


class ConsumerOfflineError(JetStreamUnavailableError, err_codes=(10119, 10195)):
    """The servers of the consumer are down, or too old for it."""


class RequiredAPILevelError(APIError, err_codes=(10185,)):
    """The API level of the server is below the `Nats-Required-Api-Level` of the request."""


class InvalidRequestError(
    APIError,
    err_codes=(
        *(10003, 10038, 10056, 10193),
        *(10016, 10017, 10018, 10020, 10131, 10225),
    ),
):
    """The server did not understand the request, or its parts contradict each other."""


class InvalidJSONError(InvalidRequestError, err_codes=(10025,)):
    """The server could not read the JSON of the request.

    Servers from 2.12 on answer this for fields that are newer than they are.
    """


class PedanticError(InvalidRequestError, err_codes=(10157,)):
    """In pedantic mode, the server rejects values that it would correct otherwise."""


# Limits --------------------------------------------------------------------------------


class LimitExceededError(APIError, err_codes=(10053,)):
    """A limit of the server, the account or the stream is reached."""


class MaximumStreamsError(
    LimitExceededError,
    err_codes=(10027,),
    advice="delete streams, or raise max_streams of the account",
):
    """The account has its maximum number of streams. Delete some, or raise the limit."""


class MaximumConsumersError(
    LimitExceededError,
    err_codes=(10026,),
    advice="delete consumers, or raise max_consumers of the stream or the account",
):
    """The stream or the account has its maximum number of consumers.

    Delete some, or raise the limit.
    """


class AccountResourcesExceededError(
    LimitExceededError,
    err_codes=(10002, 10120),
    advice="delete messages or streams, or raise the limits of the account",
):
    """The account has no room left, or no limits for that number of replicas."""


class InsufficientResourcesError(
    LimitExceededError,
    err_codes=(10023, 10028, 10047),
    advice="request less, or raise the limits of the account or the servers",
):
    """The servers have too little memory or disk, or too few peers.

    Free some, or request less.
    """


class NoSuitablePeersError(
    InsufficientResourcesError,
    err_codes=(10005,),
    advice="request fewer replicas, or other tags",
):
    """No servers fit `num_replicas` and `placement`. Request fewer replicas, or other tags."""


class MessageTooLargeError(
    LimitExceededError,
    err_codes=(10054, 10097),
    advice="send less, or raise max_msg_size of the stream (max_value_size of a bucket)",
):
    """The message is larger than `max_msg_size` of the stream, or its headers than 64 KiB."""


class TooManyRequestsError(LimitExceededError, err_codes=(10167,)):
    """Clients publish more than the stream can store. The message is not stored.

    Publishers wait and send the message again until their timeout. Keep fewer bytes in flight.
    """


# Configurations ------------------------------------------------------------------------


class InvalidStreamConfigError(
    APIError,
    err_codes=(
        *(10021, 10022, 10024, 10052, 10113, 10123, 10128, 10133),
        # Mirrors.
        *(10030, 10031, 10034, 10055, 10142, 10143, 10150, 10151, 10152, 10154),
        *(10173, 10186, 10198, 10209, 10213, 10214),
        # Sources.
        *(10046, 10140, 10141, 10144, 10145, 10146, 10147, 10187),
        *(10215, 10216, 10217),
        # Transforms.
        *(10155, 10156),
    ),
):
    """A field, a combination of fields or a change is not valid for a stream.

    The message says which.
    """


class StreamLimitExceededError(
    InvalidStreamConfigError, LimitExceededError, err_codes=(10122,)
):
    """`max_bytes` of the stream exceeds the limit that the account has for a stream."""


class StreamMoveInProgressError(APIError, err_codes=(10124, 10226)):
    """The stream is moving to other servers. Wait until it has arrived."""


class ReplicasNotSupportedError(APIError, err_codes=(10074,)):
    """`num_replicas` is above 1, but the server has no cluster."""


class InvalidConsumerConfigError(
    APIError,
    err_codes=(
        *(10078, 10079, 10080, 10081, 10082, 10083, 10084, 10086, 10087, 10088),
        *(10089, 10090, 10091, 10094, 10095, 10102, 10103, 10107, 10108, 10112),
        *(10114, 10115, 10116, 10126, 10127, 10132, 10134, 10135),
        *(10181, 10182, 10183, 10184),
        # The ack policy flow_control.
        *(10218, 10219, 10220, 10221, 10222),
    ),
):
    """A field or a combination of fields is not valid for a consumer.

    The message says which.
    """


class ConsumerLimitExceededError(
    InvalidConsumerConfigError, LimitExceededError, err_codes=(10121, 10125, 10153)
):
    """The consumer exceeds a limit of the stream (`consumer_limits`), the account or the server."""


class DuplicateFilterSubjectsError(
    InvalidConsumerConfigError, err_codes=(10136, 10137)
):
    """You gave both `filter_subject` and `filter_subjects`. Give one."""


class OverlappingFilterSubjectsError(InvalidConsumerConfigError, err_codes=(10138,)):
    """Two of `filter_subjects` match the same subjects."""


class EmptyFilterError(InvalidConsumerConfigError, err_codes=(10139,)):
    """One of `filter_subjects` is empty.

    Leave it out. Without a filter, the consumer gets all subjects.
    """


class PriorityGroupError(
    InvalidConsumerConfigError,
    err_codes=(10159, 10160, 10161, 10162, 10178, 10196, 10197),
):
    """The consumer does not have that priority group, or may not have one."""


class WorkQueueConsumerError(
    InvalidConsumerConfigError, err_codes=(10098, 10099, 10100, 10101)
):
    """Consumers of a work queue need explicit acks and `deliver_policy` `all`.

    Each subject has at most one consumer.
    """


class InvalidResetError(APIError, err_codes=(10204,)):
    """The consumer cannot be reset to that sequence, which is before its start."""


# What was tried and failed -------------------------------------------------------------


class OperationFailedError(APIError, err_codes=(10051,)):
    """The server tried, and failed. The message has the reason."""


class StreamCreateError(OperationFailedError, err_codes=(10049,)):
    """The stream could not be created. The message has the reason.

    For "error creating store for stream" only the server's log has it: the disk may be
    full, or the server out of file descriptors.
    """


class StreamUpdateError(OperationFailedError, err_codes=(10069,)):
    """The stream could not be updated. The message has the reason."""


class StreamDeleteError(OperationFailedError, err_codes=(10050,)):
    """The stream could not be deleted. The message has the reason."""


class StreamPurgeError(OperationFailedError, err_codes=(10110,)):
    """The stream could not be purged. It may have `deny_purge`."""


class MessageDeleteError(OperationFailedError, err_codes=(10057,)):
    """The message could not be deleted. It does not exist, or the stream has `deny_delete`."""


class ConsumerCreateError(OperationFailedError, err_codes=(10012,)):
    """The consumer could not be created, or a field of it cannot be updated."""


class ConsumerStoreError(OperationFailedError, err_codes=(10104,)):
    """The server could not store the state of the consumer. Check its disk and its log."""


# Publishing ----------------------------------------------------------------------------


class StreamStoreError(
    OperationFailedError,
    err_codes=(10077,),
    advice="if the stream is full, delete messages, raise its limits, or let it discard "
    "old messages",
):
    """The message could not be stored. The stream is full and discards new messages.

    Delete messages, raise the limits of the stream, or set `discard` to `old`.
    """


class StreamSealedError(APIError, err_codes=(10109,)):
    """The stream is sealed. Nothing can be added, deleted or purged."""


class RollupError(OperationFailedError, err_codes=(10111,)):
    """The value of `Nats-Rollup` is unknown, or the stream has no `allow_rollup_hdrs`."""


class DuplicateMessageConflictError(APIError, err_codes=(10158,)):
    """Another message with the same id is being stored. This message is not stored.

    Publish it again. Its ack has `duplicate` once the other message is stored.
    """


class SourceHeaderError(APIError, err_codes=(10227,)):
    """The header `Nats-Stream-Source` belongs to the server. Leave it out."""


class WrongExpectationError(APIError):
    """The stream does not match the `expected_` options of the message. Nothing was stored."""


class WrongLastSequenceError(WrongExpectationError, err_codes=(10071, 10164)):
    """The stream or the subject has another last sequence. Read it again, then decide."""


class WrongLastMsgIDError(WrongExpectationError, err_codes=(10070,)):
    """The last message of the stream has another id than you expected."""


class StreamMismatchError(WrongExpectationError, err_codes=(10060,)):
    """The message reached another stream than you expected."""


class FeatureDisabledError(APIError):
    """The stream does not allow it. Update the stream, then publish again."""


class MessageTTLError(APIError):
    """The `ttl` of a message is not valid."""


class MessageTTLDisabledError(
    MessageTTLError,
    FeatureDisabledError,
    err_codes=(10166,),
    advice="set allow_msg_ttl on the stream, or limit_marker_ttl on the bucket",
):
    """You gave a `ttl`, but the stream has no `allow_msg_ttl`. Update the stream.

    A bucket needs `limit_marker_ttl` for this. Locks and elections have a `ttl` too.
    """


class MessageTTLInvalidError(MessageTTLError, err_codes=(10165,)):
    """The server does not understand the `ttl`. Give whole seconds from 1, or never."""


class MessageCounterError(APIError):
    """The `incr` of a message is not valid."""


class MessageIncrDisabledError(
    MessageCounterError, FeatureDisabledError, err_codes=(10168,)
):
    """You gave an `incr`, but the stream has no `allow_msg_counter`.

    Only its creation can set that.
    """


class MessageIncrInvalidError(MessageCounterError, err_codes=(10169, 10170, 10171)):
    """On a stream with `allow_msg_counter`, every message needs an `incr` and no data."""


class MessageCounterBrokenError(MessageCounterError, err_codes=(10172,)):
    """The last message of this counter holds no number. Purge the subject."""


class MessageScheduleError(APIError):
    """The `schedule` options of a message are not valid."""


class MessageSchedulesDisabledError(
    MessageScheduleError, FeatureDisabledError, err_codes=(10188,)
):
    """You gave a `schedule`, but the stream has no `allow_msg_schedules`.

    Update the stream.
    """


class MessageScheduleInvalidError(
    MessageScheduleError, err_codes=(10189, 10190, 10191, 10192, 10203, 10212, 10223)
):
    """The schedule, its target, source, ttl, rollup or time zone is not valid."""


# Batches (ADR-50) ----------------------------------------------------------------------


class AtomicPublishError(APIError):
    """The server rejected an atomic batch. Nothing of it is stored."""


class AtomicPublishDisabledError(
    AtomicPublishError,
    FeatureDisabledError,
    err_codes=(10174,),
    advice="set allow_atomic on the stream",
):
    """The stream has no `allow_atomic`: `update_stream(name=..., allow_atomic=True)`."""


class AtomicPublishMissingSeqError(AtomicPublishError, err_codes=(10175,)):
    """A message of the batch has no batch sequence."""


class AtomicPublishIncompleteBatchError(AtomicPublishError, err_codes=(10176,)):
    """The server does not have the whole batch. Nothing of it is stored.

    A message was lost, or the batch took too long. The error also comes if you commit a batch
    a second time.
    """


class AtomicPublishUnsupportedHeaderError(AtomicPublishError, err_codes=(10177,)):
    """A message of a batch has a header that batches do not allow.

    One of them is `expected_last_msg_id`.
    """


class AtomicPublishInvalidBatchIDError(AtomicPublishError, err_codes=(10179,)):
    """The id of the batch is longer than 64 characters."""


class AtomicPublishTooLargeBatchError(
    AtomicPublishError, LimitExceededError, err_codes=(10199,)
):
    """The batch has too many messages. The default limit of a server is 1000."""


class AtomicPublishInvalidBatchCommitError(AtomicPublishError, err_codes=(10200,)):
    """The server does not know this kind of commit, such as `eob` before nats-server 2.14."""


class AtomicPublishDuplicateMessageError(AtomicPublishError, err_codes=(10201,)):
    """A message id stands twice in the batch, or the stream has stored it already."""


class AtomicPublishTooManyInflightError(
    AtomicPublishError, TooManyRequestsError, err_codes=(10210,)
):
    """The stream or the server has its maximum number of open batches. Retry later."""


class BatchPublishError(APIError):
    """The server rejected a fast ingest, or one of its messages."""


class BatchPublishDisabledError(
    BatchPublishError,
    FeatureDisabledError,
    err_codes=(10205,),
    advice="set allow_batched on the stream",
):
    """The stream has no `allow_batched`: `update_stream(name=..., allow_batched=True)`."""


class BatchPublishInvalidPatternError(BatchPublishError, err_codes=(10206,)):
    """The reply subject of a message does not have the form of a batch."""


class BatchPublishInvalidBatchIDError(BatchPublishError, err_codes=(10207,)):
    """The id of the batch is longer than 64 characters."""


class BatchPublishUnknownBatchIDError(BatchPublishError, err_codes=(10208,)):
    """The server does not know the batch. It has ended, or was idle for too long."""


class BatchPublishTooManyInflightError(
    BatchPublishError, TooManyRequestsError, err_codes=(10211,)
):
    """The stream or the server has its maximum number of open batches. Retry later."""
