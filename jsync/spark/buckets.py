"""The messages of a key-value bucket, as its stream stores them (ADR-8, ADR-48). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..errors import ConfigError, InvalidBucketError
from ..models import check_filter
from .options import invalid_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..models import StreamConfig

STREAM_PREFIX: Final = "KV_"
OBJECT_PREFIX: Final = "OBJ_"
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")
_BY_WORD: Final = {"DEL": "DEL", "PURGE": "PURGE"}
_BY_REASON: Final = {"MaxAge": "PURGE", "Purge": "PURGE", "Remove": "DEL"}


def check_bucket(bucket: str) -> None:
    """Raise `ConfigError` unless a bucket can have this name."""
    if not _NAME.fullmatch(bucket):
        raise invalid_option("bucket", "the name of one bucket", bucket)


def check_keys(keys: tuple[str, ...]) -> None:
    """Raise `ConfigError` unless these are keys or patterns."""
    for key in keys:
        try:
            check_filter(key, "keys")
        except ConfigError as error:
            expected = "keys or patterns such as user.*, separated by commas"
            raise invalid_option("keys", expected, key) from error


def bucket_prefix(config: StreamConfig) -> str:
    """Return the subjects of the stream of a bucket up to the key.

    A mirror has the subjects of the mirrored bucket, unless it transforms them. Raises
    `InvalidBucketError` if the stream is no bucket.
    """
    if (config.max_msgs_per_subject or 0) < 1:
        raise InvalidBucketError(
            f"stream {config.name!r} is no bucket, because it has no max_msgs_per_subject: "
            "read it with option stream"
        )
    stream, mirror = config.name or "", config.mirror
    if mirror is not None:
        stream = mirror.name or ""
        for transform in mirror.subject_transforms or ():
            words = (transform.dest or "").split(".")
            if words[0] == "$KV" and len(words) > 2:
                stream = words[1]
                break
    return f"$KV.{stream.removeprefix(STREAM_PREFIX)}."


def operation_of(headers: Mapping[str, str] | None) -> str:
    """Return the operation of a message of a bucket: `PUT`, `DEL` or `PURGE`."""
    if not headers:
        return "PUT"
    if word := headers.get("KV-Operation"):
        return _BY_WORD.get(
            word, "PUT"
        )  # other clients take another word for a put, too
    return _BY_REASON.get(headers.get("Nats-Marker-Reason", ""), "PUT")
