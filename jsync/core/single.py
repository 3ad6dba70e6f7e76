"""Objects of which there is one: what a copy of them would mean."""

from __future__ import annotations


class Single:
    """Something at work on a connection; it is neither copied nor pickled.

    The end of a copy would be the end of the original.
    """

    def __reduce__(self) -> str:
        raise TypeError(
            f"cannot copy or pickle a {type(self).__name__}: it belongs to its connection; "
            "copy the data of its messages instead"
        )
