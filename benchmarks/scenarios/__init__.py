"""What is compared, with whom, and which bars it is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .atomic import ATOMIC
from .import_time import IMPORT
from .ingest import INGEST
from .jetstream import CONSUME, FETCH, FETCH_ACK, NEXT
from .publish import LONE_100, LONE_1000, PUBLISH
from .read import PARSE, READ, READ_BUSY, READ_SIZES, SOURCE
from .request import API, REQUEST, REQUEST_BUSY
from .stream import AHEAD, SINGLE
from .tls import TLS, TLS_REQUEST

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
    "import": IMPORT,
    "fetch": FETCH,
    "fetchack": FETCH_ACK,
    **CONSUME,
    "next": NEXT,
    "single": SINGLE,
    "ahead": AHEAD,
    "ingest": INGEST,
    **ATOMIC,
}
