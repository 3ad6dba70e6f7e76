"""Tests of the behaviour that all commands share."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click
import pytest

from jsync import StreamConfig, StreamInfo, __version__, errors
from jsync.cli import commands
from jsync.cli.app import app
from jsync.cli.params.global_options import OPTIONS
from jsync.cli.params.settings import Settings
from jsync.cli.ui import errors as failures
from jsync.cli.ui.errors import ExitCode, code_of
from jsync.cli.ui.lists import write_infos

from ..support.connections import black_hole, refusing_url
from ..support.processes import run_child
from .support import Jsync
from .tree import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync import JetStream, Stream
    from jsync.server import LocalServer

    from ..conftest import StartServer

TABLE = [
    (name, command)
    for section in commands.SECTIONS.values()
    for name, command in section.items()
]


def test_one_screen_of_help_names_every_command() -> None:
    ended = Jsync()("--help")
    assert ended.code == 0
    assert len(ended.lines) <= 53
    for name, command in TABLE:
        (line,) = [line for line in ended.lines if line.split()[:1] == [name]]
        assert line.endswith(command.help)
    assert Jsync()("-h") == ended


@pytest.mark.parametrize(("name", "command"), TABLE, ids=[name for name, _ in TABLE])
def test_commands_are_listed_with_their_first_help_line(
    name: str, command: commands.Command
) -> None:
    found = app.get_command(click.Context(app), name)
    assert found is not None
    assert (found.help or "").split("\n\n")[0].replace("\n", " ") == command.help


def test_the_help_imports_no_command_and_nothing_heavy() -> None:
    loaded = run_child(
        """
        import sys
        from jsync.cli import main
        assert main(["--help"]) == 0
        print(*sys.modules, file=sys.stderr) if "rich" in sys.modules else None
        heavy = {"rich", "pyarrow", "pyspark", "pandas", "jsync.spark", "asyncio"}
        families = {"stream", "consume", "publish", "subscribe", "server"}
        heavy |= {f"jsync.cli.commands.{name}" for name in families}
        heavy.add("jsync.cli.ingest")
        print(sorted(heavy & set(sys.modules)))
        """
    )
    assert loaded.splitlines()[-1] == "[]"


def test_without_the_extra_one_line_names_the_package() -> None:
    output = run_child(
        """
        import sys
        from jsync.cli import main
        sys.stderr = sys.stdout
        for module in ("click", "rich"):
            sys.modules[module] = None
            print(main(["--help"]))
            del sys.modules[module]
        print(main(["--version"]))
        """
    )
    line = 'jsync: to use the command line, run: pip install "jsync[cli]"\n1\n'
    assert output == f"{line}{line}jsync, version {__version__}\n0\n"


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_takes_common_options_and_documents_json(
    words: str,
) -> None:
    taken = {name for param in COMMANDS[words].params for name in param.opts}
    assert taken >= {name for option in OPTIONS for name in option.opts} | {"--json"}
    ended = Jsync()(*words.split(), "--help")
    assert ended.code == 0
    assert "--json" in ended.output
    assert "--tlsca" not in ended.output, "`jsync options` has those"


def test_common_options_are_listed_with_their_variables() -> None:
    output = Jsync()("options").output
    listed = Jsync()("options", "--json").json
    assert [each["variable"] for each in listed][:2] == ["NATS_URL", "NATS_CONTEXT"]
    for option in OPTIONS:
        assert f"{option.opts[0]}" in output
    for variable in ("NATS_URL", "NATS_CONTEXT", "NATS_CREDS", "NATS_PASSWORD"):
        assert f"[{variable}]" in output


@pytest.mark.server
def test_of_options_around_a_command_the_last_wins(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = refusing_url()
    plain = Jsync()
    assert plain("-s", server.url, "-j", "stream", "ls").json is not None
    assert plain("stream", "ls", "-j", "-s", server.url).json is not None
    assert plain("-s", nowhere, "stream", "ls", "-s", server.url, "-j").json is not None
    assert plain("-s", server.url, "stream", "ls", "-s", nowhere).code == 1
    monkeypatch.setenv("NATS_URL", nowhere)
    assert plain("-s", server.url, "stream", "ls").code == 0
    assert plain("stream", "ls").code == 1


@pytest.mark.server
def test_domain_and_prefixes_come_from_the_options(
    own_server: StartServer,
) -> None:
    plain = Jsync(own_server(config="jetstream: {domain: hub}"))
    for options in (
        ["--domain", "hub"],
        ["--js-domain", "hub"],
        ["--js-api-prefix", "$JS.hub.API"],
        ["--inbox-prefix", "_MINE"],
    ):
        assert plain("stream", "ls", *options, "--json").json == []
    nowhere = plain("stream", "ls", "--domain", "nowhere")
    assert (nowhere.code, "nowhere" in nowhere.errors) == (1, True), nowhere.errors


def test_the_version_is_the_packages() -> None:
    assert Jsync()("--version").output == f"jsync, version {__version__}\n"


# Exit codes and errors ------------------------------------------------------------------


def test_a_mistake_in_the_command_line_is_two() -> None:
    plain = Jsync()
    for command, words in (
        (["strim"], "No such command 'strim'. Did you mean 'stream'"),
        (["stream", "inof"], "No such command 'inof'. Did you mean 'info'?"),
        (["stream", "zzz"], "No such command 'zzz'.\n"),
        (["stream", "create", "A", "--max-mgs", "1"], "--max-msgs"),
        (["stream", "info"], "Missing argument 'STREAM'"),
        (["--timeout", "soon", "stream", "ls"], "not a duration"),
        (["--timeout", "0", "stream", "ls"], "--timeout has to be above 0"),
        (["--json"], "Missing command"),
    ):
        ended = plain(*command)
        assert (ended.code, ended.output) == (2, "")
        assert words in ended.errors
        said, advice = ended.errors.splitlines()
        assert said.startswith("jsync: ")
        assert re.fullmatch(r"Try: jsync .*--help", advice)


@pytest.mark.parametrize(
    "family", [(), ("stream",), ("consumer",), ("kv",), ("pipeline",)]
)
def test_a_group_without_a_command_lists_its_commands(family: tuple[str, ...]) -> None:
    ended = Jsync()(*family)
    assert (ended.code, ended.output) == (2, "")
    assert ended.errors == Jsync()(*family, "--help").output
    assert "..." not in ended.errors.partition("\n")[2], "a line that is cut off"


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("stream info nowhere", "jsync stream ls, which"),
        ("fetch {stream} nothing --no-wait", "jsync consumer ls STREAM, which"),
        ("stream create {stream} --subjects other", "jsync stream edit, which"),
        ("pub --jetstream nobody.takes.this x", "jsync stream ls"),
    ],
)
def test_a_wrong_name_shows_the_next_command(
    jsync: Jsync, stream: Stream, line: str, advice: str
) -> None:
    ended = jsync(*line.format(stream=stream.name).split())
    assert ended.code in {ExitCode.FAILED, ExitCode.NOT_FOUND}
    assert ended.errors.splitlines()[1].startswith(f"Try: {advice}"), ended.errors


def test_missing_servers_exit_with_1_silent_ones_4() -> None:
    ended = Jsync()("stream", "ls", "--server", refusing_url())
    assert (ended.code, ended.output) == (1, "")
    assert re.fullmatch(
        r"jsync: cannot connect to .*: Connection refused.*\n", ended.errors
    )
    assert "`jsync server`" not in ended.errors
    with black_hole() as url:
        ended = Jsync()("stream", "ls", "--server", url, "--timeout", "100ms")
    assert ended.code == 4
    assert len(ended.errors.splitlines()) == 1


def test_interrupts_exit_130_broken_pipes_141_others_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def raising(error: BaseException) -> int:
        def command() -> None:
            raise error

        return failures.run_with_exit_code(command)

    assert raising(KeyboardInterrupt()) == 130
    assert raising(click.Abort()) == 130
    assert capsys.readouterr().err == "\n"
    assert raising(errors.StreamNotFoundError("none\nhere")) == 3
    assert raising(ZeroDivisionError("by zero")) == 1
    assert raising(FileNotFoundError(2, "No such file", "a.json")) == 1
    assert capsys.readouterr().err == (
        "jsync: none here\nTry: jsync stream ls, which lists the streams\n"
        "jsync: ZeroDivisionError: by zero\n"
        "jsync: a.json: No such file\n"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConsumerNotFoundError("x"), ExitCode.NOT_FOUND),
        (errors.MessageNotFoundError("x"), ExitCode.NOT_FOUND),
        (errors.NoRespondersError("x"), ExitCode.NOT_FOUND),
        (errors.TimeoutError("x"), ExitCode.TIMEOUT),
        (errors.DrainTimeoutError("x"), ExitCode.TIMEOUT),
        (errors.ConfigError("x"), ExitCode.USAGE),
        (errors.InvalidSubjectError("x"), ExitCode.USAGE),
        (errors.AuthenticationError("x"), ExitCode.FAILED),
        (errors.ConnectionClosedError("x"), ExitCode.FAILED),
        (errors.PermissionsError("x"), ExitCode.FAILED),
    ],
)
def test_every_error_has_an_exit_code(error: Exception, code: ExitCode) -> None:
    assert code_of(error) is code


def test_an_incomplete_list_is_written_before_it_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def infos() -> Iterator[StreamInfo]:
        yield StreamInfo(config=StreamConfig(name="A"))
        raise errors.IncompleteListError("B does not answer")

    settings = Settings()
    with pytest.raises(errors.IncompleteListError):
        write_infos(infos(), settings, ["name"], lambda info: [info.config.name])
    assert capsys.readouterr().out == "name\nA\n"
    settings.given["json"] = True
    with pytest.raises(errors.IncompleteListError):
        write_infos(infos(), settings, ["name"], lambda info: [info.config.name])
    assert json.loads(capsys.readouterr().out) == [{"config": {"name": "A"}}]


# Completion ---------------------------------------------------------------------------


def told_bash(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Return the completions for bash of a line whose last word is incomplete: `KIND,VALUE`."""
    monkeypatch.setenv("_JSYNC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    return [each for each in Jsync()().lines if each]


def completed(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Return the completed values without their kinds."""
    return [each.split(",")[1] for each in told_bash(monkeypatch, line)]


def test_commands_options_and_values_are_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert completed(monkeypatch, "jsync str") == ["stream"]
    assert completed(monkeypatch, "jsync stream p") == ["peer-remove", "purge"]
    assert completed(monkeypatch, "jsync stream create X --max-msg-") == [
        "--max-msg-size"
    ]
    assert completed(monkeypatch, "jsync stream create X --storage m") == ["memory"]


@pytest.mark.server
def test_the_server_completes_stream_and_consumer_names(
    stream: Stream, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.create_consumer(durable_name="worker")
    name = stream.name
    there = f"jsync -s {server.url}"
    assert completed(monkeypatch, f"{there} stream info {name[:-2]}") == [name]
    assert completed(monkeypatch, f"{there} next {name} w") == ["worker"]
    assert completed(monkeypatch, f"{there} export {name[:-2]}") == [name]
    assert completed(monkeypatch, f"{there} ingest --stream {name[:-2]}") == [name]
    assert completed(monkeypatch, f"jsync -s {refusing_url()} next {name} w") == []


@pytest.mark.server
def test_the_server_completes_bucket_and_key_names(
    js: JetStream, unique: str, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = js.create_key_value(bucket=unique, storage="memory")
    for key in ("db.host", "db.port", "data", "user"):
        bucket.put(key)
    there = f"jsync -s {server.url} kv"
    assert completed(monkeypatch, f"{there} info {unique[:-2]}") == [unique]
    assert completed(monkeypatch, f"{there} get {unique} db.p") == ["db.port"]
    assert sorted(completed(monkeypatch, f"{there} ls {unique} user d")) == [
        *("data", "db.host", "db.port"),
    ]
    assert completed(monkeypatch, f"{there} get no-such-bucket d") == []
    assert completed(monkeypatch, f"{there} get {unique} a..") == []
    js.delete_key_value(unique)


def test_contexts_are_completed(
    config_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = config_home / "nats" / "context"
    directory.mkdir(parents=True)
    for name in ("local", "lab", "prod"):
        (directory / f"{name}.json").write_text(json.dumps({"url": "nats://x"}))
    assert completed(monkeypatch, "jsync --context l") == ["lab", "local"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("jsync ingest fl", "file"),
        ("jsync ingest a.csv --subject x fl", "file"),
        ("jsync export STREAM --output fl", "file"),
        ("jsync pipeline run fl", "file"),
        ("jsync pipeline check fl", "file"),
        ("jsync stream create --config fl", "file"),
        ("jsync server --store-dir fl", "dir"),
        ("jsync --creds fl", "file"),
        ("jsync stream ls --tlsca fl", "file"),
    ],
)
def test_names_of_files_are_left_to_the_shell(
    line: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told_bash(monkeypatch, line) == [f"{kind},fl"]


def test_fish_shows_the_whole_line_of_help(monkeypatch: pytest.MonkeyPatch) -> None:
    # The script must split at the first comma only, which ends the kind.
    assert 'string split --max 1 ","' in Jsync()("completion", "fish").output
    monkeypatch.setenv("_JSYNC_COMPLETE", "fish_complete")
    monkeypatch.setenv("COMP_WORDS", "jsync str")
    monkeypatch.setenv("COMP_CWORD", "str")
    assert Jsync()().output == "plain,stream\tCreate, look at and change streams.\n"


def test_each_shell_has_its_script() -> None:
    for shell, word in (
        ("bash", "complete "),
        ("zsh", "compdef"),
        ("fish", "complete "),
    ):
        ended = Jsync()("completion", shell)
        assert (ended.code, word in ended.output) == (0, True)
        assert "_JSYNC_COMPLETE" in ended.output
    assert Jsync()("completion", "tcsh").code == 2
