"""What is asked of an agent, checked before anybody queues for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from headway import durations, setting_table
from headway.errors import ConfigError
from headway.programs import check_variables
from headway.tickets import check_priority, check_task, check_weight, check_whole
from headway.watchdogs import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headway.config import Settings
    from headway.harness.events import AgentEvent
    from headway.harness.scope import Cancellation

_MAX_RETRIES = 100
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class Options(TypedDict, total=False):
    """What ``execute`` and ``aexecute`` take besides the prompt."""

    # The caller's own label for the work; identity only.
    task: str | None
    # Where the agent works [the present directory].
    cwd: str | os.PathLike[str] | None
    # The session to go on with, as an earlier result named it.
    session: str | None
    # How long to wait for a slot; and whether to wait at all.
    timeout: float | str | None
    wait: bool
    # As everywhere, in the governor's queue.
    priority: int
    weight: int
    # Watchdogs: a value, "off", or None for what the settings say.
    max_runtime: float | str | None
    idle_warn: float | str | None
    idle_kill: float | str | None
    max_tool_calls: int | str | None
    max_repeated_calls: int | str | None
    # How often to begin anew after a failure, and on which models then.
    retries: int
    fallbacks: Sequence[str]
    # Variables for the program, besides those of this process.
    env: Mapping[str, str] | None
    # Called with each event, on the caller's event loop; what it raises ends the work.
    on_event: Callable[[AgentEvent], None] | None
    # A handle by which others can end it.
    cancellation: Cancellation | None


@dataclass(frozen=True, slots=True)
class Order:
    """One prompt with its options, checked."""

    prompt: str
    task: str | None
    directory: str
    session: str | None
    timeout_seconds: float | None
    wait: bool
    priority: int
    weight: int
    watch: Mapping[str, object]
    retries: int
    models: tuple[str | None, ...]
    env: Mapping[str, str]


def order(prompt: str, model: str | None, options: Options, settings: Settings) -> Order:
    """The order, or a ``ConfigError`` that names what is wrong with it."""
    for name in options.keys() - Options.__optional_keys__:
        raise TypeError(f"there is no option {name!r} of an execution")
    task, timeout = options.get("task"), options.get("timeout")
    chosen = watch(options, settings)
    return Order(
        prompt=_prompt(prompt),
        task=None if task is None else check_task(task),
        directory=_directory(options.get("cwd")),
        session=word("session", options.get("session")),
        timeout_seconds=None if timeout is None else durations.seconds(timeout, name="timeout"),
        wait=_truth("wait", options.get("wait", True)),
        priority=check_priority(options.get("priority", 0)),
        weight=check_weight(options.get("weight", 1)),
        watch=chosen,
        retries=check_whole("retries", options.get("retries", 0), 0, _MAX_RETRIES),
        models=(model, *words("fallbacks", options.get("fallbacks", ()))),
        env=check_variables("env", options.get("env") or {}),
    )


def watch(options: Options, settings: Settings) -> dict[str, object]:
    """The watchdogs that were set for this one, by the names of the settings they replace."""
    chosen: dict[str, object] = {}
    for name, field in FIELDS.items():
        value = options.get(name)  # none of those that only jobs have
        if value is not None:
            chosen[field] = setting_table.SETTINGS[f"watchdog.{name}"].check(value, name)
    problems = setting_table.shadowed(
        {field: chosen.get(field, getattr(settings, field)) for field in FIELDS.values()}
    )
    if problems:
        raise ConfigError(*problems)
    return chosen


def _prompt(text: object) -> str:
    prompt = _passable("prompt", text)
    if "\0" in prompt:
        raise ConfigError(
            f"the prompt has a NUL at character {prompt.index(chr(0)) + 1}, which ends a text for"
            ' many programs and cannot be in a command; remove it: prompt.replace("\\0", "")'
        )
    return prompt


def _passable(name: str, text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{name} must be text and not empty, got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name} contains broken text, which no program can read") from None
    return text


def word(name: str, text: object) -> str | None:
    """What becomes a word of a command, and never an option of it."""
    if text is None:
        return None
    if isinstance(text, str) and (text.startswith("-") or "\0" in text):
        raise ConfigError(f"{name} must not begin with a dash or have a NUL in it, got {text!r}")
    return _passable(name, text)


def is_uuid(session: str) -> bool:
    """Whether a session is given by its id, where ids are UUIDs; not by a name or a number."""
    return _UUID.fullmatch(session) is not None


def words(name: str, texts: object) -> list[str]:
    """Several of them; one text alone would be taken for its letters."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ConfigError(f"{name} must be a list of texts, got {texts!r}")
    return [word(name, text) or _passable(name, text) for text in texts]


def _directory(cwd: object) -> str:
    if not isinstance(cwd, str | os.PathLike | None):
        raise ConfigError(f"cwd must be a path, got {cwd!r}")
    try:
        return os.path.abspath(os.fsdecode(cwd or os.getcwd()))
    except FileNotFoundError:
        raise ConfigError("the present directory is gone; say with cwd= where to work") from None


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return value
