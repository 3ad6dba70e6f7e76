"""The meaning of an error of Spark, in one line. Pure.

Spark wraps an error in the errors that it caused, with the stacks of several processes. The
message of jsync helps more than the message of Spark about it, and a cause more than its
effect.
"""

from __future__ import annotations

import re

_JSYNC = re.compile(r"^(?:\S+ )*jsync\.errors\.(\w+): (.+)$", re.MULTILINE)
_RAISED = re.compile(
    r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)
_PYTHON = re.compile(
    r"Return Message: Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)$",
    re.MULTILINE,
)
"""The error that a function of the user raised, in `foreachBatch`."""
_CAUSE = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+)$", re.MULTILINE)
_SQL_LINE = re.compile(r"\(?\bline (\d+),? pos")
_STATE = re.compile(r"STATE_STORE_\w*SCHEMA_NOT_COMPATIBLE")
_OTHER_STATE = (
    "an aggregate or a join keeps state of another form in the checkpoint: undo the change "
    "of the steps, or choose another checkpoint, which reads the streams from their start"
)
_TAIL = re.compile(r";? ?\(?\bline \d+,? pos.*| SQLSTATE: \w+.*")


def explain(error: BaseException | str) -> tuple[str, int | None]:
    """Return the meaning of an error, and the line of the SQL if Spark reports it."""
    text = str(error)
    for pattern in (_JSYNC, _RAISED, _PYTHON):
        if found := pattern.findall(text):
            last = found[-1]
            return (last if isinstance(last, str) else last[-1]), None
    if state := _STATE.search(text):
        return f"{_OTHER_STATE} ({state[0]})", None
    place = _SQL_LINE.search(text)
    causes = _CAUSE.findall(text)
    first = causes[0] if causes else text.strip().partition("\n")[0]
    return _TAIL.sub("", first).strip(), int(place[1]) if place else None
