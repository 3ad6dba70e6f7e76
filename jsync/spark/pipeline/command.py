"""`python -m jsync.spark.pipeline`: run, replay or check a pipeline's file."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ...errors import Error, PipelineFileError
from .console import write
from .progress import table
from .run import check, explain, replay, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .run import Result

_CODES = """
exit codes: 0 done, 1 failed, 2 the file or the command line is wrong, 130 and 143 ended in
order by Ctrl-C and SIGTERM
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, and return the exit code. Blocks until it ends.

    0 done, 1 failed, 2 for a wrong file, 130 and 143 for Ctrl-C and SIGTERM. Each error is
    one line on standard error. Raises `SystemExit` for a wrong command line, by argparse.
    """
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "check":
            return _check(arguments)
        if arguments.command == "replay":
            return _replay(arguments)
        return _run(arguments)
    except PipelineFileError as error:
        write(str(error), err=True)
        return 2
    except Error as error:
        write(f"{arguments.file}: {error}", err=True)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jsync.spark.pipeline",
        description="Data pipelines between JetStream and files, on Spark.",
        epilog=_CODES,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="check a pipeline's file and run it")
    run_parser.add_argument("file", help="the pipeline, in TOML")
    run_parser.add_argument(
        "--explain",
        action="store_true",
        help="show the settings that jsync chooses for Spark, and do not run",
    )
    replay_parser = commands.add_parser(
        "replay", help="send a part of a stream through a pipeline again"
    )
    replay_parser.add_argument("file", help="the pipeline, in TOML")
    replay_parser.add_argument("sink", help="the sink to write into")
    replay_parser.add_argument("--source", help="the source to replay")
    replay_parser.add_argument("--subject", action="append", default=[])
    replay_parser.add_argument("--start", help="a sequence or a time")
    replay_parser.add_argument("--end", help="the same, not included")
    replay_parser.add_argument("--stream", help="write into this stream instead")
    replay_parser.add_argument(
        "--again", action="store_true", help="allow rows that are there twice"
    )
    for subparser in (run_parser, replay_parser):
        _spark_options(subparser)
    check_parser = commands.add_parser(
        "check", help="check a pipeline's file, without Spark"
    )
    check_parser.add_argument("file", help="the pipeline, in TOML")
    check_parser.add_argument("--offline", action="store_true", help="ask no server")
    return parser


def _spark_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", help="Spark's master; default: this machine")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a setting of Spark, more than once for several",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise argparse.ArgumentTypeError("a setting is spark.NAME=VALUE")
    return name, value


def _check(arguments: argparse.Namespace) -> int:
    pipeline = check(arguments.file, offline=arguments.offline)
    kind = "a batch" if pipeline.streaming is None else "streaming"
    counts = ", ".join(
        f"{len(names)} {kind}{'' if len(names) == 1 else 's'}"
        for kind, names in (
            ("source", pipeline.sources),
            ("step", pipeline.steps),
            ("sink", pipeline.sinks),
        )
    )
    write(f"{arguments.file}: {kind}, {counts}: nothing is wrong with it")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    chosen = explain(arguments.file, master=arguments.master, conf=dict(arguments.conf))
    if arguments.json:
        write(json.dumps({"choices": [choice._asdict() for choice in chosen]}))
        return 0
    for choice in chosen:
        write(f"{choice.name} = {choice.value}\n    {choice.reason}")
    if not chosen:
        write("jsync chooses nothing: every setting is yours or Spark's")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    if arguments.explain:
        return _explain(arguments)
    return _report(
        arguments,
        run(
            arguments.file,
            master=arguments.master,
            conf=dict(arguments.conf),
            quiet=arguments.quiet,
        ),
    )


def _replay(arguments: argparse.Namespace) -> int:
    return _report(
        arguments,
        replay(
            arguments.file,
            arguments.sink,
            source=arguments.source,
            subjects=arguments.subject,
            start=arguments.start,
            end=arguments.end,
            stream=arguments.stream,
            again=arguments.again,
            master=arguments.master,
            conf=dict(arguments.conf),
            quiet=arguments.quiet,
        ),
    )


def _report(arguments: argparse.Namespace, result: Result) -> int:
    if arguments.json:
        write(json.dumps({"exit_code": result.exit_code, "sinks": result.sinks}))
    elif result.sinks:
        write(table(result.sinks))
    return result.exit_code
