"""Keys: paths that name what is limited, and the order in which they are collected.

A key is never used as a file name, so a provider called ``..`` is just a name.
"""

from __future__ import annotations

from headway.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LENGTH = 2048
MAX_LEVELS = 16
_CACHE_SIZE = 4096
_SHOWN = 80

_paths: dict[tuple[str, ...], tuple[str, ...]] = {}


def path(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys and all their ancestors in collection order: deepest first, then by name.

    Every ticket takes room in this one order, which is why no two tickets can
    wait for each other.
    """
    known = _paths.get(keys)
    if known is not None:
        return known
    if not keys:
        raise ConfigError('a slot needs at least one key, for example "llm/anthropic"')
    collected = {ancestor for key in keys for ancestor in lineage(check(key))}
    ordered = tuple(sorted(collected, key=collection_order))
    if len(_paths) >= _CACHE_SIZE:
        _paths.clear()
    _paths[keys] = ordered
    return ordered


def collection_order(key: str) -> tuple[int, str]:
    """Sorts keys deepest first, then by name."""
    return -key.count("/"), key


def lineage(key: str) -> list[str]:
    """The key itself and all its ancestors, from the root down."""
    parts = key.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def check(key: object, *, pattern: bool = False) -> str:
    """The key, if it is one; ``pattern`` allows ``*`` for a whole segment."""
    if not isinstance(key, str):
        raise ConfigError(f"a key must be text, got {key!r}")
    problem = _problem(key, pattern=pattern)
    if problem:
        shown = key if len(key) <= _SHOWN else key[:_SHOWN] + "..."
        raise ConfigError(f"key {shown!r} {problem}")
    return key


def _problem(key: str, *, pattern: bool) -> str | None:
    segments = key.split("/")
    if not all(segments):
        return 'has an empty segment; write it like "llm/anthropic/claude-opus-4"'
    if len(key) > MAX_LENGTH or len(segments) > MAX_LEVELS:
        return f"is too long; at most {MAX_LENGTH} characters in {MAX_LEVELS} levels"
    if not key.isprintable() or key != key.strip():
        return "has a control character or outer blanks; headway.llm_key() escapes such names"
    if not pattern and "*" in segments:
        return 'has "*" as a segment, which only a limit may have'
    return None


def matches(pattern: str, key: str) -> bool:
    """Whether a limit line speaks of this key: same depth, ``*`` for any one segment."""
    if pattern == key:
        return True
    wanted, given = pattern.split("/"), key.split("/")
    return len(wanted) == len(given) and all(
        want in ("*", have) for want, have in zip(wanted, given, strict=True)
    )


def specificity(pattern: str) -> tuple[bool, ...]:
    """Orders the lines that match one key: the leftmost exact segment decides."""
    return tuple(segment != "*" for segment in pattern.split("/"))


def llm_key(provider: str, model: str | None = None) -> str:
    """``llm/<provider>/<model>``, with whatever a key may not contain escaped."""
    names: Iterable[str] = (provider,) if model is None else (provider, model)
    return check("/".join(("llm", *(_escape(name) for name in names))))


def agent_key(program: str, model: str | None = None) -> str:
    """``agent/<program>`` or ``agent/<program>/<model>``, escaped in the same way.

    A model that its program writes with slashes has a level for each part.
    """
    names = (program,) if model is None else (program, *filter(None, model.split("/")))
    return check("/".join(("agent", *(_escape(name) for name in names))))


def agent_llm_key(task: str) -> str:
    """``agent-llm/<task>``: all LLM calls of one agent and its subagents together."""
    return check(f"agent-llm/{_escape(task)}")


def is_plain(name: object) -> bool:
    """Whether a name can be a part of a key just as it is."""
    try:
        return isinstance(name, str) and _escape(name) == name and check(name) == name
    except ConfigError:
        return False


def _escape(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a name in a key must be text and not empty, got {name!r}")
    if name == "*":
        return "%2A"
    return "".join(
        char if char.isprintable() and char not in "/% " else _percent(char) for char in name
    )


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
