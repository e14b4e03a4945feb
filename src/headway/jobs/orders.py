"""What somebody wants to have run: an order, checked before it is kept."""

from __future__ import annotations

import _thread
import os

from headway import keys, programs, setting_table, sizes
from headway.durations import positive_seconds, seconds
from headway.errors import ConfigError
from headway.jobs import receivers
from headway.programs import can_be_passed_on, check_variables
from headway.tickets import check_priority, check_task, check_weight, check_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypedDict, TypeVar

    from headway.config import Settings

    T = TypeVar("T")

    class Options(TypedDict, total=False):
        """What can be said about a job besides its command; see ``Order``."""

        keys: Sequence[str] | str
        task: str | None
        priority: int
        weight: int
        expire: float | str | None
        hold: bool | None
        after: Sequence[int]
        retries: int | None
        retry_delay: float | str | None
        retry_on: Sequence[str | int]
        dedupe: str | None
        notify: Sequence[str]
        notify_on: Sequence[str] | None
        max_runtime: float | str | None
        idle_warn: float | str | None
        idle_kill: float | str | None
        max_output: int | str | None
        directory: str | None
        environ: Mapping[str, str] | None
        umask: int | None


# What a surrounding lease or job has put there; a job stands for itself.
MARKS = ("HEADWAY_LEASE", "HEADWAY_TOKEN", "HEADWAY_TASK", "HEADWAY_JOB", "HEADWAY_ATTEMPT")
_MARKS_AS_BYTES = tuple(map(os.fsencode, MARKS))
MAX_NAME_LENGTH = 200
MAX_RETRIES = 1000
# Ends after which a job can be retried, besides those with an exit code of their own.
RETRY_ON = ("any", "failed", "interrupted")
MAX_EXIT_CODE = 255


class Order:
    """A command and how it is to be run. What is not said comes from the settings.

    ``environ``, ``directory`` and ``umask`` are those of the caller unless given.
    """

    __slots__ = (
        "after",
        "command",
        "dedupe",
        "directory",
        "environ",
        "expire_seconds",
        "hold",
        "keys",
        "notify",
        "notify_on",
        "path",
        "priority",
        "retries",
        "retry_delay_seconds",
        "retry_on",
        "task",
        "umask",
        "watch",
        "weight",
    )

    def __init__(
        self,
        command: Sequence[str],
        *,
        keys: Sequence[str] | str = (),
        task: str | None = None,
        priority: int = 0,
        weight: int = 1,
        expire: float | str | None = None,
        hold: bool | None = None,
        after: Sequence[int] = (),
        retries: int | None = None,
        retry_delay: float | str | None = None,
        retry_on: Sequence[str | int] = (),
        dedupe: str | None = None,
        notify: Sequence[str] = (),
        notify_on: Sequence[str] | None = None,
        max_runtime: float | str | None = None,
        idle_warn: float | str | None = None,
        idle_kill: float | str | None = None,
        max_output: int | str | None = None,
        directory: str | None = None,
        environ: Mapping[str, str] | None = None,
        umask: int | None = None,
    ) -> None:
        self.command = _words(command)
        named = (keys,) if isinstance(keys, str) else _listed("keys", keys)
        self.keys = named or (_agent(self.command),)
        self.path = _path(self.keys)
        self.task = None if task is None else check_task(task)
        self.priority = check_priority(priority)
        self.weight = check_weight(weight)
        self.expire_seconds = _expiry(expire)
        self.hold = _yes_or_no("hold", hold)
        self.after = tuple(check_whole("after", job, 1, 2**62) for job in _listed("after", after))
        self.retries = None if retries is None else check_whole("retries", retries, 0, MAX_RETRIES)
        self.retry_delay_seconds = (
            None if retry_delay is None else seconds(retry_delay, name="retry_delay")
        )
        self.retry_on = tuple(check_retry_on(kind) for kind in _listed("retry_on", retry_on))
        self.dedupe = None if dedupe is None else _name("dedupe", dedupe)
        self.notify = tuple(_url(url) for url in ([notify] if isinstance(notify, str) else notify))
        self.notify_on = None if notify_on is None else _events(notify_on)
        self.watch = _watch(max_runtime, idle_warn, idle_kill, max_output)
        self.directory = None if directory is None else os.path.abspath(_directory(directory))
        self.environ = None if environ is None else packed(check_variables("environ", environ))
        self.umask = None if umask is None else check_whole("umask", umask, 0, 0o777)

    def find_program(self) -> str:
        """Where its program is; ``NotStartable`` if it is nowhere, before anyone queues for it."""
        environ = os.environ if self.environ is None else unpacked(self.environ)
        return programs.find(self.command[0], environ, self.directory or "")

    def options(self, settings: Settings) -> dict[str, object]:
        """What is kept as JSON: what differs from the settings, and the jobs it comes after."""
        self._check_watch(settings)
        options: dict[str, object] = dict(self.watch)
        if self.after:
            # Rows of dependencies go when they are met; a retry has to wait for them again.
            options["after"] = list(self.after)
        if self.retry_delay_seconds is not None:
            options["retry_delay_seconds"] = self.retry_delay_seconds
        if self.retry_on:
            options["retry_on"] = list(self.retry_on)
        if self.notify:
            options["notify"] = list(self.notify)
        if self.notify_on is not None:
            options["notify_on"] = list(self.notify_on)
        return options

    def _check_watch(self, settings: Settings) -> None:
        if self.watch:
            names = ("max_runtime_seconds", "idle_warn_seconds", "idle_kill_seconds")
            merged = {name: self.watch.get(name, getattr(settings, name)) for name in names}
            problems = setting_table.shadowed(merged)
            if problems:
                raise ConfigError(*problems)


def _words(command: Sequence[str]) -> list[str]:
    words = list(command) if _is_list(command) else [None]
    if not all(isinstance(word, str) for word in words):
        raise ConfigError(f'a command is a list of words: ["ls", "-l"], got {command!r}')
    if not words or not words[0]:
        raise ConfigError("a command needs at least the name of a program")
    if not can_be_passed_on("".join(words)):
        raise ConfigError(f"a command cannot contain zero bytes or broken text, got {words!r}")
    return words


def _listed(name: str, value: Sequence[T]) -> tuple[T, ...]:
    if not _is_list(value):
        raise ConfigError(f"{name} must be a list, got {value!r}")
    return tuple(value)


def _is_list(value: object) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes)


def _yes_or_no(name: str, value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise ConfigError(f"{name} must be True or False, or None for what the settings say: {value!r}")


def _directory(value: object) -> str:
    if not isinstance(value, str) or not value or not can_be_passed_on(value):
        raise ConfigError(f"directory must be the path of one, got {value!r}")
    return value


def _agent(command: Sequence[str]) -> str:
    return keys.agent_key(programs.agent_of(command))


def _path(named: tuple[str, ...]) -> tuple[str, ...]:
    for key in named:
        keys.check(key)
    return keys.path(named)


def _expiry(expire: float | str | None) -> float | None:
    """Seconds, infinity for "never", or nothing for what the settings say."""
    if expire is None:
        return None
    return float("inf") if expire == "never" else positive_seconds(expire, name="expire")


def check_retry_on(kind: object) -> str | int:
    """An end after which a job is retried: the word for a kind of end, or an exit code."""
    if isinstance(kind, str) and kind in RETRY_ON:
        return kind
    is_code = isinstance(kind, int) and not isinstance(kind, bool)
    if is_code or (isinstance(kind, str) and kind.isascii() and kind.isdecimal()):
        for code in range(1, MAX_EXIT_CODE + 1):
            if kind in (code, str(code)):
                return code
    raise ConfigError(
        f"retry_on must be {', '.join(RETRY_ON)} or an exit code from 1 to {MAX_EXIT_CODE},"
        f" got {kind!r}"
    )


def _name(what: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH or not _is_text(value):
        raise ConfigError(f"{what} must be a name of 1 to {MAX_NAME_LENGTH} letters, got {value!r}")
    return value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _url(url: object) -> str:
    problem = receivers.problem_with(url)
    if problem is not None:
        raise ConfigError(f"notify {problem}")
    return str(url)


def _events(events: Sequence[str]) -> tuple[str, ...]:
    return setting_table.check_events(_listed("notify_on", events), "notify_on")


def _watch(
    max_runtime: float | str | None,
    idle_warn: float | str | None,
    idle_kill: float | str | None,
    max_output: int | str | None,
) -> dict[str, float | int | None]:
    """The watchdogs that were named; the word "off" takes one away."""
    watch: dict[str, float | int | None] = {}
    named = (("max_runtime", max_runtime), ("idle_warn", idle_warn), ("idle_kill", idle_kill))
    for name, given in named:
        if given is not None:
            off = given == "off"
            watch[f"{name}_seconds"] = None if off else positive_seconds(given, name=name)
    if max_output is not None:
        off = max_output == "off"
        watch["max_output_bytes"] = None if off else sizes.size(max_output, name="max_output")
    return watch


class Surroundings:
    """The directory, the environment and the umask of this process, as a job keeps them."""

    __slots__ = ("directory", "environ", "umask")

    def __init__(self) -> None:
        try:
            self.directory = os.getcwd()
        except FileNotFoundError:
            self.directory = ""
        # The dictionary inside is read ten times as fast.
        self.environ = _joined(getattr(os.environb, "_data", os.environb))
        self.umask = _own_umask()

    def directory_for(self, order: Order) -> str:
        """Where a job is to run."""
        directory = order.directory or self.directory
        if not directory:
            raise ConfigError("the current directory is gone; change to another, or name one")
        return directory


def packed(environ: Mapping[str, str]) -> bytes:
    """An environment without the marks of a lease around it, as bytes."""
    return _joined({os.fsencode(name): os.fsencode(environ[name]) for name in environ})


def _joined(environ: Mapping[bytes, bytes]) -> bytes:
    kept = [b"%b=%b" % pair for pair in environ.items() if pair[0] not in _MARKS_AS_BYTES]
    return b"\0".join(kept)


def unpacked(environ: bytes) -> dict[str, str]:
    """What was packed."""
    pairs = (pair.partition("=") for pair in os.fsdecode(environ).split("\0") if pair)
    return {name: value for name, _, value in pairs}


def _own_umask() -> int:
    """Asked for by setting another one, if there is no other thread that this could disturb."""
    if _thread._count():  # noqa: SLF001 - threads besides the first
        try:
            with open("/proc/self/status", encoding="ascii", errors="replace") as file:
                for line in file:
                    if line.startswith("Umask:"):
                        return int(line.split()[1], 8)
        except OSError:
            pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
