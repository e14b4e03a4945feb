"""The script that a Redis server runs for each operation, made of the parts in ``lua/``."""

from __future__ import annotations

import os

# In this order: each uses what stands before it.
_SHORTCUTS = ("prelude", "clock", "shortcuts")
_RULES = (
    "rows",
    "header",
    "book",
    "lending",
    "circles",
    "admission",
    "pacing",
    "recovery",
    "recount",
    "operations",
    "holders",
    "looks",
    "answer",
)
# How the rows are written down. Raise it when an older Headway would misread them.
DATA_FORMAT = 2


def script(**replaced: bytes) -> bytes:
    """The operations of the store, as the server runs them; parts may be replaced.

    The rules are in a function of their own: what has many names needs a large stack, and
    each call that a shortcut serves would pay for it.
    """

    def text(part: str) -> bytes:
        path = os.path.join(os.path.dirname(__file__), "lua", f"{part}.lua")
        if part in replaced:
            return replaced[part]
        with open(path, "rb") as file:
            return file.read()

    shortcuts, rules = map(text, _SHORTCUTS), map(text, _RULES)
    beginning = b"local FORMAT = %d" % DATA_FORMAT
    return b"\n".join([beginning, *shortcuts, b"return (function()", *rules, b"end)()"])
