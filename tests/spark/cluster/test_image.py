"""Tests of the image of examples/cluster: built from its Containerfile, and run as a cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import jsync

from ...support.accounts import password_config
from ..sink_support import stored
from .conftest import ROOT, SparkCluster, kill_session
from .images import Images

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.accounts import Account
    from ...support.certificates import Certificates
    from .images import Container

pytestmark = [pytest.mark.fault, pytest.mark.image]

ROWS = 500
DONE = 600
"""The seconds in which a pipeline must end, even on a slow machine."""
PASSWORD = "s3cret-of-ann"
DECOY = "decoy-s3cret"
"""The content of secrets that lie beside the Containerfile when it is built."""
SEED = r"\bS[AOUX][A-Z2-7]{56}\b"
KEY = r"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----$"
MAIN = (
    "local:///usr/local/lib/python3.11/site-packages/jsync/spark/pipeline/__main__.py"
)

BOTH = """
[streaming]
checkpoint = "${CHECKPOINT}"
trigger = "available-now"
[sources.late]
format = "jetstream"
[sources.late.options]
"nats.servers" = "${NATS_URL}"
"nats.credentialsFile" = "/etc/nats/user.creds"
"nats.tlsCa" = "/etc/nats/ca.pem"
stream = "LATE"
startingOffsets = "earliest"
minPartitions = "2"
[steps]
copied = "select 'OUT.row' as subject, data, concat('LATE/', sequence) as msg_id from late"
[sinks.copied]
format = "jetstream"
from = "copied"
[sinks.copied.options]
"nats.servers" = "${ARCHIVE_URL}"
"nats.user" = "ann"
"nats.passwordFile" = "/etc/nats/password"
"nats.tlsCa" = "/etc/nats/ca.pem"
stream = "OUT"
delivery = "exactly-once"
"""


@pytest.fixture(scope="module")
def images(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """The image `spark-jsync`, with a pipeline of the user's and secrets beside its Containerfile."""
    subprocess.run([str(ROOT / "scripts" / "need-buildah")], check=True)
    context = tmp_path_factory.mktemp("context") / "cluster"
    shutil.copytree(ROOT / "examples" / "cluster", context)
    (context / "both.toml").write_text(BOTH)
    (context / "deeper").mkdir()
    for name in ("user.creds", "server.key", "password", "deeper/ca.pem", ".env"):
        (context / name).write_text(DECOY)
    images = Images(tmp_path_factory.mktemp("images"))
    try:
        images.build_bases(sdist)
        images.build(context, "spark-jsync")
        yield images
    finally:
        images.remove()


@pytest.fixture(scope="module")
def hidden(
    account: Account,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The directory that is mounted into the containers, as Kubernetes mounts a secret."""
    directory = tmp_path_factory.mktemp("hidden")
    account.user().write_creds(directory / "user.creds")
    (directory / "password").write_text(PASSWORD)
    shutil.copy(certificates.ca.cert, directory / "ca.pem")
    for file in directory.iterdir():
        file.chmod(0o444)
    directory.chmod(0o755)
    return directory


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that all containers share, for checkpoints, event logs and workers."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o777)
    return directory


@pytest.fixture
def containers(images: Images, hidden: Path, shared: Path) -> dict[str, Container]:
    names = ("master", "one", "two", "driver")
    return {name: images.container("spark-jsync", name) for name in names}


@pytest.fixture
def servers(
    own_server: StartServer, account: Account, certificates: Certificates
) -> tuple[LocalServer, LocalServer]:
    """Two servers with TLS. The first one wants creds, and the second one a password."""
    tls = certificates.server_config()
    return (
        own_server(config=account.operator.config + tls),
        own_server(config=password_config({"ann": PASSWORD}) + tls),
    )


def test_the_image_runs_pipelines_and_contains_no_secret(
    containers: dict[str, Container],
    servers: tuple[LocalServer, LocalServer],
    certificates: Certificates,
    hidden: Path,
    shared: Path,
    tmp_path: Path,
) -> None:
    ca, creds = str(certificates.ca.cert), str(hidden / "user.creds")
    mounted = {hidden: "/etc/nats:ro", shared: str(shared)}
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}

    def spark_class(name: str) -> list[str]:
        return containers[name].command(
            *("/opt/entrypoint.sh", "/opt/spark/bin/spark-class"),
            volumes=mounted,
            environment=local,
        )

    def run(url: str, pipeline: str) -> None:
        """Run a pipeline in the container of the driver, as Kubernetes starts a driver."""
        confs = (
            *("spark.driver.memory=1g", "spark.executor.memory=512m"),
            *("spark.cores.max=2", "spark.eventLog.enabled=true"),
            *("spark.eventLog.compress=false", f"spark.eventLog.dir=file://{shared}"),
        )
        command = containers["driver"].command(
            *("/opt/entrypoint.sh", "driver", "--master", url),
            *(part for conf in confs for part in ("--conf", conf)),
            *(MAIN, "run", f"/app/{pipeline}.toml"),
            volumes=mounted,
            environment={
                **local,
                "NATS_URL": servers[0].url,
                "ARCHIVE_URL": servers[1].url,
                "CHECKPOINT": f"{shared}/checkpoint-{pipeline}",
            },
        )
        log = tmp_path / f"{pipeline}.log"
        with log.open("wb") as output:
            driver = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )
            try:
                assert driver.wait(DONE) == 0, log.read_text()[-4000:]
            finally:
                driver.kill()
                driver.wait()
                kill_session(driver.pid)

    with (
        jsync.connect(servers[0].url, creds=creds, tls_ca=ca) as nc,
        jsync.connect(
            servers[1].url, user="ann", password=PASSWORD, tls_ca=ca
        ) as other,
        SparkCluster(shared, dict(os.environ), spark_class) as cluster,
    ):
        js = nc.jetstream()
        js.create_stream(name="FLIGHTS", subjects=["flights.>"], storage="memory")
        late = js.create_stream(name="LATE", subjects=["late.>"], storage="memory")
        out = other.jetstream().create_stream(
            name="OUT", subjects=["OUT.>"], storage="memory"
        )
        flights = [{"carrier": "UA", "flight": n, "dep_delay": n} for n in range(ROWS)]
        with js.publisher() as publisher:
            publisher.publish_many(
                "flights.UA", [json.dumps(flight).encode() for flight in flights]
            )
        run(cluster.url, "flights")
        run(cluster.url, "both")
        for stream in (late, out):
            found = [json.loads(data)["flight"] for (data,) in stored(stream, "data")]
            assert sorted(found) == list(range(61, ROWS))
        written = [file for file in tmp_path.rglob("*") if file.is_file()]

    seed = re.search(SEED, (hidden / "user.creds").read_text())
    assert seed is not None
    secrets = (seed[0], PASSWORD, DECOY)
    for kind in ("eventlog*/events_1_*", "stderr", "both.log", "offsets/0"):
        assert any(file.match(kind) for file in written), f"no {kind}"
    for file in written:
        for secret in secrets:
            assert secret.encode() not in file.read_bytes(), file
    for container in containers.values():
        assert container.files_with(*secrets) == set()
    # The image has no secret of anyone's. Libraries of Debian have keys for their self-tests.
    keys = containers["driver"].files_with(SEED, KEY)
    assert all(file.startswith("/usr/lib/") for file in keys), keys
    # The search finds a file that is there.
    assert "/app/both.toml" in containers["driver"].files_with("nats.passwordFile")
