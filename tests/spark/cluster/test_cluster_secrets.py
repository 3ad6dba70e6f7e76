"""Tests of every kind of credentials on separate executors. No secret is left anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import jsync

from ...support.accounts import Key, nkey_config, password_config, token_config
from ..sink_support import stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.accounts import Account
    from ...support.certificates import Certificates
    from .conftest import SparkCluster

pytestmark = pytest.mark.fault

ROWS = 500
DONE = 600
"""The seconds in which the pipeline must end, even on a slow machine."""

HEAD = """
[streaming]
checkpoint = "checkpoint"
trigger = "available-now"
[spark.conf]
"spark.driver.memory" = "1g"
"spark.executor.memory" = "512m"
"spark.log.level" = "INFO"
"spark.eventLog.enabled" = true
"spark.eventLog.compress" = false
"spark.eventLog.dir" = "file://{events}"
"spark.executorEnv.NATS_TOKEN" = "${{NATS_TOKEN}}"
"spark.executorEnv.ANNS_SEED" = "${{ANNS_SEED}}"
"""
COPY = """
[sources.{read}]
format = "jetstream"
options = {{ stream = "IN", startingOffsets = "earliest", {reading} }}
[steps.from_{read}]
sql = '''
select 'OUT.row' as subject, data, concat('row ', sequence) as msg_id from {read}
'''
[sinks.{written}]
format = "jetstream"
from = "from_{read}"
options = {{ stream = "OUT", delivery = "exactly-once", {writing} }}
"""


@dataclass
class Way:
    """A server, the options of Spark for it, and the secret that must not show."""

    server: LocalServer
    options: dict[str, str]
    own: dict[str, Any]
    """The arguments with which the test itself connects."""
    secret: str

    def toml(self) -> str:
        options = {"nats.servers": self.server.url, **self.options}
        return ", ".join(f'"{name}" = "{value}"' for name, value in options.items())

    def connect(self) -> jsync.Connection:
        return jsync.connect(self.server.url, **self.own)


PASSWORD, TOKEN = "ann's s3cret", "tok-s3cret-en"


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """The directory of the files with the secrets, whose paths Spark gets."""
    (tmp_path / "hidden").mkdir()
    return tmp_path / "hidden"


@pytest.fixture
def ways(
    own_server: StartServer,
    certificates: Certificates,
    account: Account,
    jwt_server: LocalServer,
    hidden: Path,
) -> dict[str, Way]:
    password, key, user = hidden / "password", Key("user"), account.user()
    password.write_text(PASSWORD)
    creds = str(user.write_creds(hidden / "user.creds"))
    config = password_config({"ann": PASSWORD})
    tls = {
        "tls_ca": str(certificates.ca.cert),
        "tls_cert": str(certificates.client.cert),
        "tls_key": str(certificates.client.key),
    }
    return {
        "password": Way(
            own_server(config=config + certificates.server_config(verify=True)),
            {
                "nats.user": "ann",
                "nats.passwordFile": str(password),
                "nats.tlsCa": tls["tls_ca"],
                "nats.tlsCert": tls["tls_cert"],
                "nats.tlsKey": tls["tls_key"],
            },
            {"user": "ann", "password": PASSWORD, **tls},
            PASSWORD,
        ),
        "token": Way(
            own_server(config=token_config(TOKEN)),
            {"nats.tokenEnv": "NATS_TOKEN"},
            {"token": TOKEN},
            TOKEN,
        ),
        "seed": Way(
            own_server(config=nkey_config(key)),
            {"nats.nkeySeedEnv": "ANNS_SEED"},
            {"nkey_seed": key.seed},
            key.seed,
        ),
        "creds": Way(
            jwt_server,
            {"nats.credentialsFile": creds},
            {"creds": creds},
            user.key.seed,
        ),
    }


@pytest.fixture
def filled(ways: dict[str, Way]) -> Iterator[dict[str, Way]]:
    """The servers, each with a stream to read and one to write."""
    for way in ways.values():
        with way.connect() as nc:
            js = nc.jetstream()
            js.create_stream(name="IN", subjects=["IN.>"], storage="memory")
            js.create_stream(name="OUT", subjects=["OUT.>"], storage="memory")
            with js.publisher() as publisher:
                publisher.publish_many("IN.n", [b"%d" % n for n in range(ROWS)])
    yield ways
    with ways["creds"].connect() as nc:  # this server is shared with other tests
        js = nc.jetstream()
        for name in list(js.stream_names()):
            js.delete_stream(name)


def test_executors_accept_every_login_and_leak_no_secret(
    spark_cluster: SparkCluster,
    environment: dict[str, str],
    filled: dict[str, Way],
    certificates: Certificates,
    hidden: Path,
    tmp_path: Path,
) -> None:
    text = HEAD.format(events=tmp_path)
    for read, written in ("password", "token"), ("seed", "creds"):
        text += COPY.format(
            read=read,
            reading=filled[read].toml(),
            written=written,
            writing=filled[written].toml(),
        )
    (tmp_path / "pipeline.toml").write_text(text)
    with (tmp_path / "driver.log").open("wb") as log:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "jsync.spark.pipeline", "run"),
                *("pipeline.toml", "--master", spark_cluster.url),
            ],
            env={
                **environment,
                "NATS_TOKEN": TOKEN,
                "ANNS_SEED": filled["seed"].secret,
            },
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            check=False,
            timeout=DONE,
        )
    assert done.returncode == 0, (tmp_path / "driver.log").read_text()[-3000:]
    for written in "token", "creds":
        with filled[written].connect() as nc:
            found = stored(nc.jetstream().stream("OUT"), "data")
            assert sorted(int(data) for (data,) in found) == list(range(ROWS))
    secrets = [way.secret for way in filled.values()]
    secrets.append(certificates.client.key.read_text().splitlines()[1])
    files = [
        file
        for directory in (tmp_path, spark_cluster.directory)
        for file in directory.rglob("*")
        if file.is_file() and hidden not in file.parents
    ]
    for kind in ("events_1_*", "stderr", "driver.log", "master.log", "offsets/0"):
        assert any(file.match(kind) for file in files), (
            f"nothing to look for in: {kind}"
        )
    for file in files:
        for secret in secrets:
            assert secret.encode() not in file.read_bytes(), file
    (events,) = (file for file in files if file.match("events_1_*"))
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert any("QueryProgressEvent" in each["Event"] for each in told)
