"""The JetStream API: its subjects, and requests to them."""

from __future__ import annotations

import re
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from .. import errors
from .._fast import Mailbox, check_publish_subject
from ..core.requests import request_until
from ..errors import (
    ConfigError,
    ConnectionLostError,
    Error,
    IncompleteListError,
    InvalidJSONError,
    InvalidSubjectError,
    JetStreamError,
    JetStreamNotEnabledError,
    NoRespondersError,
    PermissionsError,
    StreamNotFoundError,
)
from ..models import AccountInfo
from ..models.server_version import MIN_VERSION
from ..validation import check_seconds, format_seconds
from .features import (
    NO_FEATURES,
    format_version,
    missing_features,
    unsupported,
    version_of_api_level,
    version_of_config,
    version_of_server,
)
from .paging import Pages
from .replies import get_field, items_of, parse_reply
from .steps import send_next

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..core.session import HasSession
    from ..errors import UnsupportedFeatureError
    from ..models.server_version import ServerVersion
    from ..validation import Seconds
    from .features import Features
    from .steps import APIRequest, Made, ReplyOrError, Steps

INFO_TIMEOUT = 1.0
"""Seconds to wait for the version of the servers."""

LEADER_CHECK_SECONDS = 1.0
"""Seconds for which the version of a stream's leader is taken as known."""

MAX_LEADERS = 1000
"""The streams whose leaders are kept as known."""

_OWN_PREFIX = re.compile(r"\$JS\.(?:[^.]+\.)?API")
"""Prefixes of the account itself. Others lead to JetStream of another account."""

_encode = msgspec.json.Encoder().encode

_Kind = TypeVar("_Kind")


def api_prefix(domain: str | None, prefix: str | None) -> str:
    """Return the prefix of API subjects, without the last dot. Default: `$JS.API`."""
    if domain is not None and prefix is not None:
        raise ConfigError("domain and prefix exclude each other: give one")
    if domain is not None:
        if not isinstance(domain, str):
            raise ConfigError(f"domain has to be a str, not {domain!r}")
        prefix = f"$JS.{domain}.API"
    return _prefix(prefix, "$JS.API", "prefix")


def event_subjects(prefix: str | None) -> str:
    """Return the prefix of the subjects of advisories, without the last dot."""
    return _prefix(prefix, "$JS.EVENT", "event_prefix")


def _prefix(prefix: str | None, default: str, name: str) -> str:
    if not isinstance(prefix, str | None):
        raise ConfigError(f"{name} has to be a str, not {prefix!r}")
    chosen = (prefix or default).removesuffix(".")
    try:
        check_publish_subject(chosen)
    except InvalidSubjectError as error:
        raise ConfigError(f"not a subject prefix, {name}: {error}") from error
    return chosen


def _json(payload: Mapping[str, Any]) -> bytes:
    try:
        return _encode(payload)
    except UnicodeEncodeError as error:
        raise ConfigError(f"not valid Unicode: {error.object!r}") from error


class API:
    """Requests to `<prefix>.<subject>` and their JSON replies."""

    def __init__(
        self,
        owner: HasSession,
        prefix: str,
        timeout: Seconds,
        *,
        pedantic: bool = False,
    ) -> None:
        self.owner = owner
        self.session = owner._session
        self.prefix = prefix
        self.timeout = check_seconds(timeout, "timeout")
        self.strictly: dict[str, Any] = {"pedantic": True} if pedantic else {}
        """Fields that are added to each request to create or change something."""
        self._checked_version = "", MIN_VERSION
        # By the domain of an ack and the stream.
        self._leaders: dict[tuple[str | None, str], tuple[float, ServerVersion]] = {}
        self.mirrors: dict[tuple[str, str], float] = {}
        """The times at which mirrors of streams were found to keep all subjects."""

    def seconds(self, timeout: Seconds | None) -> float:
        """Return the timeout of a call, by default the context's. Raises `ConfigError`."""
        return self.timeout if timeout is None else check_seconds(timeout, "timeout")

    def request(
        self,
        subject: str,
        payload: Mapping[str, Any] | None = None,
        *,
        needs: Features = NO_FEATURES,
        timeout: Seconds | None = None,
    ) -> dict[str, Any]:
        """Send a request. Blocks for at most `timeout` seconds, by default the context's.

        With `needs`, it may take a second more, to learn the version of the servers.

        Raises the `APIError` of the reply, `JetStreamNotEnabledError` if there are no
        responders, and `UnsupportedFeatureError` if the server is too old for the features
        that the request `needs`. If possible, this is raised before the request is sent.
        """
        if needs:
            self.require(needs)
        data = b"" if payload is None else _json(payload)
        wait = self.timeout if timeout is None else check_seconds(timeout, "timeout")
        try:
            msg = request_until(
                *(self.session, f"{self.prefix}.{subject}", data),
                *(wait, monotonic() + wait, None),
            )
            reply = parse_reply(msg.data, subject)
        except (
            InvalidJSONError,
            JetStreamNotEnabledError,
            NoRespondersError,
            errors.TimeoutError,
        ) as error:
            # An older server may answer an unknown request with an error, or not at
            # all.
            if needs and (missing := missing_features(needs, self._version())):
                refused = isinstance(error, InvalidJSONError)
                outcome = (
                    "the request was rejected"
                    if refused
                    else "the request was not answered"
                )
                raise self._unsupported(missing, outcome) from error
            if isinstance(error, NoRespondersError):
                raise self.not_enabled_error() from error
            raise
        if needs and "config" in reply:
            config = get_field(reply, "config", dict[str, Any](), dict[str, Any])
            line, version = version_of_config(config)
            if missing := missing_features(needs, line):
                raise unsupported(
                    missing, version or format_version(line), "it was left out"
                )
        return reply

    def require(self, needs: Features) -> None:
        """Raise `UnsupportedFeatureError` if the servers are too old for `needs`.

        Sends nothing if the connected server has all features. Otherwise the first call
        blocks for a request.
        """
        if not needs or not missing_features(
            needs, version_of_server(self.session.info)
        ):
            return
        if missing := missing_features(needs, self._version()):
            raise self._unsupported(missing, "nothing was sent")

    def require_of_leader(
        self,
        stream: str,
        needs: Features,
        timeout: float,
        outcome: str = "nothing was sent",
        *,
        domain: str | None = None,
    ) -> None:
        """Raise `UnsupportedFeatureError` if the leader of a stream is too old for `needs`.

        In a cluster of several versions, the leader can be older than the server of the
        connection. It stores a message without the options that it does not know. Asks the
        leader, at most once a second for each stream that has all that was needed.

        `domain` is that of an ack. A stream of another domain may have the same name.
        """
        if not needs:
            return
        now, which = monotonic(), (domain, stream)
        checked_at, line = self._leaders.get(
            which, (-LEADER_CHECK_SECONDS, MIN_VERSION)
        )
        if now - checked_at < LEADER_CHECK_SECONDS and not missing_features(
            needs, line
        ):
            return
        try:
            reply = self._info_in(domain, stream, now + max(0.0, timeout))
        except PermissionsError:
            return  # without the permission, it cannot be known
        if reply is None:
            return
        empty: dict[str, Any] = {}
        line, _ = version_of_config(get_field(reply, "config", empty, dict[str, Any]))
        if missing := missing_features(needs, line):
            leader = get_field(reply, "cluster", empty, dict[str, Any]).get("leader")
            raise unsupported(
                missing,
                f"{format_version(line)}, which leads stream {stream!r} ({leader or 'no cluster'}),",
                f"{outcome}; upgrade it, or have a newer server lead, by "
                f"js.stream({stream!r}).leader_step_down()",
            )
        if len(self._leaders) >= MAX_LEADERS:
            self._leaders.clear()
        self._leaders[which] = now, line

    def _info_in(
        self, domain: str | None, stream: str, deadline: float
    ) -> dict[str, Any] | None:
        """Request the info of the stream of that name in a domain. Blocks.

        None: the streams of this prefix are of another domain, in another account perhaps.
        """
        subject = f"STREAM.INFO.{stream}"
        try:
            reply = self.request(subject, timeout=max(0.0, deadline - monotonic()))
        except (StreamNotFoundError, JetStreamNotEnabledError):
            if domain is None:
                raise
        else:
            if domain is None or reply.get("domain") in (None, domain):
                return reply
        if not _OWN_PREFIX.fullmatch(self.prefix):
            return None
        api = API(self.owner, f"$JS.{domain}.API", self.timeout)
        return api.request(subject, timeout=max(0.0, deadline - monotonic()))

    def not_enabled_error(self) -> JetStreamNotEnabledError:
        """Return the error for a request to JetStream without responders."""
        return JetStreamNotEnabledError(
            f"no responders for {self.prefix}: JetStream is off on this server, the domain "
            "or prefix is wrong, or no server of it can be reached now",
            code=503,
            err_code=10076,
        )

    def _version(self) -> ServerVersion:
        """Return the line of the responding servers. Sends one request for each connection."""
        info = self.session.info
        server, line = self._checked_version
        if server == info.server_id:
            return line
        try:
            reply = self.request("INFO", timeout=min(self.timeout, INFO_TIMEOUT))
        except (JetStreamError, errors.TimeoutError, PermissionsError):
            return version_of_server(info)
        line = version_of_api_level(AccountInfo.from_wire(reply).api.level)
        self._checked_version = info.server_id, line
        return line

    def _unsupported(self, missing: Features, outcome: str) -> UnsupportedFeatureError:
        info, line = self.session.info, self._version()
        connected = line == version_of_server(info)
        return unsupported(
            missing, info.version if connected else format_version(line), outcome
        )

    def list_pages(
        self,
        subject: str,
        what: str,
        kind: type[_Kind],
        name_of: Callable[[_Kind], str],
        payload: Mapping[str, Any],
        timeout: Seconds | None,
    ) -> Iterator[_Kind]:
        """Iterate over the items `what` of a list, and request its pages on the way.

        Each item that exists throughout comes once, even if other items are deleted or
        created during the iteration. Items that are not of `kind` are passed over. Items
        that did not reply to the server are named at the end, by an `IncompleteListError`.
        """
        pages = Pages()
        given: set[str] = set()
        missing: dict[str, None] = {}
        while not pages.is_done:
            page_request = {**payload, "offset": pages.offset}
            page = self.request(subject, page_request, timeout=timeout)
            items = items_of(page, what, kind)
            silent = get_field(page, "missing", list[str](), list[str])
            names = ["" if item is None else name_of(item) for item in items]
            # A page can also contain items that it reports as missing.
            every = sorted({*names, *silent}) if silent else names
            if not pages.take(every, get_field(page, "total", 0, int)):
                continue
            missing |= dict.fromkeys(name for name in silent if name not in given)
            for name, item in zip(names, items, strict=True):
                if item is None or name in given:
                    continue
                given.add(name)
                if name not in silent:
                    missing.pop(name, None)
                yield item
        if missing:
            names = list(missing)
            raise IncompleteListError(
                f"no answer of {', '.join(names)}: offline, or without a leader",
                missing=names,
            )

    def __repr__(self) -> str:
        return f"<API {self.prefix}>"


def answered(api: API, steps: Steps[Made], deadline: float) -> Made:
    """Send the requests of `steps`, and return their result. Blocks until `deadline`.

    A request is sent again when the connection is lost, so it must be idempotent. Raises
    the errors of the steps, and `TimeoutError`.
    """
    answer: ReplyOrError | None = None
    while True:
        try:
            ask = send_next(steps, answer)
        except StopIteration as done:
            made: Made = done.value
            return made
        try:
            answer = _answer(api, ask, deadline)
        except Error as error:
            answer = error


def _answer(api: API, ask: APIRequest, deadline: float) -> dict[str, Any]:
    subject, payload, needs = ask
    while True:
        left = deadline - monotonic()
        if left <= 0:
            raise errors.TimeoutError(f"no time is left to request {subject}")
        try:
            return api.request(
                subject, payload, needs=needs, timeout=min(api.timeout, left)
            )
        except ConnectionLostError:
            if deadline <= monotonic():
                raise


class CallbackRequest:
    """A request without waiting, sent by the constructor. It calls `then(answer)` later.

    The call comes once, on the I/O thread, at the latest after the API's timeout. The
    answer is the reply, or an error that `API.request` would raise. There is no call after
    `cancel`, or if the connection is lost or closed, which the caller has to detect.
    """

    def __init__(
        self,
        api: API,
        subject: str,
        payload: Mapping[str, Any] | None,
        then: Callable[[ReplyOrError], object],
    ) -> None:
        self._api = api
        self._session = session = api.session
        self._then: Callable[[ReplyOrError], object] | None = then
        self._subject = f"{api.prefix}.{subject}"
        self._box = Mailbox(session.write_buffer, 0, subject=self._subject)
        self._box.on_first = self._arrived
        self._token = session.reply_mux.add(self._box)
        self._timer = session.call_later(api.timeout, self._on_timeout)
        data = b"" if payload is None else _json(payload)
        reply = f"{session.reply_mux.prefix}{self._token}"
        try:
            session.open_replies()
            session.write_buffer.publish(self._subject, data, reply, request=True)
        except BaseException:
            self.cancel()
            raise

    def set_callback(self, then: Callable[[ReplyOrError], object]) -> bool:
        """Replace the callback. Returns False if it was already called or cancelled."""
        if self._then is None:
            return False
        self._then = then
        return True

    def cancel(self) -> None:
        """Forget the request. Any thread may call this."""
        self._then = None
        self._timer.cancel()
        self._session.reply_mux.discard(self._token)

    def _arrived(self) -> None:
        """Pass on the reply that has come, or the missing permission for the request."""
        msg = self._box.get(0)
        if msg is None:
            if self._box.failure is not None:
                self._answer(self._box.failure)
            return
        answer: ReplyOrError
        if msg.status == 503 and not msg.data:
            answer = self._api.not_enabled_error()
        else:
            try:
                answer = parse_reply(msg.data)
            except JetStreamError as error:
                answer = error
        self._answer(answer)

    def _on_timeout(self) -> None:
        self._answer(
            self._box.failure
            or errors.TimeoutError(
                f"no reply to {self._subject!r} within {format_seconds(self._api.timeout)}"
            )
        )

    def _answer(self, answer: ReplyOrError) -> None:
        then = self._then
        self.cancel()
        if then is not None:
            then(answer)

    def __repr__(self) -> str:
        return f"<CallbackRequest {self._subject} {'open' if self._then else 'ended'}>"
