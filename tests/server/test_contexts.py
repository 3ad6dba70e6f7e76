"""Tests of `connect(context=)`: the settings of a context, and your arguments."""

from __future__ import annotations

import base64
import json
import os
import re
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import contexts, errors

from ..support.accounts import Key, nkey_config, password_config
from ..support.windows import needs_shell

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.accounts import Account
    from ..support.certificates import Certificates


DATA = f"data:;base64,{base64.b64encode(b'hunter2' + bytes([233])).decode()}"
"""A secret that is not UTF-8."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty directory of the contexts, without environment variables of the machine."""
    for name in [name for name in os.environ if name.startswith("NATS_")]:
        if name != "NATS_SERVER":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "nats" / "context").mkdir(parents=True)
    return tmp_path / "nats"


def store(home: Path, name: str, **fields: Any) -> Path:
    path = home / "context" / f"{name}.json"
    path.write_text(json.dumps(fields))
    return path


def shown(error: BaseException) -> str:
    """All that a program could show of an error."""
    return repr(error) + "".join(traceback.format_exception(error))


def test_a_context_gives_the_servers_and_the_credentials(
    home: Path, own_server: StartServer
) -> None:
    server = own_server(config=password_config({"ann": "s3cret"}))
    path = store(home, "prod", url=server.url, user="ann", password="s3cret")
    for context in ("prod", str(path)):
        with jsync.connect(context=context) as nc:
            assert nc.connected_url == server.url
    with pytest.raises(errors.AuthenticationError):
        jsync.connect(server.url)


def test_true_means_the_environments_or_the_selected_context(
    home: Path, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(errors.ConfigError, match="no context is selected"):
        jsync.connect(context=True)
    store(home, "here", url=server.url, inbox_prefix="_INBOX.here")
    store(home, "there", url=server.url, inbox_prefix="_INBOX.there")
    (home / "context.txt").write_text("here\n")
    with jsync.connect(context=True) as nc:
        assert nc.new_inbox().startswith("_INBOX.here.")
    monkeypatch.setenv("NATS_CONTEXT", "there")
    with jsync.connect(context=True) as nc:
        assert nc.new_inbox().startswith("_INBOX.there.")
    # Without the argument, jsync reads no context.
    with jsync.connect(server.url) as nc:
        assert len(nc.new_inbox().split(".")) == 2


def test_your_arguments_win_over_the_context(
    home: Path, own_server: StartServer, server: LocalServer
) -> None:
    secured = own_server(config=password_config({"ann": "s3cret"}))
    store(
        *(home, "prod"),
        url="nats://127.0.0.1:1",
        user="bob",
        password="wrong",
        inbox_prefix="_INBOX.prod",
    )
    with jsync.connect(server.url, context="prod", inbox_prefix="mine") as nc:
        assert nc.connected_url == server.url
        assert nc.new_inbox().startswith("mine.")
    with jsync.connect(
        secured.url, context="prod", user="ann", password="s3cret"
    ) as nc:
        assert nc.connected_url == secured.url


def test_jetstream_uses_the_contexts_domain_and_prefixes(
    home: Path, own_server: StartServer
) -> None:
    server = own_server(config="jetstream { domain: hub }")
    store(home, "hub", url=server.url, jetstream_domain="hub")
    store(home, "none", url=server.url, jetstream_domain="nowhere")
    store(home, "api", url=server.url, jetstream_api_prefix="$JS.hub.API")
    for context in ("hub", "api"):
        with jsync.connect(context=context) as nc:
            assert nc.jetstream().account_info().domain == "hub"
    with jsync.connect(context="none") as nc:
        with pytest.raises(errors.JetStreamNotEnabledError):
            nc.jetstream().account_info()
        assert nc.jetstream(domain="hub").account_info().domain == "hub"


def test_advisories_come_by_the_contexts_event_prefix(
    home: Path, own_server: StartServer
) -> None:
    server = own_server(
        config="""
        jetstream: enabled
        accounts {
          MAIN {
            jetstream: enabled
            users: [{user: main, password: x}]
            exports: [{stream: "$JS.EVENT.>"}]
          }
          WATCH {
            users: [{user: watch, password: x}]
            imports: [{stream: {account: MAIN, subject: "$JS.EVENT.>"},
                       to: "main.EVENT.>"}]
          }
        }"""
    )
    store(
        *(home, "watch"),
        url=server.url,
        user="watch",
        password="x",
        jetstream_event_prefix="main.EVENT",
    )
    with (
        jsync.connect(context="watch") as watcher,
        jsync.connect(server.url, user="main", password="x") as nc,
        watcher.jetstream().advisories(stream="ORDERS") as advisories,
    ):
        watcher.flush()
        nc.jetstream().create_stream(name="ORDERS")
        assert advisories.next(60).type


def test_a_contexts_creds_nkeys_and_certificates_let_in(
    home: Path,
    tmp_path: Path,
    account: Account,
    jwt_server: LocalServer,
    own_server: StartServer,
    mutual_tls_server: LocalServer,
    certificates: Certificates,
) -> None:
    user = account.user("ann")
    creds = user.write_creds(tmp_path / "ann.creds")
    store(home, "creds", url=jwt_server.url, creds=str(creds))
    store(home, "jwt", url=jwt_server.url, user_jwt=user.jwt, user_seed=user.key.seed)
    key = Key("user")
    (tmp_path / "ann.nk").write_text(key.seed)
    keyed = own_server(config=nkey_config(key))
    store(home, "nkey", url=keyed.url, nkey="$KEYS/ann.nk".replace("$KEYS", "~"))
    store(
        *(home, "tls"),
        url=mutual_tls_server.url,
        ca=str(certificates.ca.cert),
        cert=str(certificates.client.cert),
        key=str(certificates.client.key),
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "USERPROFILE"):  # of POSIX, and of Windows
            patch.setenv(name, str(tmp_path))
        for context in ("creds", "jwt", "nkey", "tls"):
            jsync.connect(context=context).close()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"nkey": "/no/such.nk"}, "nkey: /no/such.nk: "),
        ({"creds": "/no/such.creds"}, "creds: /no/such.creds: "),
        ({"ca": "/no/such.pem"}, "ca: /no/such.pem: "),
        ({"cert": "/no/such.pem", "key": "/"}, "cert: /no/such.pem: "),
        ({"creds": "env://NOT_SET"}, "creds: the environment variable NOT_SET"),
        ({"creds": "op://vault/item"}, "creds: jsync cannot use op://"),
        ({"token": "data:;base64,!"}, "token is not base64"),
        ({"url": ["nats://a"]}, "url: a string, not a list"),
        ({"tls_first": "yes"}, "tls_first: true or false, not a string"),
        ({"user_jwt": "eyJ0"}, "user_jwt and user_seed go together"),
        ({"password": "hunter2"}, "password: a password needs a user"),
        ({"windows_cert_store": "windowscurrentuser"}, "windows_cert_store"),
    ],
)
def test_an_error_names_file_and_field_without_secrets(
    home: Path, fields: dict[str, Any], words: str
) -> None:
    path = store(home, "prod", **fields)
    with pytest.raises(errors.ConfigError) as raised:
        jsync.connect(context="prod")
    assert str(path) in str(raised.value)
    assert words in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"token": "env://VALUE"}, "token: the environment variable VALUE"),
        ({"user": "u", "password": "env://VALUE"}, "password: the environment"),
    ],
)
def test_non_utf_8_variables_are_named_without_value(
    home: Path, fields: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALUE", "hunter2\udce9")
    path = store(home, "prod", **fields)
    with pytest.raises(errors.ConfigError, match="is not UTF-8") as raised:
        jsync.connect(context="prod")
    assert str(raised.value).startswith(f"{path}: {words}")
    assert "hunter2" not in shown(raised.value)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"token": DATA}, "token"),
        ({"user": "u", "password": DATA}, "password"),
        ({"nkey": DATA}, "nkey"),
        ({"user_jwt": DATA, "user_seed": "x"}, "user_jwt"),
        ({"user_jwt": "x", "user_seed": DATA}, "user_seed"),
    ],
)
def test_non_utf_8_values_are_named_not_shown(
    home: Path, fields: dict[str, str], field: str
) -> None:
    path = store(home, "prod", **fields)
    with pytest.raises(errors.ConfigError) as raised:
        jsync.connect(context="prod")
    assert str(raised.value) == f"{path}: {field}: the value is not UTF-8"
    assert "hunter2" not in shown(raised.value)


@pytest.mark.parametrize("field", ["creds", "nkey", "ca", "cert", "key"])
@pytest.mark.parametrize("start", ["/", "~"])
def test_an_impossible_path_is_named(home: Path, field: str, start: str) -> None:
    path = store(home, "prod", **{field: f"{start}a\0b"})
    with pytest.raises(errors.ConfigError, match="is not a path") as raised:
        jsync.connect(context="prod")
    assert str(raised.value).startswith(f"{path}: {field}: ")


def test_an_unreadable_selection_is_one_error_until_replaced(
    home: Path, server: LocalServer
) -> None:
    path = home / "context.txt"
    path.mkdir()
    with pytest.raises(errors.ConfigError, match=re.escape(str(path))):
        jsync.connect(context=True)
    path.rmdir()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(errors.ConfigError, match=f"{re.escape(str(path))} is not UTF"):
        jsync.connect(context=True)
    store(home, "here", url=server.url)
    contexts.select(home, "here")
    with jsync.connect(context=True) as nc:
        assert nc.connected_url == server.url


def test_a_missing_context_is_one_clear_error(home: Path) -> None:
    store(home, "prod")
    with pytest.raises(errors.ConfigError, match=r"no context 'test'.*known: prod"):
        jsync.connect(context="test")
    with pytest.raises(errors.ConfigError, match="not the name of a context"):
        jsync.connect(context="../prod")
    with pytest.raises(errors.ConfigError, match="a name or True"):
        jsync.connect(context=3)  # type: ignore[arg-type]


def test_an_nsc_lookup_without_the_nsc_command_raises(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    path = store(home, "prod", nsc="nsc://op/app/ann")
    with pytest.raises(errors.ConfigError) as raised:
        jsync.connect(context="prod")
    assert f"{path}: nsc: the nsc command is not in PATH" in str(raised.value)


def nsc(directory: Path, script: str) -> None:
    """Install a command in place of nsc, which the tests cannot install."""
    program = directory / "nsc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@needs_shell
def test_an_nsc_lookup_gives_the_creds_and_url(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    account: Account,
    jwt_server: LocalServer,
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    creds = account.user("ann").write_creds(tmp_path / "ann.creds")
    profile = {"user_creds": str(creds), "operator": {"service": [jwt_server.url]}}
    (tmp_path / "profile").write_text(json.dumps(profile))
    nsc(
        tmp_path,
        f'[ "$*" = "generate profile nsc://op/app/ann" ] && cat {tmp_path}/profile',
    )
    store(home, "lookup", nsc="nsc://op/app/ann")
    store(home, "creds", url=jwt_server.url, creds="nsc://op/app/ann")
    store(home, "wrong", nsc="nsc://op/app/bob")
    for context in ("lookup", "creds"):
        with jsync.connect(context=context) as nc:
            assert nc.connected_url == jwt_server.url
    with pytest.raises(errors.ConfigError, match=r"wrong\.json: nsc: .*exit code 1"):
        jsync.connect(context="wrong")
    nsc(tmp_path, "echo SUSECRET")
    with pytest.raises(errors.ConfigError, match="wrote no profile") as raised:
        jsync.connect(context="lookup")
    assert "SUSECRET" not in str(raised.value)
