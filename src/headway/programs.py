"""Finding a program as a shell does, before anyone queues for nothing."""

from __future__ import annotations

import os
import stat

from headway.errors import NotStartable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# As a shell answers.
DENIED, NOT_FOUND = 126, 127


def find(name: str, environ: Mapping[str, str] = os.environ, directory: str = "") -> str:
    """Where the program is; a relative name with a slash counts from the directory."""
    directories = os.get_exec_path(environ) if "/" not in name else [""]
    denied = None
    for place in directories:
        path = os.path.join(directory, place, name)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK):
            return path
        denied = denied or path
    if denied is not None:
        raise NotStartable(f"{denied}: is not a program that may be executed", DENIED)
    raise NotStartable(f"{name}: no such program", NOT_FOUND)


def not_started(program: str, error: OSError) -> NotStartable:
    """What it means that the system refused to start a program that was found."""
    code = DENIED if os.path.exists(program) else NOT_FOUND
    return NotStartable(f"{program}: {error.strerror}", code)
