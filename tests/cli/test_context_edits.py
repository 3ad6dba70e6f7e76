"""Tests of `jsync context add`, `edit` and `rm`, which change files of the nats tool."""

from __future__ import annotations

import json
import stat
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ..support.accounts import password_config
from .support import Jsync
from .test_contexts import STORED, store

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import StartServer

JSYNC = Jsync()


def written(home: Path, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(
        (home / "nats" / "context" / f"{name}.json").read_text()
    )
    return fields


def files(home: Path) -> set[str]:
    return {path.name for path in (home / "nats").rglob("*") if path.is_file()}


@pytest.mark.server
def test_a_new_context_connects_the_next_command(
    own_server: StartServer, config_home: Path
) -> None:
    server = own_server(config=password_config({"ann": "s3cret"}))
    ended = JSYNC(
        *("context", "add", "lab", "--server", server.url, "--user", "ann"),
        *("--password", "s3cret", "--description", "The lab", "--select"),
    )
    assert ended.output == "created context lab and selected it\n"
    assert isinstance(JSYNC("stream", "ls", "--json").json, list)
    assert JSYNC("context", "ls").rows == [["lab", "*", "The lab", server.url]]
    if sys.platform != "win32":
        path = config_home / "nats" / "context" / "lab.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files(config_home) == {"lab.json", "context.txt"}


def test_a_new_context_has_all_adr_fields(config_home: Path) -> None:
    assert JSYNC("ctx", "create", "lab", "--domain", "hub", "--tlsfirst").code == 0
    fields = written(config_home, "lab")
    assert (fields["jetstream_domain"], fields["tls_first"]) == ("hub", True)
    assert set(fields) <= set(STORED)
    for name, value in fields.items():
        if name not in ("jetstream_domain", "tls_first"):
            assert value == STORED[name]


def test_an_existing_context_is_not_replaced(config_home: Path) -> None:
    store(config_home, "lab", url="nats://one")
    ended = JSYNC("context", "add", "lab", "--server", "nats://two")
    assert (ended.code, "already" in ended.errors) == (2, True)
    assert written(config_home, "lab")["url"] == "nats://one"


def test_edit_keeps_unknown_fields_and_their_order(config_home: Path) -> None:
    unknown: dict[str, Any] = {
        "a_field_to_come": {"x": [1, 2.5, None]},
        "another": None,
    }
    store(config_home, "lab", url="nats://one", **unknown)
    before = written(config_home, "lab")
    ended = JSYNC(
        "context", "edit", "lab", "--server", "nats://two", "--description", "d"
    )
    assert ended.code == 0, ended.errors
    assert ended.errors.splitlines() == [
        "  description: none -> d",
        "  url: nats://one -> nats://two",
    ]
    after = written(config_home, "lab")
    assert after == before | {"url": "nats://two", "description": "d"}
    assert list(after) == list(before)
    assert files(config_home) == {"lab.json"}


def test_new_credentials_replace_those_of_another_kind(config_home: Path) -> None:
    store(config_home, "lab", user="ann", password="geheim")
    ended = JSYNC("context", "edit", "lab", "--token", "geheim2")
    assert ended.code == 0
    assert "geheim" not in ended.output + ended.errors
    fields = written(config_home, "lab")
    assert [fields[name] for name in ("user", "password", "token")] == [
        *("", ""),
        "geheim2",
    ]


def test_unset_clears_a_field(config_home: Path) -> None:
    store(config_home, "lab", jetstream_domain="hub", tls_first=True)
    unset = ("--unset", "jetstream_domain", "--unset", "tls_first")
    assert JSYNC("context", "edit", "lab", *unset).code == 0
    assert written(config_home, "lab") == STORED
    ended = JSYNC("context", "edit", "lab", "--unset", "domain")
    assert (ended.code, "no field 'domain'" in ended.errors) == (2, True)
    assert JSYNC("context", "edit", "lab").code == 2


def test_a_linked_context_stays_a_link(config_home: Path, tmp_path: Path) -> None:
    store(config_home, "lab")
    path = config_home / "nats" / "context" / "lab.json"
    real = path.rename(tmp_path / "dotfiles.json")
    path.symlink_to(real)
    assert JSYNC("context", "edit", "lab", "--server", "nats://two").code == 0
    assert path.is_symlink()
    assert json.loads(real.read_text())["url"] == "nats://two"


@pytest.mark.parametrize(
    "name", ["../lab", "a/b", "a\\b", "..", "", "a\x1b[31m", "a\nb", " a", "a.json"]
)
def test_bad_names_are_refused_by_each_command(config_home: Path, name: str) -> None:
    store(config_home, "lab")
    for command in (("add",), ("edit", "--server", "nats://x"), ("rm", "--force")):
        ended = JSYNC("context", command[0], *command[1:], "--", name)
        assert ended.code == 2
        assert "\x1b" not in ended.errors
    assert files(config_home) == {"lab.json"}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--server", "http://x"), "scheme"),
        (("--server", "nats://ann:geheim@x:y"), "port"),
        (("--password", "geheim"), "needs a user"),
        (("--jwt", "geheim"), "go together"),
        (("--user", "ann", "--token", "geheim"), "mutually exclusive"),
        (("--creds", "none.creds"), "No such file"),
        (("--socks-proxy", "ftp://x"), "scheme"),
        (("--context", "other"), "does not store --context"),
        (("--timeout", "3s"), "does not store --timeout"),
    ],
)
def test_unusable_options_are_refused_before_writing(
    config_home: Path, options: tuple[str, ...], word: str
) -> None:
    ended = JSYNC("context", "add", "lab", *options)
    assert (ended.code, word in ended.errors) == (2, True), ended.errors
    assert "geheim" not in ended.errors
    assert not config_home.exists()


def test_a_relative_path_is_stored_as_absolute(
    config_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ann.creds").write_text("")
    for given, kept in (
        ("ann.creds", str(tmp_path / "ann.creds")),
        ("env://CREDS", "env://CREDS"),
        ("$HERE/ann.creds", "$HERE/ann.creds"),
    ):
        assert JSYNC("context", "add", "lab", "--creds", given).code == 0
        assert written(config_home, "lab")["creds"] == kept
        assert JSYNC("context", "rm", "lab", "--force").code == 0


def test_rm_of_the_selected_context_unselects_it(config_home: Path) -> None:
    store(config_home, "lab", select=True)
    store(config_home, "prod")
    ended = JSYNC("context", "rm", "lab")
    assert ended.code == 2
    assert "Delete the selected context lab?" in ended.errors
    assert "--force" in ended.errors
    assert JSYNC("context", "delete", "lab", "-f", "--json").json == {"deleted": "lab"}
    assert JSYNC("context", "ls", "--names").lines == ["prod"]
    assert not (config_home / "nats" / "context.txt").exists()
    assert JSYNC("context", "rm", "prod", "--force").code == 0
    ended = JSYNC("context", "rm", "prod", "--force")
    assert (ended.code, "known: none" in ended.errors) == (2, True)


def test_a_broken_context_can_be_deleted(config_home: Path) -> None:
    store(config_home, "lab")
    (config_home / "nats" / "context" / "lab.json").write_text("{")
    ended = JSYNC("context", "edit", "lab", "--server", "nats://x")
    assert (ended.code, "is not JSON" in ended.errors) == (2, True)
    assert JSYNC("context", "rm", "lab", "--force").code == 0
