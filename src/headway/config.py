"""Settings: ``config.toml`` in the home and ``HEADWAY_*`` variables, as one frozen value.

The environment beats the file and the file beats the defaults, except for
limits: a home has one truth about those, its file, and ``HEADWAY_LIMITS`` only
fills in what the file does not mention.
"""

from __future__ import annotations

import os

from headway import keys, limits, parsed_file, setting_table
from headway.errors import ConfigError
from headway.tickets import check_task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.limits import Line

FILE_NAME = "config.toml"
_MAX_DIGITS = 18
# So many of the leases that a process runs under are known to it and told to its children.
MAX_INHERITED = 32


class Settings:
    """Everything that can be set, checked, with the home it belongs to."""

    __slots__ = (
        "approve",
        "boost_seconds",
        "expire_seconds",
        "gateway_credentials",
        "gateway_exempt",
        "gateway_max_bodies_bytes",
        "gateway_max_body_bytes",
        "gateway_patience_seconds",
        "gateway_port",
        "gateway_timeout_seconds",
        "gateway_token",
        "gateway_upstream_patience_seconds",
        "gateway_upstreams",
        "grace_seconds",
        "home",
        "idle_kill_seconds",
        "idle_warn_seconds",
        "inherited",
        "keep_count",
        "keep_seconds",
        "lease_seconds",
        "lines",
        "max_cooling_seconds",
        "max_jobs",
        "max_log_bytes",
        "max_output_bytes",
        "max_repeated_calls",
        "max_runtime_seconds",
        "max_tool_calls",
        "max_waiting",
        "min_free_memory_bytes",
        "namespace",
        "notify",
        "notify_command",
        "notify_on",
        "offered_lines",
        "paused",
        "providers",
        "retries",
        "retry_delay_seconds",
        "retry_within_seconds",
        "store_eviction",
        "store_password",
        "store_password_file",
        "store_timeout_seconds",
        "store_url",
        "task",
    )

    home: str
    inherited: tuple[str, ...]
    lines: tuple[Line, ...]
    offered_lines: tuple[Line, ...]
    paused: frozenset[str]
    boost_seconds: float
    max_waiting: int
    max_cooling_seconds: float
    store_timeout_seconds: float
    store_url: str | None
    store_eviction: str
    store_password: str | None
    store_password_file: str | None
    namespace: str
    lease_seconds: float
    task: str | None
    providers: Mapping[str, str]
    gateway_port: int
    gateway_upstreams: Mapping[str, str]
    gateway_credentials: Mapping[str, str]
    gateway_exempt: tuple[str, ...]
    gateway_timeout_seconds: float | None
    gateway_max_body_bytes: int
    gateway_max_bodies_bytes: int
    gateway_patience_seconds: float
    gateway_token: str | None
    gateway_upstream_patience_seconds: float
    max_jobs: int
    approve: str
    expire_seconds: float | None
    retries: int
    retry_delay_seconds: float
    retry_within_seconds: float | None
    grace_seconds: float
    keep_seconds: float | None
    keep_count: int
    max_log_bytes: int
    notify: tuple[str, ...]
    notify_on: tuple[str, ...]
    notify_command: str | None
    max_runtime_seconds: float | None
    idle_warn_seconds: float | None
    idle_kill_seconds: float | None
    max_output_bytes: int | None
    max_tool_calls: int | None
    max_repeated_calls: int | None
    min_free_memory_bytes: int | None

    def __init__(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings are frozen; {name} cannot be changed")


def is_off(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``HEADWAY=off`` switches all limits off, for tests of what uses Headway."""
    value = environ.get("HEADWAY")
    if not value or value == "on":
        return False
    if value == "off":
        return True
    raise ConfigError(
        f'HEADWAY = {value!r} is neither "on" nor "off"; HEADWAY=off switches all limits off'
        " for tests, and without the variable they are on"
    )


def home_directory(environ: Mapping[str, str] = os.environ) -> str:
    """The home in use: ``HEADWAY_HOME``, or ``~/.headway``."""
    return os.path.abspath(environ.get("HEADWAY_HOME") or os.path.expanduser("~/.headway"))


def stamp(home: str) -> int:
    """A number that differs when the home's file was changed."""
    try:
        return os.stat(os.path.join(home, FILE_NAME)).st_mtime_ns
    except OSError:
        return 0


def load(home: str | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read everything once; all problems are reported together."""
    home = home_directory(environ) if home is None else os.path.abspath(home)
    path = os.path.join(home, FILE_NAME)
    problems: list[str] = []
    document = _read(path, problems)
    values: dict[str, object] = {
        "home": home,
        "lines": tuple(_limits(document.pop("limits", {}), path, problems)),
        "paused": frozenset(_paused(document.pop("paused", []), path, problems)),
        "offered_lines": tuple(_limits_from_environment(environ, problems)),
        "inherited": _inherited(environ),
        "task": _task(environ, problems),
    }
    values |= _settings(_flat(document, path, problems), environ, path, problems)
    if problems:
        raise ConfigError(*problems)
    return Settings(**values)


def defaults(environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a governor without a home."""
    problems: list[str] = []
    settings = _settings({}, environ, "", problems)
    task = _task(environ, problems)
    if problems:
        raise ConfigError(*problems)
    return Settings(
        home="",
        lines=(),
        offered_lines=(),
        paused=frozenset(),
        inherited=_inherited(environ),
        task=task,
        **settings,
    )


def _inherited(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The leases that this process runs under, the nearest first, of whatever homes."""
    return tuple(environ.get("HEADWAY_LEASE", "").split()[:MAX_INHERITED])


def _read(path: str, problems: list[str]) -> dict[str, object]:
    try:
        return parsed_file.load(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}  # where the home itself is wrong, the store says so
    except ConfigError as error:  # it is not to be trusted
        problems += error.problems
        return {}
    except OSError as error:
        problems.append(f"{path} cannot be read: {error.strerror}; check its owner and mode")
        return {}
    except ValueError as error:  # its own, text that is not UTF-8, numbers without end
        problems.append(f"{path} is not valid TOML: {error}{_quotes_missing(path, str(error))}")
        return {}


def _quotes_missing(path: str, error: str) -> str:
    """The key with quotes, if the parser stumbled over one that needs them."""
    number = error.rpartition("(at line ")[2].partition(",")[0]
    try:
        with open(path, encoding="utf-8") as file:
            line = file.read().split("\n")[int(number) - 1]
    except (OSError, ValueError, IndexError):
        return ""
    key, equals, _ = line.partition("=")
    key = key.strip()
    needs_them = equals and any(sign in key for sign in "/*@:")
    if not needs_them or any(sign in key for sign in "\"'#[ ") or not key.isprintable():
        return ""
    return f'; a key with / * @ or : needs quotes: "{key}"'


def _limits(table: object, path: str, problems: list[str]) -> list[Line]:
    if not isinstance(table, dict):
        problems.append(f'{path}: limits = {table!r} must be a table: [limits], then "agent" = 4')
        return []
    return _parsed(table, source=limits.FILE, where=f"{path}: [limits]", problems=problems)


def _limits_from_environment(environ: Mapping[str, str], problems: list[str]) -> list[Line]:
    table: dict[str, object] = {}
    for part in environ.get("HEADWAY_LIMITS", "").split(","):
        if not part.strip():
            continue
        key, equals, value = (piece.strip() for piece in part.rpartition("="))
        if not equals:
            problems.append(f'HEADWAY_LIMITS: {part!r} is not "key=slots"; write "agent=4,llm=8"')
        else:
            if key in table:
                problems.append(f"HEADWAY_LIMITS: {key!r} is there twice; keep one")
            table[key] = from_text(value)
    return _parsed(table, source=limits.ENVIRONMENT, where="HEADWAY_LIMITS", problems=problems)


def from_text(text: str) -> object:
    """A number where a variable or a command line, which have only text, means one."""
    if not text.isascii() or len(text) > _MAX_DIGITS:
        return text
    if text.isdecimal():
        return int(text)
    return float(text) if text.replace(".", "", 1).isdecimal() else text


def _parsed(
    table: Mapping[str, object], *, source: str, where: str, problems: list[str]
) -> list[Line]:
    try:
        return limits.parse_lines(table, source=source, where=where)
    except ConfigError as error:
        problems += error.problems
        return []


def _task(environ: Mapping[str, str], problems: list[str]) -> str | None:
    task = environ.get("HEADWAY_TASK")
    if not task:
        return None
    try:
        return check_task(task)
    except ConfigError as error:
        problems.append(f"HEADWAY_TASK: {error}")
        return None


def _paused(listed: object, path: str, problems: list[str]) -> list[str]:
    if not isinstance(listed, list):
        problems.append(f'{path}: paused = {listed!r} must be a list: paused = ["llm/openai"]')
        return []
    paused = []
    for key in listed:
        try:
            paused.append(keys.check(key))
        except ConfigError as error:
            problems.append(f"{path}: paused: {error}")
    return paused


def _flat(document: dict[str, object], path: str, problems: list[str]) -> dict[str, object]:
    """``{"queue": {"boost": "5m"}}`` as ``{"queue.boost": "5m"}``, unknown names reported."""
    flat: dict[str, object] = {}
    for section, table in document.items():
        entries = table.items() if isinstance(table, dict) else [("", table)]
        flat |= {f"{section}.{name}".rstrip("."): value for name, value in entries}
    problems += [
        f"{path}: {name} = {_unless_secret(value)} is not a setting{_near(name)}"
        for name, value in flat.items()
        if name not in setting_table.SETTINGS
    ]
    return flat


def _unless_secret(value: object) -> str:
    """The value for people; an address may have a secret in it."""
    return "..." if "://" in repr(value) else repr(value)


def _near(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    known = [*setting_table.SETTINGS, "limits", "paused"]
    section = name.partition(".")[0]
    close = get_close_matches(name, known, n=1) or get_close_matches(section, known, n=1)
    return (
        f"; did you mean {close[0]}?"
        if close
        else f"; known are {', '.join(setting_table.SETTINGS)}"
    )


def _settings(
    flat: dict[str, object], environ: Mapping[str, str], path: str, problems: list[str]
) -> dict[str, object]:
    values = {}
    for name, setting in setting_table.SETTINGS.items():
        value, where = flat.get(name, setting.default), f"{path}: {name}"
        if setting.variable in environ:
            value, where = from_text(environ[setting.variable]), setting.variable
        try:
            values[setting.field] = setting.check(value, where)
        except ConfigError as error:
            problems += error.problems
    problems += setting_table.shadowed(values)
    return values
