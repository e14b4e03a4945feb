"""Finding a program as a shell does, before anyone queues for nothing, and starting it so."""

from __future__ import annotations

import errno
import os
import stat

from headway.errors import ConfigError, NotStartable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# As a shell answers.
DENIED, NOT_FOUND = 126, 127
# The agents that `headway agent` runs.
AGENTS = ("opencode", "claude", "codex", "gemini")


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


def agent_of(words: Sequence[str]) -> str:
    """The name of what does a command's work: `headway agent claude …` is one of claude's."""
    name = os.path.basename(words[0])
    if name == "headway" and "agent" in words[1:2]:
        return next((word for word in words[2:] if word in AGENTS), name)
    return name


def can_be_passed_on(text: str) -> bool:
    """Whether the system takes this as a word or a variable: not all is text, but it has an end."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def check_variables(name: str, environ: Mapping[Any, Any]) -> dict[str, str]:
    """Variables of an environment, if they are; what they contain is nobody's business."""
    if not hasattr(environ, "items"):
        raise ConfigError(f'{name} must be a mapping of names to texts: {{"LANG": "C"}}')
    for variable, value in environ.items():
        is_name = isinstance(variable, str) and variable and "=" not in variable
        is_passable = is_name and isinstance(value, str) and can_be_passed_on(variable + value)
        if not is_passable:
            raise ConfigError(f"{name}: {variable!r} is no variable that can be passed on as text")
    return dict(environ)


def start(program: str, words: Sequence[str], environ: Mapping[str, str], **options: Any) -> int:
    """Start the program, with the options of ``os.posix_spawn``; its pid."""
    try:
        return os.posix_spawn(program, tuple(words), environ, **options)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without its first line, as every shell runs it.
    return os.posix_spawn("/bin/sh", ("/bin/sh", program, *words[1:]), environ, **options)


def not_started(program: str, error: OSError) -> NotStartable:
    """What it means that the system refused to start a program that was found."""
    code = DENIED if os.path.exists(program) else NOT_FOUND
    return NotStartable(f"{program}: {error.strerror}", code)
