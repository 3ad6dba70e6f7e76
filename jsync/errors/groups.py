"""Errors of consumer groups."""

from __future__ import annotations

from .jetstream import JetStreamError


class ConsumerGroupNotFoundError(JetStreamError):
    """There is no consumer group of that name on the stream.

    Create it, or check the names, the account and the domain.
    """


class ConsumerGroupExistsError(JetStreamError):
    """A consumer group of that name exists with another configuration.

    Bind to it with `consumer_group`, or delete it first.
    """


class ConsumerGroupChangedError(JetStreamError):
    """The configuration of the group changed in a way that members cannot follow.

    A static group allows no change. An elastic group allows changes of its members only.
    Join again.
    """


class InvalidConsumerGroupError(JetStreamError):
    """The stored configuration of the group is not valid. Delete the group and create it."""


class NotInConsumerGroupError(JetStreamError):
    """The static group has no member of that name."""
