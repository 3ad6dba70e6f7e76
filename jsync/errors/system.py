"""Errors of requests to the servers themselves (`$SYS`)."""

from __future__ import annotations

from .client import Error


class SystemAccountError(Error):
    """No server answers, because your user does not belong to the system account.

    Connect as a user of the system account. In a configuration file, this is an account
    with users that `system_account` names, such as
    `accounts { SYS { users: [{user: admin, password: ...}] } }, system_account: SYS`.
    """


class ServerNotFoundError(Error):
    """No server has that name or id, or it has stopped.

    `nc.system().servers()` lists the servers.
    """


class SystemRequestError(Error):
    """A server rejected a request to it, or could not do it.

    The message has the words of the server.
    """

    def __init__(
        self, message: str, *, code: int = 0, description: str = "", server: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        """A number, in the manner of HTTP."""
        self.description = description
        """The words of the server."""
        self.server = server
        """The name of the server."""
