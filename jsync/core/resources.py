"""Base classes of objects that are closed at the end of a `with` block or cannot be copied."""

from __future__ import annotations

from abc import ABC, abstractmethod

from .._fast import ends_by, enter_self
from ..errors import ConnectionClosedError, Error


class NotCopyable:
    """An object at work on a connection, which can be neither copied nor pickled.

    Otherwise the end of a copy would end the original too.
    """

    def __reduce__(self) -> str:
        raise TypeError(
            f"cannot copy or pickle a {type(self).__name__}: it belongs to its connection; "
            "copy the data of its messages instead"
        )


class CloseOnExit(ABC):
    """An object that is closed at the end of its `with` block."""

    @abstractmethod
    def close(self) -> None:
        """End the object."""

    def _end_nowait(self) -> None:
        """End the object without waiting, after Ctrl-C has interrupted its end."""
        self.close()

    __enter__ = enter_self

    @ends_by(lambda self: self._end_nowait())
    def __exit__(self, *_: object) -> None:
        self.close()


class UnsubscribeOnExit(ABC):
    """An object that is unsubscribed at the end of its `with` block.

    If the block raised an exception, an error of `unsubscribe` becomes a note of it.
    """

    @abstractmethod
    def unsubscribe(self) -> None:
        """End the subscription."""

    __enter__ = enter_self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            self.unsubscribe()
        except ConnectionClosedError:
            pass
        except Error as second:
            if error is None:
                raise
            error.add_note(str(second))


class StopOnExit(ABC):
    """An object that is stopped at the end of its `with` block.

    If the block raised an exception, an error of `stop` becomes a note of it.
    """

    @abstractmethod
    def stop(self) -> None:
        """End the object."""

    @abstractmethod
    def _end_nowait(self) -> None:
        """End the object without waiting, after Ctrl-C has interrupted its end."""

    __enter__ = enter_self

    @ends_by(lambda self: self._end_nowait())
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            self.stop()
        except Error as second:
            if error is None:
                raise
            error.add_note(str(second))
