"""Where the answers to pulls come: a subscription, for them alone, and its backlog."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from ..._fast import Columns, JetStreamMailbox, Question
from ...core.requests import request
from ...core.session import ConnectionState, Interest
from ...errors import Error
from .engine import PROBE, says_more
from .feed import Rest, give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._fast import JetStreamMsg, Msg, Pin
    from ...core.timers import Timer
    from ...errors import ConnectionLostError
    from ..api import API
    from .engine import PullRequest
    from .priority import Claim

ON_ITS_WAY = 1.0
"""Seconds until everything has come that the server sent before it was told to stop."""
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.02
"""Seconds between two looks at how far the answers are; it doubles."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How the end of what comes for open pulls is waited for, in seconds."""

    limit: float
    silence: float
    """For so long nothing may have come."""


LAST_CHANCE = Patience(2.0, silence=0.02)
"""What the server drops then is lost: the consumer wants no acks."""
SECOND_CHANCE = Patience(0.1, silence=0.0)
"""It comes again. A consumer with too many acks pending does not answer."""


@dataclass(frozen=True, slots=True)
class Source:
    """A consumer to pull from, and as whom."""

    api: API
    consumer: str
    """Stream and consumer, with a dot between them."""
    acks: bool
    """False for a consumer whose ack policy is known to be `none`."""
    claim: Claim
    pin: Pin | None
    """Of a priority group, shared by all that pull as the same client."""
    acks_all: bool = False
    """True for a consumer whose ack policy is known to be `all`."""
    max_ack_pending: int = 0
    """So many messages may be without an ack; -1: any number, 0: not known."""

    def needs_no_ack_for(self, messages: int) -> bool:
        """Whether the server gives so many messages without waiting for acks."""
        return self.max_ack_pending < 0 or self.max_ack_pending >= messages

    def columns(self, names: Sequence[str] | None, most_rows: int = 0) -> Columns:
        """Columns for what it gives; `most_rows` in a batch, 0: any number."""
        return Columns(
            names, most_rows=most_rows, acks=self.acks, together=self.acks_all
        )


def raise_failure(mailbox: JetStreamMailbox) -> None:
    """Raise the error that has ended it, if one has."""
    if mailbox.failure is not None:
        mailbox.next(0)


class Inbox:
    """Takes the answers to pulls, and gives back what nobody reads.

    `open` it once its owner is ready: its callbacks run on the I/O thread. Without an
    `on_lost` it ends with the connection.
    """

    def __init__(
        self,
        source: Source,
        *,
        on_status: Callable[[Msg], object],
        on_lost: Callable[[ConnectionLostError], object] | None = None,
        on_connected: Callable[[], object] | None = None,
        readers: int = 1,
    ) -> None:
        # Keep the connection alive while its messages are read.
        self._owner = source.api.owner
        self._session = session = source.api.session
        self.use(source)
        self.reply = ""
        """Where the answers come, once it is open."""
        self._pulled_as = ""
        self._rest = Rest()
        self._leaving: Timer | None = None  # set when abandoned with messages in flight
        self.mailbox = JetStreamMailbox(session.outbox, 0, readers=readers)
        self.mailbox.on_status = on_status
        self.mailbox.ackless = not source.acks
        self.mailbox.pin = source.pin
        self._on_lost, self._on_connected = on_lost, on_connected

    def open(self) -> None:
        """Subscribe; that rides in the write of the first pull."""
        self._session.outbox.check_process()
        sid = self.mailbox.sid = self._session.next_sid()
        self.reply = f"{self._session.inbox}{sid}"
        interest = Interest(
            sid,
            self.reply,
            None,
            self.mailbox,
            on_lost=self._on_lost or self.close,
            on_connected=self._on_connected,
        )
        self._session.subscribe(interest, riding=True)

    def use(self, source: Source) -> None:
        """Pull from another consumer from now on."""
        self._source = source
        self._claims = bool(source.claim.group)
        self._subject = f"{source.api.prefix}.CONSUMER.MSG.NEXT.{source.consumer}"

    @property
    def acks(self) -> bool:
        """Whether what nobody reads can be given back."""
        return self._source.acks

    def renew(self) -> None:
        """Take no answer any more to what was pulled so far, but what comes from now on.

        On the I/O thread, where nothing comes meanwhile.
        """
        self._unsubscribe()
        self.open()

    def pull(self, request: PullRequest) -> None:
        """Send a pull; raises `ConnectionLostError` while disconnected."""
        self._session.outbox.publish(
            self._subject, self._with_claim(request).encode(), self.reply, request=True
        )

    def _with_claim(self, request: PullRequest) -> PullRequest:
        source = self._source
        if not self._claims:
            return request
        if source.pin is not None:
            self._pulled_as = source.pin.id
        return source.claim.on(request, self._pulled_as)

    def unpinned(self) -> bool:
        """The server does not take the pin id; whether the last pull had one.

        An id that has come since is a newer one, and kept.
        """
        if self._source.pin is not None and self._pulled_as:
            self._source.pin.drop(self._pulled_as)
            return True
        return False

    # The end --------------------------------------------------------------------------

    def close(self, error: Exception | None = None) -> None:
        """Take no more: readers get what is there, then `error` or the end."""
        if not self.mailbox.closed:
            self.mailbox.close(error)
        self._unsubscribe()
        if self._leaving is not None:
            self._leaving.cancel()  # the timer would keep this object alive until then
            self._abandoned()

    def _unsubscribe(self) -> None:
        self._session.unsubscribe(self.mailbox.sid, lazy=True)

    def collect(self, is_open: Callable[[], bool]) -> None:
        """Close, once all has come that the server sends for what was pulled.

        `is_open` says whether any of it is owed. Blocks for two round trips; when messages
        are coming until the pulls are answered, for so long as there is time.
        """
        try:
            with contextlib.suppress(Error):
                self._await_answers(is_open)
            if self.mailbox.closed:
                return
            self._session.silence(self.mailbox.sid)
            with contextlib.suppress(Error):
                # When the PONG arrives, everything that the server sent before it has
                # arrived.
                self._session.ping(monotonic() + ON_ITS_WAY)
        except BaseException:  # Ctrl-C: readers must not wait for ever
            self.close()
            raise
        self._end()

    def _await_answers(self, is_open: Callable[[], bool]) -> None:
        """Block until the server has nothing to send for the pulls that are open.

        What it has given to a pull it drops when the subscription ends before it is sent
        (or a server on the way there does). It puts it up for the next pull when it wants
        an ack and knows, and sends it no more when it wants none.
        """
        mailbox = self.mailbox
        patience = SECOND_CHANCE if self._source.acks else LAST_CHANCE
        deadline = monotonic() + patience.limit
        pause = FIRST_PAUSE
        while not mailbox.closed and is_open() and self._can_probe():
            before = mailbox.delivered
            answer = request(
                self._session,
                self._subject,
                self._with_claim(PROBE).encode(),
                deadline - monotonic(),
            )
            if not says_more(answer.status or 0, answer.status_text):
                silence = monotonic() - mailbox.last_arrival
                if mailbox.delivered == before and (
                    not before or silence >= patience.silence
                ):
                    return
            self._session.sleep(min(pause, max(0.0, deadline - monotonic())))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _can_probe(self) -> bool:
        if self._session.state is not ConnectionState.CONNECTED:
            return False
        # Without a pinned client, the server might pin the probe.
        return self._source.pin is None or bool(self._source.pin.id)

    def give_back(self) -> None:
        """Give what is not read back to the server, or keep it for `take_rest`."""
        mailbox = self.mailbox
        mailbox.on_credit = None
        self._rest.add(give_back(mailbox, acks=self._source.acks))

    def take_rest(self) -> list[JetStreamMsg]:
        """What could not be given back, once."""
        return self._rest.take()

    def abandon(self) -> None:
        """Nobody will read it: close it and give everything back, without waiting.

        For finalisers, which run on any thread and in the middle of anything.
        """
        mailbox = self.mailbox
        if mailbox.closed:
            # Break the reference cycle here: the garbage collector may find it only
            # much later.
            mailbox.on_status = mailbox.on_credit = None
            if not len(mailbox):
                return
        self._session.call_soon(self._abandon)

    def _abandon(self) -> None:
        if not self.mailbox.closed:
            self._session.silence(self.mailbox.sid)
            self._leaving = self._session.call_later(ON_ITS_WAY, self._abandoned)
        self.give_back()

    def _abandoned(self) -> None:
        self._leaving = None
        self._end()
        self.give_back()

    def _end(self) -> None:
        self.mailbox.close()
        self.mailbox.on_status = self.mailbox.on_credit = None
        self._forget()

    def _forget(self) -> None:
        self._session.forget(self.mailbox.sid)

    def __repr__(self) -> str:
        state = "closed" if self.mailbox.closed else "open"
        return (
            f"<Inbox of {self._source.consumer} {state}, {len(self.mailbox)} messages>"
        )


class LentInbox(Inbox):
    """For a single pull: its subscription was another's before, and is the next one's.

    It is given back once the pull has been answered in full, so that nothing more can
    come of it. A pull that is left earlier takes its subscription along: the server has
    nobody to send the rest to, and nothing is swallowed.
    """

    def __init__(self, source: Source, *, on_status: Callable[[Msg], object]) -> None:
        super().__init__(source, on_status=on_status)
        self.mailbox.lent = True
        self.answered = False
        """Whether the server has said that the pull has ended."""
        self._loan: list[Interest] = []  # whoever ends it takes it out, once

    def open(self) -> None:
        self._loan.append(self._session.borrow(self.mailbox, self.close))

    def pull(self, request: PullRequest) -> None:
        # One subject for each pull, so that a late status of another pull does not
        # arrive here.
        session = self._session
        self.reply = f"{session.inbox}{self.mailbox.sid}.{session.next_sid()}"
        super().pull(request)

    def is_about(self, msg: Msg) -> bool:
        """Whether a status is about the last pull."""
        return msg.subject == self.reply

    def leave(self) -> None:
        """End the pull, once all has come that the server sends for it."""
        self.collect(lambda: not self.is_settled)
        if self.mailbox.closed:
            self._unsubscribe()

    def abandon(self) -> None:
        if self.is_settled:
            self._unsubscribe()
        super().abandon()

    def _abandon(self) -> None:
        super()._abandon()
        if self.is_settled:  # settled since it was left
            self._unsubscribe()

    @property
    def is_settled(self) -> bool:
        """Whether nothing more can come of the pull."""
        return self.answered or self.mailbox.full

    def _unsubscribe(self) -> None:
        """Give the subscription back, or have it end with the pull; once."""
        try:
            interest = self._loan.pop()
        except IndexError:
            return
        if self.is_settled and not interest.silenced:
            self._session.take_back(interest)
        else:
            self._session.unsubscribe(interest.sid, lazy=True)

    def _forget(self) -> None:
        try:
            interest = self._loan.pop()
        except IndexError:
            return
        self._session.forget(interest.sid)


class KeptInbox(LentInbox):
    """For pulls of one message, one after the other and all alike.

    Between two of them the connection, which knows of its subscription, does not know of
    it: so it may be kept by what is to be collected when it is forgotten.
    """

    def __init__(
        self,
        source: Source,
        request: PullRequest,
        *,
        on_status: Callable[[Msg], object],
    ) -> None:
        super().__init__(source, on_status=on_status)
        self._request = request
        self._question: Question | None = None
        self._numbered = ""

    def open(self) -> None:
        session = self._session
        self._loan.append(session.borrow(self.mailbox, self.mailbox.close))
        self._numbered = f"{session.inbox}{self.mailbox.sid}.{session.next_sid()}_"
        payload = self._request.encode()
        self._question = Question(self.mailbox, self._subject, self._numbered, payload)

    def ask(
        self, on_status: Callable[[Msg], object], deadline: float
    ) -> JetStreamMsg | None:
        """Pull, and wait for the message; None when it has ended, or at `deadline`.

        Raises `ConnectionLostError` while disconnected, and nothing was sent then.
        """
        question = self._question
        if question is None:
            self.open()
            question = self._question
            assert question is not None
        self.reply = ""
        msg: JetStreamMsg | None = question.ask(on_status, deadline)
        return msg

    def is_about(self, msg: Msg) -> bool:
        if self.reply or self._question is None:
            return super().is_about(msg)
        return msg.subject == f"{self._numbered}{self._question.number}"
