"""Errors of services (ADR-32)."""

from __future__ import annotations

from typing import Final

from .client import Error

ERROR: Final = "Nats-Service-Error"
ERROR_CODE: Final = "Nats-Service-Error-Code"

MAX_WORDS: Final = 4096
"""The most characters of a description. It may quote a payload, and must fit without."""


class ServiceError(Error):
    """A service answered a request with an error, or is to answer with one.

    `Services.call` raises it for such an answer. Raise it in a handler, and the requester
    gets it. Neither the traceback nor a cause is sent.
    """

    def __init__(self, code: int, description: str, data: bytes = b"") -> None:
        super().__init__(f"{code}: {description}")
        self.code = code
        """A number, in the manner of HTTP. 0 if the answer had no number."""
        self.description = description
        """Words that you may show to a user."""
        self.data = data
        """The payload beside them."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of such an answer, for a handler of your own (ADR-32).

        What headers cannot carry is replaced: a line break by a blank. Of a description,
        4096 characters are sent.
        """
        words = str(self.description)[:MAX_WORDS].replace("\r", " ").replace("\n", " ")
        sendable = words.encode(errors="backslashreplace").decode()
        return {ERROR: sendable, ERROR_CODE: str(self.code)}


class ServiceReplyError(Error):
    """The reply of a service is not of the requested type.

    The message names the field. The service may be of another version: look at its INFO.
    """
