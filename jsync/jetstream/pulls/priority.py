"""Priority groups, which determine the client that a consumer serves (ADR-42).

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from ...errors import ConfigError
from ...validation import check_count, check_int
from ..features import PRIORITIES, PRIORITY_GROUPS

if TYPE_CHECKING:
    from ...models import ConsumerConfig
    from ..features import Features
    from .engine import PullRequest

GROUP_NAME: Final = re.compile(r"[A-Za-z0-9/_=-]{1,16}")
MAX_PRIORITY: Final = 9


@dataclass(frozen=True, slots=True)
class PriorityOptions:
    """The place of a client's pulls in a priority group, from `check_priority_options`."""

    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int = 0

    @property
    def required_features(self) -> Features:
        """The features that a group needs, since older servers ignore them."""
        return PRIORITIES if self.priority else PRIORITY_GROUPS

    def apply(self, request: PullRequest, pin: str) -> PullRequest:
        """Add this claim to `request`, and the id of the pinned client if it is known."""
        if not self.group:
            return request
        return msgspec.structs.replace(
            request,
            group=self.group,
            id=pin,
            min_pending=self.min_pending,
            min_ack_pending=self.min_ack_pending,
            priority=self.priority,
        )


NO_OPTIONS: Final = (None, None, None, None)
NO_PRIORITY: Final = PriorityOptions()


def check_priority_options(
    group: str | None,
    min_pending: int | None,
    min_ack_pending: int | None,
    priority: int | None,
    config: ConsumerConfig | None,
) -> PriorityOptions:
    """Check the options of a pull. `config` is the consumer's, or None if unknown.

    Raises `ConfigError` for options that the server would reject or ignore.
    """
    if min_pending is not None:
        min_pending = check_int(min_pending, "min_pending", 1)
    if min_ack_pending is not None:
        min_ack_pending = check_int(min_ack_pending, "min_ack_pending", 1)
    if priority is not None:
        priority = check_count(priority, "priority", 0, MAX_PRIORITY)
    if group is None and (min_pending, min_ack_pending, priority) != (None, None, None):
        raise ConfigError(
            "min_pending, min_ack_pending and priority are for priority groups: give a "
            "group, too"
        )
    if group is not None and (
        type(group) is not str or not GROUP_NAME.fullmatch(group)
    ):
        raise ConfigError(
            "a group has 1 to 16 letters, digits or any of '/_=-' for a name, not "
            f"{group!r}"
        )
    if config is not None:
        _check_against(config, group, min_pending or min_ack_pending, priority)
    return PriorityOptions(
        group or "", min_pending or 0, min_ack_pending or 0, priority or 0
    )


def _check_against(
    config: ConsumerConfig,
    group: str | None,
    overflow: int | None,
    priority: int | None,
) -> None:
    groups, policy = config.priority_groups or [], config.priority_policy or "none"
    if policy == "none":
        if group is not None:
            raise ConfigError("this consumer has no priority groups: give no group")
        return
    if group not in groups:
        names = ", ".join(repr(name) for name in groups)
        raise ConfigError(
            f"this consumer serves priority groups: group is one of {names}, not "
            f"{group!r}"
        )
    if overflow is not None and policy != "overflow":
        raise ConfigError(
            "min_pending and min_ack_pending are for the priority policy 'overflow', not "
            f"for {policy!r}"
        )
    if priority is not None and policy != "prioritized":
        raise ConfigError(
            f"priority is for the priority policy 'prioritized', not for {policy!r}"
        )
