"""What is compared, with whom, and which bars it is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arrow import ARROW
from .atomic import ATOMIC
from .distance import DISTANCE
from .flat import IDLE, LENGTH, SPREAD
from .import_time import IMPORT
from .ingest import INGEST
from .jetstream import CONSUME, FETCH, FETCH_ACK, NEXT
from .many import CONSUMERS, KEPT, PROCESSES
from .ordered import ORDERED
from .payload import PAYLOADS
from .publish import LONE_100, LONE_1000, PUBLISH
from .push import PUSH
from .read import PARSE, READ, READ_BUSY, READ_SIZES, SOURCE
from .request import API, REQUEST, REQUEST_BUSY
from .stalls import STALLS
from .stream import AHEAD, SINGLE
from .tls import TLS, TLS_REQUEST, TLS_STREAM
from .writers import WRITE_LARGE

if TYPE_CHECKING:
    from .scenario import Scenario

SCENARIOS: dict[str, Scenario] = {
    "parse": PARSE,
    "read": READ,
    **READ_SIZES,
    "source": SOURCE,
    "readbusy": READ_BUSY,
    "request": REQUEST,
    "api": API,
    "requestbusy": REQUEST_BUSY,
    "publish": PUBLISH,
    "lone1000": LONE_1000,
    "lone100": LONE_100,
    "tls": TLS,
    "tlsrequest": TLS_REQUEST,
    "tlsstream": TLS_STREAM,
    "import": IMPORT,
    "fetch": FETCH,
    "fetchack": FETCH_ACK,
    **CONSUME,
    "next": NEXT,
    "single": SINGLE,
    "ahead": AHEAD,
    "writers": WRITE_LARGE,
    "ingest": INGEST,
    **ATOMIC,
    "ordered": ORDERED,
    "arrow": ARROW,
    "push": PUSH,
    **PAYLOADS,
    "consumers": CONSUMERS,
    "processes": PROCESSES,
    "kept": KEPT,
    **DISTANCE,
    "idle": IDLE,
    "spread": SPREAD,
    "length": LENGTH,
    "stalls": STALLS,
}
