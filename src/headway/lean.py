"""The C halves of some standard modules.

What their Python halves load on top (enums, named tuples, weak sets) takes longer
than all of Headway, which stands in front of other commands and has to start fast.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signal  # noqa: PLC0414 - for others to import from here
    from collections import deque as deque  # noqa: PLC0414
    from contextvars import ContextVar as ContextVar  # noqa: PLC0414
    from hashlib import blake2b as blake2b  # noqa: PLC0414
    from types import MappingProxyType as MappingProxyType  # noqa: PLC0414
else:
    import _signal as signal  # noqa: F401
    from _blake2 import blake2b  # noqa: F401
    from _collections import deque  # noqa: F401
    from _contextvars import ContextVar  # noqa: F401

    MappingProxyType = type(type.__dict__)
