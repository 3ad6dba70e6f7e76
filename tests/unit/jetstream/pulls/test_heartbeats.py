"""Tests of idle heartbeats and disconnects, with a clock that the test sets.

Texts in quotes are from ADR-37, revision 2.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jsync.jetstream.pulls.engine import HeartbeatMonitor

INTERVAL = 5.0

Step = tuple[float, str]


@pytest.mark.parametrize(
    ("steps", "alarms"),
    [
        # "A warning is triggered if the timer reaches 2 * request's idle_heartbeat value."
        ([(9.9, "look"), (10.0, "look")], [10.0]),
        # The warning does not end the pull, and the timer starts again.
        ([(10.0, "look"), (19.9, "look"), (20.0, "look")], [10.0, 20.0]),
        # "The timer is reset on each received message (this can be either user message,
        # status message or heartbeat message)."
        ([(6.0, "arrival"), (15.9, "look"), (16.0, "look")], [16.0]),
        ([(6.0, "arrival"), (12.0, "arrival"), (21.0, "look")], []),
        # "Heartbeat timer should be reset and paused in the event of client disconnect
        # and resumed on reconnect."
        ([(6.0, "lost"), (11.0, "look"), (60.0, "look")], []),
        ([(6.0, "lost"), (60.0, "connected"), (69.9, "look"), (70.0, "look")], [70.0]),
        # Messages from before the disconnect do not count.
        ([(1.0, "arrival"), (2.0, "lost"), (3.0, "connected"), (12.0, "look")], []),
        ([(2.0, "lost"), (3.0, "connected"), (4.0, "arrival"), (13.5, "look")], []),
    ],
    ids=str,
)
def test_silence_is_an_alarm_after_twice_the_interval(
    steps: list[Step], alarms: list[float]
) -> None:
    watch, arrived, seen = HeartbeatMonitor(INTERVAL, 0.0), 0.0, []
    for now, what in steps:
        match what:
            case "arrival":
                arrived = now
            case "lost":
                watch.pause()
            case "connected":
                watch.resume(now)
            case "look":
                if watch.is_late(arrived, now):
                    seen.append(now)
    assert seen == alarms


@given(
    gaps=st.lists(st.floats(0.01, 40.0), max_size=20),
    interval=st.floats(0.5, 30.0),
)
def test_looking_at_announced_times_sees_exactly_the_alarms(
    gaps: list[float], interval: float
) -> None:
    watch, now, arrived = HeartbeatMonitor(interval, 0.0), 0.0, 0.0
    arrivals: list[float] = []
    for gap in gaps:
        arrivals.append((arrivals[-1] if arrivals else 0.0) + gap)
    end = (arrivals[-1] if arrivals else 0.0) + 3 * interval
    last_alarm = 0.0
    while now < end:
        now += watch.next_check_in(arrived, now)
        arrived = max([0.0, *(a for a in arrivals if a <= now)])
        quiet = now - max(arrived, last_alarm)
        late = watch.is_late(arrived, now)
        assert late == (quiet >= 2 * interval)
        if late:
            assert quiet <= 2 * interval + 0.02
            last_alarm = now
