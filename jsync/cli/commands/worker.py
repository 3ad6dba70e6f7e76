"""`jsync worker`: run the handlers of a `jsync.Worker` in supervised processes."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

import jsync
from jsync.worker import (
    http as web,
    logs as worker_logs,
    process,
    process_pool,
    reload as watched,
    supervisor,
)

from ..groups import ExampleCommand
from ..params.values import DURATION, Number
from ..ui.errors import print_error
from ..ui.output import echo

if TYPE_CHECKING:
    from ..params.settings import Settings


class _Logs(logging.Handler):
    """A handler that writes logs to the standard error, escaped."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            echo(self.format(record), err=True)
        except Exception:  # noqa: BLE001 - as logging.StreamHandler does
            self.handleError(record)


@click.command(
    cls=ExampleCommand,
    example="jsync worker billing:app --processes 2 --http 127.0.0.1:8080",
)
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--processes",
    "-n",
    type=Number(1),
    default=1,
    help="The number of processes. Default: 1.",
)
@click.option(
    "--http", metavar="HOST:PORT", help="Serve health and metrics on this address."
)
@click.option(
    "--grace",
    type=DURATION,
    default=30.0,
    help="The time for handlers to end. Default: 30s.",
)
@click.option(
    "--start-timeout",
    type=DURATION,
    default=process_pool.START_SECONDS,
    help="Time for a process to start, without the time in which no server answers. Default: 5m.",
)
@click.option(
    "--heartbeat-timeout",
    type=DURATION,
    default=process_pool.HEARTBEAT_SECONDS,
    help="Time without a sign of life until a process is replaced. Default: 1m.",
)
@click.option(
    "--logs",
    type=click.Choice(["json", "text"]),
    default="json",
    help="The format of logs on the standard error. Default: json.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="Replace the processes when a Python file changes. For development.",
)
@click.pass_obj
def worker(
    settings: Settings,
    target: str,
    processes: int,
    http: str | None,
    grace: float,
    start_timeout: float,
    heartbeat_timeout: float,
    logs: str,
    reload: bool,
) -> None:
    """Run the handlers of a worker until SIGTERM.

    MODULE:NAME is a `jsync.Worker`, and MODULE alone means MODULE:app. Modules are imported
    from the working directory. A
    process that ends is restarted, with growing pauses. If five processes in a row end
    before they are ready, the command fails. A process that does not start within --start-timeout
    is replaced, and so is one that is frozen for --heartbeat-timeout. While no server answers, the
    processes retry. SIGTERM and Ctrl-C let the handlers
    end within --grace. SIGHUP replaces the processes one by one, and so does --reload after each
    change of a Python file below the working directory. --http serves /livez, /readyz and /metrics.
    """
    written = _Logs()
    written.setFormatter(
        worker_logs.JSONFormatter()
        if logs == "json"
        else worker_logs.TextFormatter(f"%(asctime)s {logging.BASIC_FORMAT}")
    )
    logging.basicConfig(level=logging.INFO, handlers=[written], force=True)
    if process.REPORT_VARIABLE in os.environ:  # a child that `jsync worker` has started
        app = _load(target)
        process.run(
            lambda: app.connect(lambda: _connect(settings, target)),
            lambda nc: app.start(nc, settings.jetstream(nc)),
            grace,
        )
        return
    command = [sys.executable, "-m", "jsync", *sys.argv[1:]]
    pool = supervisor.Supervisor(
        command, processes, grace, start_timeout, heartbeat_timeout
    )
    with contextlib.ExitStack() as stack:
        if http is not None:
            port = stack.enter_context(web.serve(web.parse_address(http), pool))
            print_error(f"health and metrics on port {port}")
        if reload:
            stack.enter_context(watched.watch_files(os.getcwd(), pool.replace))
        pool.run()


def _connect(settings: Settings, target: str) -> jsync.Connection:
    """Connect with the options of the command."""
    try:
        return settings.connect(name=f"jsync worker {target}")
    except click.ClickException as error:
        if isinstance(error.__cause__, jsync.errors.ConnectionError):
            # Keep the advice of the command, but raise an error that is retried.
            raise jsync.errors.ConnectionError(error.message) from error.__cause__
        raise


def _load(target: str) -> jsync.Worker:
    """Import the worker that `module:name` names."""
    module, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: object = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the missing module is imported by the user's module
        raise click.UsageError(
            f"{target}: there is no module {error.name} here; give MODULE:NAME, such as "
            "billing:app for app of billing.py"
        ) from None
    for part in (name or "app").split("."):
        found = getattr(found, part, None)
    if not isinstance(found, jsync.Worker):
        raise click.UsageError(
            f"{target}: {name or 'app'} of {module} is not a jsync.Worker; give MODULE:NAME"
        )
    return found
