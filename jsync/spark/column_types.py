"""The columns of messages, entries and objects, with the names of their types in Spark. Pure."""

from __future__ import annotations

from typing import Final

MESSAGE_TYPES: Final = {
    "stream": "string",
    "subject": "string",
    "sequence": "bigint",
    "timestamp": "timestamp",
    "headers": "map<string,array<string>>",
    "data": "binary",
}
ENTRY_TYPES: Final = {
    "key": "string",
    "value": "binary",
    "revision": "bigint",
    "timestamp": "timestamp",
    "operation": "string",
}
"""The columns of a key-value bucket."""
OBJECT_TYPES: Final = {
    "path": "string",
    "modificationTime": "timestamp",
    "length": "bigint",
    "content": "binary",
    "digest": "string",
}
"""The columns of an object store: as Spark's `binaryFile` has them, and the digest."""
