"""Escapes that make foreign text safe for a terminal. Pure.

A subject, a header, a payload or an error of a server can contain control characters. A
terminal obeys them: they move the cursor, set the title, or answer as if you had typed.
"""

from __future__ import annotations

import re
from typing import Final

# Control characters (C0, DEL, C1), and characters that hide or reorder others: bidirectional
# controls, line and paragraph separators, invisible ones, tags, lone surrogates. A line break
# and a tab stay. The two joiners stay as well: Persian, Hindi and emoji need them. So do tags
# after a black flag: the flags of Scotland and Wales are spelled with them.
_UNSAFE: Final = re.compile(
    "(?P<flag>\U0001f3f4[\U000e0020-\U000e007f]+)|"
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]|\r(?!\n)"
)


def printable(text: str) -> str:
    r"""Escape the characters of `text` that a terminal would obey, as JSON escapes them.

    ESC becomes `\u001b`. A byte that is not UTF-8, which jsync reads as a lone surrogate,
    becomes `\udc80` to `\udcff`. Line breaks and tabs stay. The escapes are valid in JSON,
    so a JSON document stays valid and keeps its value.

    Args:
        text: Any text, for instance a subject or the words of a server.

    Returns:
        The text, safe to write to a terminal. The same text if nothing needs an escape.
    """
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    if found["flag"]:
        return found[0]
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)
    )
