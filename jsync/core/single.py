"""A base class of objects that cannot be copied."""

from __future__ import annotations


class Single:
    """An object at work on a connection, which can be neither copied nor pickled.

    Otherwise the end of a copy would end the original too.
    """

    def __reduce__(self) -> str:
        raise TypeError(
            f"cannot copy or pickle a {type(self).__name__}: it belongs to its connection; "
            "copy the data of its messages instead"
        )
