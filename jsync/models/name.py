"""The rules for the names of streams and consumers, and for subjects."""

from collections.abc import Sequence
from typing import Any, Final

from .._fast import check_publish_subject, check_subscribe_subject
from ..errors import ConfigError, InvalidSubjectError

_MAX_NAME: Final = 255


def check_name(name: str, what: str = "name") -> None:
    """Raise `ConfigError` unless a stream or a consumer may have that name.

    `what` names the checked field in the error.
    """
    if not isinstance(name, str):
        raise ConfigError(f"{what}: a string, not {type(name).__name__}")
    if not name:
        raise ConfigError(f"{what}: empty")
    for character in name:
        if character in ".*>/\\" or character.isspace() or not character.isprintable():
            raise ConfigError(f"{what}: {name!r} may not contain {character!r}")
    if len(name.encode()) > _MAX_NAME:
        raise ConfigError(f"{what}: longer than {_MAX_NAME} bytes")


def check_filter(subject: str, what: str) -> None:
    """Raise `ConfigError` unless `subject` can be subscribed to, wildcards included."""
    try:
        check_subscribe_subject(subject)
    except InvalidSubjectError as error:
        raise ConfigError(f"{what}: {error}") from error


def check_filters(subjects: Sequence[Any] | None, what: str) -> None:
    for subject in subjects or ():
        check_filter(subject, what)


def check_literal(subject: str, what: str) -> None:
    """Raise `ConfigError` unless `subject` can be published to."""
    try:
        check_publish_subject(subject)
    except InvalidSubjectError as error:
        raise ConfigError(f"{what}: {error}") from error
