"""The `with` blocks of whatever is closed, stopped or unsubscribed at their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConnectionClosedError, Error

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Closing:
    """Closed at the end of its `with` block."""

    def close(self) -> None:
        """End the object."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Unsubscribing:
    """Unsubscribed at the end of its `with` block; raises nothing over its exception."""

    def unsubscribe(self) -> None:
        """End the subscription."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.unsubscribe()
        except ConnectionClosedError:
            pass
        except Error as second:
            if error is None:
                raise
            error.add_note(str(second))


class Stopping:
    """Stopped at the end of its `with` block; raises nothing over its exception."""

    def stop(self) -> None:
        """End the object."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except Error as second:
            if error is None:
                raise
            error.add_note(str(second))
