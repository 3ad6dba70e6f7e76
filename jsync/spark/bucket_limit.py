"""The limit of a bucket on an account that requires one for each stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import InvalidStreamConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")

MAX_BYTES: Final = 16 << 20
"""The `max_bytes` of such a bucket: room for the fence of some hundred queries."""
_REQUIRED: Final = 10113
"""The error code for a stream without `max_bytes`, if the account requires it."""


def create_bucket(create: Callable[..., T], **options: Any) -> T:
    """Create a bucket, with a limit only if the account requires one. Blocks."""
    try:
        return create(**options)
    except InvalidStreamConfigError as error:
        if error.err_code != _REQUIRED:
            raise
        return create(**options, max_bytes=MAX_BYTES)
