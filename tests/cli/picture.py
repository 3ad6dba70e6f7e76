"""Draw the moving picture of `jsync top` on the pages: `python -m tests.cli.picture`.

The program starts a server with streams and consumers, measures them for half a minute, and draws
the screen with the code of the command. The SVG shows the screens of the last seconds one after
the other. Readers who prefer reduced motion see the last one.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleDimensions
from rich.terminal_theme import MONOKAI

import jsync
from jsync import errors
from jsync.cli.top.engine import RateTracker, ScreenState, View
from jsync.cli.top.sampler import measure
from jsync.cli.top.screen import ConnectionStatus, draw
from jsync.server import LocalServer

if TYPE_CHECKING:
    from jsync import Connection, JetStream

PICTURE = Path(__file__).parents[2] / "docs" / "assets" / "top.svg"
SIZE = ConsoleDimensions(96, 16)
RATES = {
    "CLICKS": 900,
    "ORDERS": 300,
    "PAYMENTS": 200,
    "SHIPMENTS": 120,
    "AUDIT": 80,
    "EMAIL": 40,
    "INVOICES": 20,
    "RETURNS": 3,
}
"""Messages per second, on average."""
WORKERS = {"CLICKS": 40, "ORDERS": 60, "PAYMENTS": 90, "SHIPMENTS": 90, "EMAIL": 90}
"""The maximum number of messages that a consumer of the stream handles in a tenth of a second."""
SECONDS = 30
FRAMES = 10
"""The number of screens in the picture, one for each second."""
STYLE = f"""
    .frame {{ visibility: hidden; animation: show {FRAMES}s infinite }}
    @keyframes show {{
        0% {{ visibility: visible }} {100 / FRAMES}% {{ visibility: hidden }}
    }}
    @media (prefers-reduced-motion: reduce) {{
        .frame {{ animation: none }} .frame:last-of-type {{ visibility: visible }}
    }}
"""
SCREEN = re.compile(
    r'<g transform="[^"]*" clip-path="url\(#\w+-clip-terminal\)">.*</g>\n', re.DOTALL
)
COLORS = re.compile(r"^ *\.[\w-]+-r\d+ \{.*\}$", re.MULTILINE)


def publish(nc: Connection, over: threading.Event) -> None:
    """Publish at rates that rise and fall."""
    for turn in range(1_000_000):
        if over.wait(0.1):
            return
        for shift, (name, rate) in enumerate(RATES.items()):
            wave = 1 + 0.8 * math.sin(turn / 30 + shift)
            for _ in range(int(rate / 10 * wave + turn % 4 / 4)):
                nc.publish(f"{name.lower()}.new", b"x" * 200)


def work(js: JetStream, over: threading.Event) -> None:
    """Acknowledge most messages, so that the server redelivers the others."""
    with contextlib.suppress(errors.ConnectionClosedError):
        while not over.wait(0.1):
            for name, most in WORKERS.items():
                with js.consumer(name, "billing").fetch_nowait(most) as batch:
                    for msg in batch:
                        if name != "PAYMENTS" or msg.metadata.stream_sequence % 50:
                            msg.ack()


def main() -> None:
    over = threading.Event()
    with LocalServer() as server, jsync.connect(server.url) as nc:
        js = nc.jetstream()
        for name in RATES:
            js.create_stream(name=name, subjects=[f"{name.lower()}.>"])
        for name in WORKERS:
            js.create_consumer(name, durable_name="billing", ack_wait=2)
        threads = [
            threading.Thread(target=publish, args=(nc, over)),
            threading.Thread(target=work, args=(js, over)),
        ]
        for thread in threads:
            thread.start()
        figures = RateTracker()
        version = nc.server_info.version
        status = ConnectionStatus(f"nats://127.0.0.1:4222  {version}", 1.0, None)
        frames: list[str] = []
        with ThreadPoolExecutor(2) as helpers:
            for second in range(SECONDS):
                figures.add(measure(js, helpers))
                if second >= SECONDS - FRAMES:
                    frames.append(frame(figures, status, f"top{len(frames)}"))
                time.sleep(1)
        over.set()
        for thread in threads:
            thread.join()
    PICTURE.write_text(moving(frames))


def frame(figures: RateTracker, status: ConnectionStatus, identity: str) -> str:
    """Return a picture of the screen, whose names in the SVG begin with `identity`."""
    console = Console(
        record=True,
        width=SIZE.width,
        height=SIZE.height,
        file=io.StringIO(),
        force_terminal=True,
        color_system="256",
    )
    console.print(draw(ScreenState(View.STREAMS), figures, status, SIZE))
    drawn = console.export_svg(title="jsync top", theme=MONOKAI, unique_id=identity)
    # A picture in a page must not load anything from other sites.
    drawn = re.sub(r"@font-face \{.*?\}\n?", "", drawn, flags=re.DOTALL)
    drawn = drawn.replace("Fira Code, monospace", "ui-monospace, monospace")
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def moving(frames: list[str]) -> str:
    """Return the first picture with the screens of all, each shown for a second."""
    screens, colors = [], []
    for number, drawn in enumerate(frames):
        (screen,) = SCREEN.findall(drawn)
        # The colors differ between frames. The lines of all frames are at the same places.
        screen = screen.replace(f"top{number}-line", "top0-line")
        screen = screen.replace(f"top{number}-clip", "top0-clip")
        screen = screen.replace(f"top{number}-matrix", "top0-matrix")
        screens.append(
            f'<g class="frame" style="animation-delay: {number}s">{screen}</g>\n'
        )
        colors += COLORS.findall(drawn)
    first = COLORS.sub("", frames[0])
    first = first.replace("</style>", "\n".join(colors) + STYLE + "    </style>", 1)
    return SCREEN.sub(lambda _: "".join(screens), first)


if __name__ == "__main__":
    main()
