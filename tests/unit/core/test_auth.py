"""Tests of the authentication options and of their secrets."""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING, Any

import nkeys
import pytest

from jsync.core.auth import Authenticator
from jsync.core.server_address import ServerAddress, parse_server
from jsync.errors import AuthenticationError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HERE = ServerAddress("h")
NONCE = "bQ8Nd9FmcyLl7zw"


def make_seed(byte: int = 7, prefix: int = nkeys.PREFIX_BYTE_USER) -> str:
    seed: bytes = nkeys.encode_seed(bytes([byte]) * 32, prefix)
    return seed.decode()


SEED = make_seed()
JWT = "eyJ0eXAiOiJKV1QifQ.eyJzdWIiOiJVQSJ9.c2lnbmF0dXJl-_"


def make_creds(jwt: str = JWT, seed: str = SEED) -> str:
    """Return the output of `nsc generate creds`."""
    return f"""-----BEGIN NATS USER JWT-----
{jwt}
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.
NKEYs are sensitive and should be treated as secrets.

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------

*************************************************************
"""


def is_signed_by(seed: str, nonce: str, signature: str) -> bool:
    assert "=" not in signature
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    verified: bool = nkeys.from_seed(bytearray(seed, "ascii")).verify(
        nonce.encode(), raw
    )
    return verified


def raiser() -> str:
    raise LookupError("vault is sealed")


@pytest.mark.parametrize(
    ("options", "method", "fields"),
    [
        ({}, "none", {}),
        ({"user": "u", "password": "p"}, "user", {"user": "u", "pass": "p"}),
        ({"user": "u", "password": ""}, "user", {"user": "u", "pass": ""}),
        ({"user": "u"}, "user", {"user": "u"}),
        (
            {"user": lambda: "u", "password": lambda: "p"},
            "user",
            {"user": "u", "pass": "p"},
        ),
        ({"token": "t"}, "token", {"auth_token": "t"}),
        ({"token": lambda: "t"}, "token", {"auth_token": "t"}),
        (
            {"auth_callback": lambda nonce: {"jwt": "j", "sig": nonce.decode()}},
            "callback",
            {"jwt": "j", "sig": NONCE},
        ),
    ],
)
def test_an_option_becomes_connect_fields(
    options: dict[str, Any], method: str, fields: dict[str, str]
) -> None:
    auth = Authenticator(**options)
    assert auth.method == method
    assert repr(auth) == f"<Authenticator {method}>"
    assert auth.connect_fields(NONCE, HERE) == fields
    assert auth.needs_callables is any(callable(v) for v in options.values())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"user": "u", "token": "s3cret"}, "user and token exclude each other"),
        ({"nkey_seed": SEED, "creds": "x.creds"}, "nkey_seed and creds exclude"),
        ({"token": "s3cret", "auth_callback": dict}, "token and auth_callback exclude"),
        ({"password": "s3cret"}, "a password needs a user"),
        ({"token": ""}, "token is empty"),
        ({"user": ""}, "user is empty"),
        ({"token": 5}, "token has to be a str or a callable"),
        ({"user": "u", "password": b"s3cret"}, "password has to be a str"),
        ({"auth_callback": "s3cret"}, "has to be callable"),
        ({"nkey_seed": 5}, "str or bytes"),
        ({"nkey_seed": "/etc/s3cret"}, "begins with SU"),
        ({"nkey_seed": make_seed(prefix=nkeys.PREFIX_BYTE_ACCOUNT)}, "begins with SU"),
        ({"nkey_seed": SEED[:-9]}, "cut short"),
        ({"nkey_seed": SEED.lower()}, "begins with SU"),
        ({"nkey_seed": SEED[:20] + "1" + SEED[21:]}, "not base32"),
        ({"nkey_seed": SEED[:20] + "ü" + SEED[21:]}, "not base32"),
        ({"nkey_seed": SEED[:20] + "\udc80" + SEED[21:]}, "not base32"),
        ({"nkey_seed": SEED[:20] + SEED[21] + SEED[20] + SEED[22:]}, "mistyped"),
        ({"creds": make_creds()}, "as bytes"),
        ({"creds": ""}, "not a path"),
        ({"creds": 5}, "path"),
    ],
)
def test_invalid_options_are_rejected_without_repeating_them(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Authenticator(**options)
    said = str(caught.value)
    assert "s3cret" not in said
    assert SEED[:20] not in said
    assert JWT not in said
    assert caught.value.__cause__ is None


def test_the_checksum_of_a_seed_is_looked_at() -> None:
    swapped = SEED[:-1] + ("A" if SEED[-1] != "A" else "B")
    with pytest.raises(ConfigError, match="mistyped"):
        Authenticator(nkey_seed=swapped)


@pytest.mark.parametrize(
    "seed", [SEED, SEED.encode(), f"  {SEED}\n"], ids=["str", "bytes", "blanks"]
)
def test_an_nkey_signs_the_nonce(seed: str | bytes) -> None:
    auth = Authenticator(nkey_seed=seed)
    for nonce in (NONCE, "another"):
        fields = auth.connect_fields(nonce, HERE)
        assert fields.keys() == {"nkey", "sig"}
        public = nkeys.from_seed(bytearray(SEED, "ascii")).public_key.decode()
        assert fields["nkey"] == public
        assert public.startswith("U")
        assert is_signed_by(SEED, nonce, fields["sig"])
    assert not auth.needs_callables


@pytest.mark.parametrize("nonce", [None, ""])
def test_an_nkey_without_a_nonce_is_an_error(nonce: str | None) -> None:
    with pytest.raises(AuthenticationError, match=r"nats://h:4222 sent no nonce"):
        Authenticator(nkey_seed=SEED).connect_fields(nonce, HERE)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_creds_are_a_path_or_bytes(tmp_path: Path, newline: str) -> None:
    content = make_creds().replace("\n", newline).encode()
    path = tmp_path / "user.creds"
    path.write_bytes(content)
    for creds in (path, str(path), content):
        fields = Authenticator(creds=creds).connect_fields(NONCE, HERE)
        assert fields.keys() == {"jwt", "sig"}
        assert fields["jwt"] == JWT
        assert is_signed_by(SEED, NONCE, fields["sig"])


def test_a_tilde_in_the_path_is_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "USERPROFILE"):  # of POSIX, and of Windows
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "user.creds").write_text(make_creds())
    assert Authenticator(creds="~/user.creds").connect_fields(NONCE, HERE)["jwt"] == JWT


def test_without_a_nonce_creds_send_the_jwt_alone() -> None:
    auth = Authenticator(creds=make_creds().encode())
    assert auth.connect_fields(None, HERE) == {"jwt": JWT}


def test_creds_are_read_again_each_time(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    auth = Authenticator(creds=path)  # the file does not need to exist yet
    path.write_text(make_creds())
    assert auth.connect_fields(NONCE, HERE)["jwt"] == JWT
    rotated = make_seed(9)
    path.write_text(make_creds("a.b.c", rotated))
    fields = auth.connect_fields(NONCE, HERE)
    assert fields["jwt"] == "a.b.c"
    assert is_signed_by(rotated, NONCE, fields["sig"])


def test_unreadable_creds_name_their_path_when_used(tmp_path: Path) -> None:
    path = tmp_path / "gone.creds"
    auth = Authenticator(creds=path)
    with pytest.raises(
        AuthenticationError, match=r"gone\.creds.*No such file"
    ) as caught:
        auth.connect_fields(NONCE, HERE)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no user JWT"),
        (SEED, "no user JWT"),
        (make_creds(jwt="not-a-jwt"), "no user JWT"),
        (make_creds(jwt="a.b.ü"), "no user JWT"),
        (make_creds(seed="SOMETHING"), "no user seed"),
        (make_creds(seed=SEED[:-4]), "a seed that is cut short"),
    ],
)
def test_incomplete_creds_raise_and_keep_their_secret(
    tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "bad.creds"
    path.write_text(content)
    for creds, where in ((path, "bad.creds"), (content.encode(), "in memory")):
        with pytest.raises(AuthenticationError, match=words) as caught:
            Authenticator(creds=creds).connect_fields(NONCE, HERE)
        chain = f"{caught.value!r} {caught.value.__cause__!r}"
        assert where in chain
        assert SEED[:20] not in chain
        # so the error is not a rejection by the server
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Authenticator(token=raiser), "the token callable raised LookupError"),
        (lambda: Authenticator(user=raiser), "the user callable raised LookupError"),
        (
            lambda: Authenticator(user="u", password=raiser),
            "the password callable raised",
        ),
        (
            lambda: Authenticator(auth_callback=lambda _: {"jwt": raiser()}),
            "auth_callback raised LookupError",
        ),
    ],
)
def test_a_callable_that_raises_is_the_cause(
    make: Callable[[], Authenticator], words: str
) -> None:
    with pytest.raises(AuthenticationError, match=words) as caught:
        make().connect_fields(NONCE, HERE)
    assert isinstance(caught.value.__cause__, LookupError)


def test_callables_with_wrong_results_are_named_without_values() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"token": lambda: b"s3cret"}, "the token callable returned bytes"),
        (
            {"auth_callback": lambda _: {"password": "s3cret"}},
            "returned password; CONNECT",
        ),
        (
            {"auth_callback": lambda _: {"jwt": b"s3cret"}},
            "bytes instead of str for jwt",
        ),
        ({"auth_callback": lambda _: None}, "raised TypeError"),
    ]
    for options, words in cases:
        with pytest.raises(AuthenticationError, match=words) as caught:
            Authenticator(**options).connect_fields(NONCE, HERE)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"user": "u", "password": "p"},
        {"token": "t"},
        {"token": raiser},
        {"nkey_seed": SEED},
        {},
    ],
)
def test_url_userinfo_wins_over_the_options(options: dict[str, Any]) -> None:
    auth = Authenticator(**options)
    bob = parse_server("nats://bob:pw@h")
    assert auth.connect_fields(NONCE, bob) == {"user": "bob", "pass": "pw"}
    token = parse_server("nats://t0k@h")
    assert auth.connect_fields(None, token) == {"auth_token": "t0k"}


def test_url_userinfo_may_stand_beside_creds_and_callback() -> None:
    bob = parse_server("nats://bob:pw@h")
    fields = Authenticator(creds=make_creds().encode()).connect_fields(NONCE, bob)
    assert fields.keys() == {"user", "pass", "jwt", "sig"}
    callback = Authenticator(auth_callback=lambda _: {"pass": "fresh"})
    assert callback.connect_fields(NONCE, bob) == {"user": "bob", "pass": "fresh"}


def test_an_authenticator_neither_shows_nor_pickles_its_secrets() -> None:
    for options in (
        {"user": "bob", "password": "s3cret"},
        {"token": "s3cret"},
        {"nkey_seed": SEED},
        {"creds": make_creds().encode()},
    ):
        auth = Authenticator(**options)
        for shown in (repr(auth), str(auth), f"{auth}"):
            assert "s3cret" not in shown
            assert SEED[:20] not in shown
            assert JWT[:20] not in shown
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(auth)
