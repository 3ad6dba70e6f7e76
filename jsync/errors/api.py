"""Error replies of the JetStream API: a class for each condition, found by `err_code`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .jetstream import JetStreamError

if TYPE_CHECKING:
    from collections.abc import Mapping


class APIError(JetStreamError):
    """An error reply of the JetStream API.

    Known `err_code`s have a class of their own; an unknown one is this class itself.
    """

    by_err_code: ClassVar[dict[int, type[APIError]]] = {}

    def __init_subclass__(cls, *, err_codes: tuple[int, ...] = ()) -> None:
        super().__init_subclass__()
        for err_code in err_codes:
            APIError.by_err_code[err_code] = cls

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        err_code: int = 0,
        description: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        """HTTP-like: 400, 404, 503."""
        self.err_code = err_code
        """The server's own number of the error, 10003 for instance."""
        self.description = description
        """The server's words."""


# What is not there, and what is there already ------------------------------------------


class NotFoundError(APIError):
    """What was asked for is not there."""


class StreamNotFoundError(NotFoundError, err_codes=(10059, 10096)):
    """There is no stream of that name. Create it, or look at the account and domain."""


class ConsumerNotFoundError(NotFoundError, err_codes=(10014,)):
    """There is no consumer of that name, or it went for not being used."""


class ConsumerDoesNotExistError(ConsumerNotFoundError, err_codes=(10149,)):
    """An update of a consumer that does not exist. Create it."""


class MessageNotFoundError(NotFoundError, err_codes=(10037, 10043)):
    """The stream has no such message: it never had, or it is deleted or expired."""


class AccountNotFoundError(NotFoundError, err_codes=(10035,)):
    """The server that is to hold it does not know the account."""


class AlreadyExistsError(APIError):
    """A stream or consumer of that name exists with another configuration.

    `differences` has the fields that differ: `{name: (asked for, existing)}`.
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
    """A stream of that name exists with another configuration. Update it, or rename."""


class ConsumerExistsError(AlreadyExistsError, err_codes=(10148, 10013, 10105, 10106)):
    """A consumer of that name exists with another configuration. Update it, or rename."""


class SubjectOverlapError(APIError, err_codes=(10065,)):
    """Another stream already takes some of these subjects. Take others, or source it."""


# JetStream itself ----------------------------------------------------------------------


class JetStreamNotEnabledError(APIError, err_codes=(10076,)):
    """The server runs without JetStream. Start it with `-js`, or look at the domain."""


class JetStreamNotEnabledForAccountError(APIError, err_codes=(10039,)):
    """The server has JetStream, but not for this account: its configuration says so."""


class JetStreamUnavailableError(APIError, err_codes=(10007, 10008, 10009, 10063)):
    """No leader, or one that is behind, as during an election. Try again in a second."""


class StreamOfflineError(JetStreamUnavailableError, err_codes=(10118, 10194)):
    """The servers of the stream are down, or too old for it."""


class ConsumerOfflineError(JetStreamUnavailableError, err_codes=(10119, 10195)):
    """The servers of the consumer are down, or too old for it."""


class RequiredAPILevelError(APIError, err_codes=(10185,)):
    """The server's API level is under the `Nats-Required-Api-Level` of the request."""


class BadRequestError(
    APIError,
    err_codes=(
        *(10003, 10038, 10056, 10193),
        *(10016, 10017, 10018, 10020, 10131, 10225),
    ),
):
    """The server could not make sense of the request, or its parts contradict."""


class InvalidJSONError(BadRequestError, err_codes=(10025,)):
    """The server could not read the request's JSON.

    From 2.12 on this is what a server says of fields that are newer than it is.
    """


class PedanticError(BadRequestError, err_codes=(10157,)):
    """In pedantic mode the server refuses what it would have corrected otherwise."""


# Limits --------------------------------------------------------------------------------


class LimitExceededError(APIError, err_codes=(10053,)):
    """A limit of the server, the account or the stream is reached."""


class MaximumStreamsError(LimitExceededError, err_codes=(10027,)):
    """The account has as many streams as it may. Delete some, or raise its limit."""


class MaximumConsumersError(LimitExceededError, err_codes=(10026,)):
    """The stream or account has as many consumers as it may. Delete some, or allow more."""


class AccountResourcesExceededError(LimitExceededError, err_codes=(10002, 10120)):
    """The account has no room left, or no limits for so many replicas."""


class InsufficientResourcesError(LimitExceededError, err_codes=(10023, 10028, 10047)):
    """The servers have no memory, disk or peers left for it. Free some, or ask less."""


class NoSuitablePeersError(InsufficientResourcesError, err_codes=(10005,)):
    """No servers fit `num_replicas` and `placement`. Ask for fewer, or other tags."""


class MessageTooLargeError(LimitExceededError, err_codes=(10054, 10097)):
    """Larger than the stream's `max_msg_size`, or headers of more than 64 KiB."""


class TooManyRequestsError(LimitExceededError, err_codes=(10167,)):
    """More is published than the stream can store. The message is not stored.

    Publishers wait and send it again until their timeout. Keep fewer bytes in flight.
    """


# Configurations ------------------------------------------------------------------------


class InvalidStreamConfigError(
    APIError,
    err_codes=(
        *(10021, 10022, 10024, 10052, 10113, 10123, 10128, 10133),
        # Of mirrors.
        *(10030, 10031, 10034, 10055, 10142, 10143, 10150, 10151, 10152, 10154),
        *(10173, 10186, 10198, 10209, 10213, 10214),
        # Of sources.
        *(10046, 10140, 10141, 10144, 10145, 10146, 10147, 10187),
        *(10215, 10216, 10217),
        # Of transforms.
        *(10155, 10156),
    ),
):
    """A field, a combination or a change that no stream may have; the words say which."""


class StreamLimitExceededError(
    InvalidStreamConfigError, LimitExceededError, err_codes=(10122,)
):
    """The stream's `max_bytes` is more than the account allows a stream."""


class StreamMoveInProgressError(APIError, err_codes=(10124, 10226)):
    """The stream is on its way to other servers. Wait until it is there."""


class ReplicasNotSupportedError(APIError, err_codes=(10074,)):
    """`num_replicas` above 1 on a server without a cluster."""


class InvalidConsumerConfigError(
    APIError,
    err_codes=(
        *(10078, 10079, 10080, 10081, 10082, 10083, 10084, 10086, 10087, 10088),
        *(10089, 10090, 10091, 10094, 10095, 10102, 10103, 10107, 10108, 10112),
        *(10114, 10115, 10116, 10126, 10127, 10132, 10134, 10135),
        *(10181, 10182, 10183, 10184),
        # Of ack policy flow_control.
        *(10218, 10219, 10220, 10221, 10222),
    ),
):
    """A field or a combination that no consumer may have; the words say which."""


class ConsumerLimitExceededError(
    InvalidConsumerConfigError, LimitExceededError, err_codes=(10121, 10125, 10153)
):
    """More than the stream's `consumer_limits`, the account or the server allows."""


class DuplicateFilterSubjectsError(
    InvalidConsumerConfigError, err_codes=(10136, 10137)
):
    """Both `filter_subject` and `filter_subjects`. Give one."""


class OverlappingFilterSubjectsError(InvalidConsumerConfigError, err_codes=(10138,)):
    """Two of `filter_subjects` match the same subjects."""


class EmptyFilterError(InvalidConsumerConfigError, err_codes=(10139,)):
    """An empty string among `filter_subjects`. Leave it out; no filter is all subjects."""


class PriorityGroupError(
    InvalidConsumerConfigError,
    err_codes=(10159, 10160, 10161, 10162, 10178, 10196, 10197),
):
    """A priority group that the consumer does not or may not have."""


class WorkQueueConsumerError(
    InvalidConsumerConfigError, err_codes=(10098, 10099, 10100, 10101)
):
    """A work queue's consumers have to be explicit, for all, and to share no subject."""


class InvalidResetError(APIError, err_codes=(10204,)):
    """The consumer cannot be reset to that sequence: it has to be where it may start."""


# What was tried and failed -------------------------------------------------------------


class OperationFailedError(APIError, err_codes=(10051,)):
    """The server tried, and failed; the words say why."""


class StreamCreateError(OperationFailedError, err_codes=(10049,)):
    """The stream could not be created; the words say why."""


class StreamUpdateError(OperationFailedError, err_codes=(10069,)):
    """The stream could not be updated; the words say why."""


class StreamDeleteError(OperationFailedError, err_codes=(10050,)):
    """The stream could not be deleted; the words say why."""


class StreamPurgeError(OperationFailedError, err_codes=(10110,)):
    """The stream could not be purged: it has `deny_purge` for instance."""


class MessageDeleteError(OperationFailedError, err_codes=(10057,)):
    """The message could not be deleted: it is not there, or the stream has `deny_delete`."""


class ConsumerCreateError(OperationFailedError, err_codes=(10012,)):
    """The consumer could not be created, or a field of it cannot be updated."""


class ConsumerStoreError(OperationFailedError, err_codes=(10104,)):
    """The state of the consumer could not be stored. Look at the server's disk and log."""


# Publishing ----------------------------------------------------------------------------


class StreamStoreError(OperationFailedError, err_codes=(10077,)):
    """The message could not be stored: the stream is full and discards what is new."""


class StreamSealedError(APIError, err_codes=(10109,)):
    """The stream is sealed: nothing can be added, deleted or purged any more."""


class RollupError(OperationFailedError, err_codes=(10111,)):
    """`Nats-Rollup` of a word that is not known, or without `allow_rollup_hdrs`."""


class DuplicateMessageConflictError(APIError, err_codes=(10158,)):
    """Another message with the same id is being stored. This one is not stored.

    Publish it again: the ack says `duplicate` once the other one is stored.
    """


class SourceHeaderError(APIError, err_codes=(10227,)):
    """`Nats-Stream-Source` is the server's own header. Leave it out."""


class WrongExpectationError(APIError):
    """The stream is not as the message's `expected_` options say; nothing was stored."""


class WrongLastSequenceError(WrongExpectationError, err_codes=(10071, 10164)):
    """The stream or subject has another last sequence. Read it again, then decide."""


class WrongLastMsgIDError(WrongExpectationError, err_codes=(10070,)):
    """The last message of the stream has another id than expected."""


class StreamMismatchError(WrongExpectationError, err_codes=(10060,)):
    """The message reached another stream than the expected one."""


class FeatureDisabledError(APIError):
    """The stream does not allow it. Update the stream, and then publish again."""


class MessageTTLError(APIError):
    """Something is wrong with the `ttl` of a message."""


class MessageTTLDisabledError(
    MessageTTLError, FeatureDisabledError, err_codes=(10166,)
):
    """A `ttl`, but the stream has no `allow_msg_ttl`: update it."""


class MessageTTLInvalidError(MessageTTLError, err_codes=(10165,)):
    """A `ttl` that the server does not understand: whole seconds from 1, or never."""


class MessageCounterError(APIError):
    """Something is wrong with the `incr` of a message."""


class MessageIncrDisabledError(
    MessageCounterError, FeatureDisabledError, err_codes=(10168,)
):
    """An `incr`, but the stream has no `allow_msg_counter`, which only creating it can set."""


class MessageIncrInvalidError(MessageCounterError, err_codes=(10169, 10170, 10171)):
    """On a stream with `allow_msg_counter` a message has to be an `incr` and no data."""


class MessageCounterBrokenError(MessageCounterError, err_codes=(10172,)):
    """What the stream stored last for this counter is no number. Purge the subject."""


class MessageScheduleError(APIError):
    """Something is wrong with the `schedule` options of a message."""


class MessageSchedulesDisabledError(
    MessageScheduleError, FeatureDisabledError, err_codes=(10188,)
):
    """A `schedule`, but the stream has no `allow_msg_schedules`: update it."""


class MessageScheduleInvalidError(
    MessageScheduleError,
    err_codes=(10189, 10190, 10191, 10192, 10203, 10212, 10223),
):
    """The schedule, its target, source, ttl, rollup or time zone is not valid."""


# Batches (ADR-50) ----------------------------------------------------------------------


class AtomicPublishError(APIError):
    """The server refused an atomic batch; nothing of it is stored."""


class AtomicPublishDisabledError(
    AtomicPublishError, FeatureDisabledError, err_codes=(10174,)
):
    """The stream has no `allow_atomic`: `update_stream(name=..., allow_atomic=True)`."""


class AtomicPublishMissingSeqError(AtomicPublishError, err_codes=(10175,)):
    """A message of the batch has no batch sequence."""


class AtomicPublishIncompleteBatchError(AtomicPublishError, err_codes=(10176,)):
    """The server does not have the whole batch: a message was lost, or it took too long.

    So it is too when the batch was committed already, and this is a second try.
    """


class AtomicPublishUnsupportedHeaderError(AtomicPublishError, err_codes=(10177,)):
    """A header that no message of a batch may have, `expected_last_msg_id` for one."""


class AtomicPublishInvalidBatchIDError(AtomicPublishError, err_codes=(10179,)):
    """The id of the batch is longer than 64 characters."""


class AtomicPublishTooLargeBatchError(
    AtomicPublishError, LimitExceededError, err_codes=(10199,)
):
    """More messages than a batch may have, 1000 unless the server is set up otherwise."""


class AtomicPublishInvalidBatchCommitError(AtomicPublishError, err_codes=(10200,)):
    """A commit that the server does not know, such as `eob` before nats-server 2.14."""


class AtomicPublishDuplicateMessageError(AtomicPublishError, err_codes=(10201,)):
    """A message id is twice in the batch, or the stream has stored it already."""


class AtomicPublishTooManyInflightError(
    AtomicPublishError, TooManyRequestsError, err_codes=(10210,)
):
    """The stream or server has as many open batches as it may have. Try again later."""


class BatchPublishError(APIError):
    """The server refused a fast-ingest batch, or a message of it."""


class BatchPublishDisabledError(
    BatchPublishError, FeatureDisabledError, err_codes=(10205,)
):
    """The stream has no `allow_batched`: `update_stream(name=..., allow_batched=True)`."""


class BatchPublishInvalidPatternError(BatchPublishError, err_codes=(10206,)):
    """The reply subject of a message does not have the form of a batch."""


class BatchPublishInvalidBatchIDError(BatchPublishError, err_codes=(10207,)):
    """The id of the batch is longer than 64 characters."""


class BatchPublishUnknownBatchIDError(BatchPublishError, err_codes=(10208,)):
    """The server knows no such batch: it has ended, or was idle for too long."""


class BatchPublishTooManyInflightError(
    BatchPublishError, TooManyRequestsError, err_codes=(10211,)
):
    """The stream or server has as many open batches as it may have. Try again later."""
