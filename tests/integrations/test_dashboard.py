"""The dashboard for Grafana: a real Prometheus runs its queries on a real worker."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import jsync

from ..cli.processes import Process
from ..support.servers import free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "examples/grafana/worker.json").read_text())

APP = """
import jsync

app = jsync.Worker(stream="JOBS")
retry = jsync.Retry(delays=[0.01], attempts=2, dead_letter="dead.jobs")

@app.handle("jobs.*", consumer="w", workers=2, retry=retry)
def handle(data: bytes) -> None:
    if data.endswith(b"0"):
        raise LookupError
"""

# As in the guide, and more often.
SCRAPE = """
global: {scrape_interval: 200ms, evaluation_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
  - job_name: billing
    static_configs: [{targets: ["127.0.0.1:PORT"]}]
"""


def queries() -> dict[str, str]:
    """The queries of all panels, and of the variables, as Grafana would send them."""
    found = {
        f"{panel['title']}: {target['legendFormat']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]["query"]
            assert query.startswith("label_values(")
            found[f"${variable['name']}"] = query[len("label_values(") :].split(",")[0]
    for name, value in (
        ("$__rate_interval", "30s"),
        ("$job", "billing"),
        ("$stream", "JOBS"),
        ("$consumer", ".*"),
    ):
        found = {where: query.replace(name, value) for where, query in found.items()}
    assert not [query for query in found.values() if "$" in query]
    return found


class Prometheus:
    def __init__(self, port: int) -> None:
        self._port = port

    def values(self, query: str) -> list[float]:
        """The values of a query at this moment, without those that are no number."""
        asked = urllib.parse.urlencode({"query": query})
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{asked}"
        try:
            with urllib.request.urlopen(url) as answer:
                found: Any = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is starting
                return []
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        except OSError:  # not there yet
            return []
        values = [float(each["value"][1]) for each in found["data"]["result"]]
        return [value for value in values if value == value]


@contextmanager
def prometheus(scraped: int, directory: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes a port."""
    found = subprocess.run(
        [ROOT / "scripts/need-prometheus"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    config = directory / "prometheus.yml"
    config.write_text(SCRAPE.replace("PORT", str(scraped)))
    port = free_port()
    with (
        (directory / "prometheus.log").open("wb") as log,
        subprocess.Popen(
            [
                found.stdout.strip(),
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=log,
        ) as process,
    ):
        try:
            yield Prometheus(port)
        finally:
            process.kill()


@pytest.fixture
def worker(
    own_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LocalServer, int]]:
    """A worker that is ready, and the port of its metrics."""
    server, port = own_server(), free_port()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "an_app.py").write_text(APP)
    with jsync_connection(server) as js:
        js.create_stream(name="JOBS", subjects=["jobs.*"])
        js.create_stream(name="DEAD", subjects=["dead.*"])
    with Process(
        server, "worker", "an_app:app", "-n", "2", "--http", f"127.0.0.1:{port}"
    ):
        yield server, port


@contextmanager
def jsync_connection(server: LocalServer) -> Iterator[jsync.JetStream]:
    with jsync.connect(server.url) as nc:
        yield nc.jetstream()


COUNTED = (
    "Handled messages: {{stream}} {{consumer}}",
    "Failures: failed {{stream}} {{consumer}}",
    "Messages that ended: dead letters {{stream}} {{consumer}}",
    "Time of a call: p99 {{stream}} {{consumer}}",
)
"""These are above zero while there are calls."""


def test_every_query_of_the_dashboard_has_an_answer(
    worker: tuple[LocalServer, int], tmp_path: Path
) -> None:
    server, port = worker
    with prometheus(port, tmp_path) as asked, jsync_connection(server) as js:
        wait_for(lambda: asked.values("sum(jsync_worker_processes_ready)") == [2.0])

        def all_answer() -> bool:
            for number in range(20):  # a rate needs calls between two scrapes
                js.publish("jobs.a", b"%d" % number)
            answers.clear()
            for where, query in queries().items():
                answers[where] = asked.values(query)
            empty[:] = [
                where
                for where, values in answers.items()
                if not values or (where in COUNTED and min(values) <= 0)
            ]
            return not empty

        empty: list[str] = []
        answers: dict[str, list[float]] = {}
        try:
            wait_for(all_answer, 60)
        except AssertionError:
            raise AssertionError(f"no answer: {empty}") from None
    assert answers["Processes that are not ready: "] == [0.0]
    assert answers["Processes: wanted"] == [2.0]


def test_the_dashboard_shows_every_metric_of_a_worker() -> None:
    shown = " ".join(queries().values())
    page = (ROOT / "docs/guides/worker-production.md").read_text()
    table = page.partition("| metric, by")[2].partition("## Logs")[0]
    names = {name for name in table.split("`") if name.startswith("jsync_worker_")}
    assert len(names) == 14
    assert not [name for name in names if name not in shown]
