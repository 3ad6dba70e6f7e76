"""`jsync pipeline`: data pipelines on Spark, from a TOML file."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from .completion import FILE
from .family import Family

if TYPE_CHECKING:
    from .settings import Settings


_NEEDED: Final = 'pipelines need pip install "jsync[spark]"'


@click.group(cls=Family)
def pipeline() -> None:
    """Run and check data pipelines on Spark."""


@pipeline.command("run")
@click.argument("file", type=FILE)
@click.option("--master", metavar="URL", help="Spark's master. Default: this machine.")
@click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Spark. Can be repeated.",
)
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
@click.pass_obj
def run(
    settings: Settings,
    file: str,
    master: str | None,
    conf: tuple[str, ...],
    quiet: bool,
) -> int:
    """Check a pipeline's file and run it.

    FILE says which server and streams, and what becomes of them. Ctrl-C and SIGTERM end a
    streaming pipeline in order: exit code 130 or 143. 2 is a file that is wrong, with a
    line for each thing that is.
    """
    _check_options(settings)
    if find_spec("pyspark") is None:
        raise click.ClickException(_NEEDED)
    arguments = ["run", file]
    if master is not None:
        arguments += ["--master", master]
    for setting in conf:
        arguments += ["--conf", setting]
    if quiet:
        arguments.append("--quiet")
    if settings.json:
        arguments.append("--json")
    return _main(arguments)


@pipeline.command("check")
@click.argument("file", type=FILE)
@click.option("--offline", is_flag=True, help="Ask no server for the streams.")
@click.pass_obj
def check(settings: Settings, file: str, offline: bool) -> int:
    """Check a pipeline's file, without Spark.

    In full: names, options, schemas, SQL, and, unless --offline, the streams of the
    server that it names. Exit code 2, and a line for each thing that is wrong.
    """
    _check_options(settings)
    return _main(["check", file, *(["--offline"] if offline else [])])


def _check_options(settings: Settings) -> None:
    others = [name for name in settings.given if name != "json"]
    if others:
        raise click.UsageError(
            f"--{others[0].replace('_', '-')}: not for pipelines, whose file says where to connect"
        )


def _main(arguments: list[str]) -> int:
    try:
        from jsync.spark.pipeline import main
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{_NEEDED} (there is no {error.name})") from None
    try:
        return main(arguments)
    except SystemExit as end:  # of argparse, which has said why
        return end.code if isinstance(end.code, int) else 2
