"""Tests of the contexts of the nats command line tool, and of its environment variables."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from jsync.cli.params.environment import resolve
from jsync.contexts import to_keywords

from ..support.accounts import Key, nkey_config, password_config, token_config
from .support import Jsync

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.accounts import Account
    from ..support.certificates import Certificates

# Every field, as written by natscontext of jsm.go 0.5, which the nats tool uses.
STORED = {
    "description": "",
    "url": "nats://127.0.0.1:4222",
    "socks_proxy": "",
    "token": "",
    "user": "",
    "password": "",
    "creds": "",
    "nkey": "",
    "cert": "",
    "key": "",
    "ca": "",
    "nsc": "",
    "jetstream_domain": "",
    "jetstream_api_prefix": "",
    "jetstream_event_prefix": "",
    "inbox_prefix": "",
    "user_jwt": "",
    "user_seed": "",
    "color_scheme": "",
    "tls_first": False,
    "windows_cert_store": "",
    "windows_cert_match_by": "",
    "windows_cert_match": "",
    "windows_ca_certs_match": None,
}


def store(home: Path, name: str, *, select: bool = False, **fields: Any) -> None:
    """Store a context as the nats tool does."""
    (home / "nats" / "context").mkdir(parents=True, exist_ok=True)
    path = home / "nats" / "context" / f"{name}.json"
    path.write_text(json.dumps(STORED | fields, indent=2))
    if select:
        (home / "nats" / "context.txt").write_text(f"{name}\n")


def environment(home: Path, **variables: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(home), **variables}


def test_the_selected_context_applies_unless_another_is_named(
    config_home: Path,
) -> None:
    store(config_home, "one", url="nats://one", select=True)
    store(config_home, "two", url="nats://two", jetstream_domain="hub")
    environ = environment(config_home)
    assert resolve({}, environ) == {"server": "nats://one"}
    assert resolve({"no_context": True}, environ) == {}
    assert resolve({"context": "two"}, environ) == {
        "server": "nats://two",
        "domain": "hub",
    }
    assert resolve({}, environ | {"NATS_CONTEXT": "two"})["server"] == "nats://two"
    path = str(config_home / "nats" / "context" / "two.json")
    assert resolve({"context": path}, environ)["server"] == "nats://two"


def test_command_line_beats_environment_which_beats_the_context(
    config_home: Path,
) -> None:
    store(config_home, "one", url="nats://context", select=True)
    environ = environment(config_home, NATS_URL="nats://environment")
    assert resolve({}, environ)["server"] == "nats://environment"
    assert resolve({"server": "nats://given"}, environ)["server"] == "nats://given"


def test_given_credentials_replace_those_of_the_context(
    config_home: Path,
) -> None:
    store(config_home, "one", user="ann", select=True)
    assert to_keywords(resolve({}, environment(config_home)))["user"] == "ann"
    store(config_home, "one", user="ann", password="secret", select=True)
    options = resolve({"creds": "/ann.creds"}, environment(config_home))
    assert options == {"server": "nats://127.0.0.1:4222", "creds": "/ann.creds"}
    options = resolve({}, environment(config_home, NATS_TOKEN="word"))
    assert options == {"server": "nats://127.0.0.1:4222", "token": "word"}


def test_the_first_credentials_of_a_context_are_used(
    config_home: Path,
) -> None:
    store(config_home, "one", select=True, token="word", nkey="/k", creds="/ann.creds")
    options = resolve({}, environment(config_home))
    assert options == {"server": "nats://127.0.0.1:4222", "creds": "/ann.creds"}
    store(config_home, "one", user="ann", password="secret", creds="/ann.creds")
    assert resolve({}, environment(config_home)).keys() == {
        "server",
        "user",
        "password",
    }


def test_a_context_path_may_contain_home_and_variables(
    config_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    store(config_home, "one", creds="~/ann.creds", ca="$KEYS/ca.pem", select=True)
    options = resolve({}, environment(config_home, KEYS="/keys"))
    assert options["creds"] == "/home/ann/ann.creds"
    assert options["tlsca"] == "/keys/ca.pem"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"nsc": "nsc://op/acc/user"}, "nsc"),
        ({"windows_cert_store": "windowscurrentuser"}, "Windows"),
        ({"creds": "op://vault/item"}, "op://"),
    ],
)
def test_unusable_fields_of_a_context_are_reported(
    jsync: Jsync, config_home: Path, fields: dict[str, str], word: str
) -> None:
    store(config_home, "one", select=True, **fields)
    ended = jsync("stream", "ls")
    assert ended.code == 2
    assert word in ended.errors


def test_missing_or_broken_contexts_are_usage_errors(
    jsync: Jsync, config_home: Path
) -> None:
    store(config_home, "one")
    ended = jsync("--context", "two", "stream", "ls")
    assert ended.code == 2
    assert "there is no context 'two'" in ended.errors
    assert "known: one" in ended.errors
    assert jsync("--context", "../../one", "stream", "ls").code == 2
    (config_home / "nats" / "context" / "one.json").write_text("{")
    ended = jsync("stream", "ls", "--context", "one")
    assert ended.code == 2
    assert "is not JSON" in ended.errors


def test_a_user_without_a_password_is_a_token() -> None:
    assert to_keywords({"user": "word"})["token"] == "word"
    both = to_keywords({"user": "ann", "password": "secret"})
    assert (both["user"], both["password"], both.get("token")) == (
        "ann",
        "secret",
        None,
    )


@pytest.mark.server
def test_the_creds_of_a_context_let_in(
    config_home: Path, account: Account, jwt_server: LocalServer, tmp_path: Path
) -> None:
    path = account.user("ann").write_creds(tmp_path / "ann.creds")
    store(config_home, "one", url=jwt_server.url, creds=str(path), select=True)
    assert isinstance(Jsync()("stream", "ls", "--json").json, list)


@pytest.mark.server
def test_context_creds_may_be_inline_or_in_environment(
    config_home: Path,
    account: Account,
    jwt_server: LocalServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    creds = account.user("ann").creds
    inside = f"data:;base64,{base64.b64encode(creds.encode()).decode()}"
    store(config_home, "inside", url=jwt_server.url, creds=inside)
    store(config_home, "outside", url=jwt_server.url, creds="env://ANN")
    assert Jsync()("stream", "ls", "--context", "inside").code == 0
    ended = Jsync()("stream", "ls", "--context", "outside")
    assert (ended.code, "variable ANN is not set" in ended.errors) == (2, True)
    monkeypatch.setenv("ANN", creds)
    assert Jsync()("stream", "ls", "--context", "outside").code == 0


@pytest.mark.server
def test_a_jwt_and_a_seed_let_in(account: Account, jwt_server: LocalServer) -> None:
    user = account.user("ann")
    options = ("--jwt", user.jwt, "--seed", user.key.seed)
    told = Jsync(jwt_server)("stream", "ls", "--json", *options)
    assert isinstance(told.json, list)
    ended = Jsync(jwt_server)("stream", "ls", "--jwt", user.jwt)
    assert (ended.code, "--jwt and --seed" in ended.errors) == (2, True)


def test_a_file_without_a_user_seed_is_named(tmp_path: Path) -> None:
    for content in (b"", b"SAAA", b"\xff\xfe"):
        (tmp_path / "ann.nk").write_bytes(content)
        ended = Jsync()("stream", "ls", "--nkey", str(tmp_path / "ann.nk"))
        assert ended.code == 2
        assert "ann.nk does not hold the seed of a user" in ended.errors


@pytest.mark.parametrize("option", ["--creds", "--nkey"])
def test_an_unreadable_file_is_named_before_sending_anything(
    tmp_path: Path, option: str
) -> None:
    ended = Jsync()("stream", "ls", option, str(tmp_path / "none"))
    assert ended.code == 2
    assert "none: No such file" in ended.errors


@pytest.mark.server
def test_creds_may_come_through_a_pipe(
    account: Account, jwt_server: LocalServer
) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w") as pipe:
        pipe.write(account.user("ann").creds)
        pipe.close()
        told = Jsync(jwt_server)("stream", "ls", "-j", "--creds", f"/dev/fd/{reader}")
    assert isinstance(told.json, list)
    assert told.errors == ""


@pytest.mark.server
def test_users_tokens_nkeys_and_certificates_let_in(
    own_server: StartServer,
    mutual_tls_server: LocalServer,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    users = Jsync(own_server(config=password_config({"ann": "s3cret"})))
    assert users("stream", "ls", "--user", "ann", "--password", "s3cret").code == 0
    token = Jsync(own_server(config=token_config("w0rd")))
    assert token("stream", "ls", "--token", "w0rd").code == 0
    monkeypatch.setenv("NATS_USER", "w0rd")
    assert token("stream", "ls").code == 0
    monkeypatch.delenv("NATS_USER")
    key = Key("user")
    (tmp_path / "ann.nk").write_text(f"{key.seed}\n")
    nkeys = Jsync(own_server(config=nkey_config(key)))
    assert nkeys("stream", "ls", "--nkey", str(tmp_path / "ann.nk")).code == 0
    mutual = Jsync(mutual_tls_server)
    ca, cert = str(certificates.ca.cert), certificates.client
    options = ("--tlsca", ca, "--tlscert", str(cert.cert), "--tlskey", str(cert.key))
    assert mutual("stream", "ls", *options).code == 0


@pytest.mark.server
def test_no_secret_is_ever_written(own_server: StartServer, tmp_path: Path) -> None:
    server = own_server(config=password_config({"ann": "s3cret"}))
    for options in (
        ("--user", "ann", "--password", "hunter2"),
        ("--token", "hunter2"),
        ("--server", server.url.replace("//", "//ann:hunter2@")),
        ("--nkey", str(tmp_path / "hunter")),
    ):
        ended = Jsync(server)(*options, "stream", "ls")
        assert ended.code in (1, 2)
        assert "hunter2" not in ended.errors + ended.output


def test_a_timeout_of_zero_names_its_source(
    jsync: Jsync, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--timeout has to be" in jsync("rtt", "--timeout", "0").errors
    monkeypatch.setenv("NATS_TIMEOUT", "0")
    assert "NATS_TIMEOUT has to be" in jsync("rtt").errors
