"""The jobs of the peers in Python, and their arguments."""

from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING, TypeAlias

from .measure import Result, report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Work: TypeAlias = "Callable[[argparse.Namespace], Result]"

ARGUMENTS = {
    "publish": "url subject size count threads",
    "read": "url subject size count",
    "readmany": "url subject size count subscriptions",
    "callbacks": "url subject size count subscriptions",
    "request": "url subject size count",
    "lone": "url count interval size",
    "fetch": "url stream consumer count batch ack",
    "consume": "url stream consumer count batch ack handler",
    "consumers": "url stream consumer count batch ack consumers",
    "ordered": "url stream count batch",
    "push": "url stream count flow",
    "next": "url stream consumer count",
    "publisher": "url subject size count window chunk",
    "ingest": "url subject size count flow outstanding chunk",
    "atomic": "url subject size count chunk",
    "single": "url subject size count",
    "kvput": "url bucket size count",
    "kvget": "url bucket keys count",
    "kvmany": "url bucket keys count",
    "kvkeys": "url bucket count passes",
    "kvwatch": "url bucket count passes",
    "kvordered": "url bucket count passes",
    "kvlive": "url bucket count reads",
    "work": "url stream consumer count batch typed spin plain",
    "member": "url stream consumer sleep",
    "regroup": "url stream sleep changes",
    "serve": "url subject workers delay",
    "shared": "url call target size count threads",
    "objectput": "url stream size count",
    "objectget": "url stream size count",
    "objectopen": "url stream size count",
}
WORDS = {"url", "subject", "stream", "consumer", "bucket", "call", "target"}


def main(jobs: Mapping[str, Work]) -> None:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers(required=True)
    for name, work in jobs.items():
        job = subparsers.add_parser(name)
        for argument in ARGUMENTS[name].split():
            job.add_argument(argument, type=str if argument in WORDS else int)
        job.add_argument("--busy", type=int, default=0, help="pure Python threads")
        job.add_argument("--hold", type=int, default=0, help="ms that C holds the GIL")
        job.add_argument("--others", type=int, default=0, help="idle subscriptions")
        job.add_argument("--ca")
        job.add_argument("--thread", action="store_true", help="not the main thread")
        job.set_defaults(work=work)
    chosen = parser.parse_args()
    if not chosen.thread:
        report(chosen.work(chosen))
        return
    thread = threading.Thread(target=lambda: report(chosen.work(chosen)))
    thread.start()
    thread.join()
