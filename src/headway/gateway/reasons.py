"""Why the system refused a connection, in its own words and once."""

from __future__ import annotations

import os
import re
import socket
import ssl

_NUMBERS = re.compile(r"\[Errno (\d+)\]")


def reason_of(error: OSError) -> str:
    """``connection refused``; asyncio adds numbers, and an address for each attempt."""
    if isinstance(error, ssl.SSLError):  # its numbers are not those of the system
        return str(error)
    if isinstance(error, socket.gaierror):
        return str(error.strerror).lower()
    numbers = [error.errno] if error.errno else map(int, _NUMBERS.findall(str(error)))
    words = dict.fromkeys(os.strerror(number).lower() for number in numbers)
    return ", ".join(words) or str(error)
