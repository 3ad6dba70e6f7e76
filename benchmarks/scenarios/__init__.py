"""The scenarios of the comparison, their peers and their bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arrow import ARROW
from .atomic import ATOMIC
from .distance import DISTANCE
from .flat import CALLBACKS, IDLE, LENGTH, SPREAD
from .groups import GROUP, REGROUP
from .import_time import IMPORT
from .ingest import INGEST
from .jetstream import CONSUME, FETCH, FETCH_ACK, NEXT
from .keyvalue import KV_GET, KV_KEYS, KV_LIVE, KV_MANY, KV_PUT, KV_WATCH
from .many import CONSUMERS, KEPT, PROCESSES
from .objects import OBJECTS
from .ordered import ORDERED
from .payload import PAYLOADS
from .publish import LONE_100, LONE_1000, PUBLISH
from .push import PUSH
from .read import PARSE, READ, READ_BUSY, READ_SIZES, SOURCE
from .request import API, REQUEST, REQUEST_BUSY
from .service import SERVICES
from .shared import SHARED
from .stalls import STALLS
from .stream import AHEAD, SINGLE
from .tls import TLS, TLS_REQUEST, TLS_STREAM
from .websocket import WEBSOCKET, WEBSOCKET_REQUEST
from .worker import WORKER, WORKER_PROCESSES
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
    **SERVICES,
    **SHARED,
    "publish": PUBLISH,
    "lone1000": LONE_1000,
    "lone100": LONE_100,
    "tls": TLS,
    "tlsrequest": TLS_REQUEST,
    "tlsstream": TLS_STREAM,
    "websocket": WEBSOCKET,
    "websocketrequest": WEBSOCKET_REQUEST,
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
    "kvput": KV_PUT,
    "kvget": KV_GET,
    "kvmany": KV_MANY,
    "kvkeys": KV_KEYS,
    "kvwatch": KV_WATCH,
    "kvlive": KV_LIVE,
    "group": GROUP,
    "regroup": REGROUP,
    "worker": WORKER,
    "workers": WORKER_PROCESSES,
    **PAYLOADS,
    **OBJECTS,
    "consumers": CONSUMERS,
    "callbacks": CALLBACKS,
    "processes": PROCESSES,
    "kept": KEPT,
    **DISTANCE,
    "idle": IDLE,
    "spread": SPREAD,
    "length": LENGTH,
    "stalls": STALLS,
}
