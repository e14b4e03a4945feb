"""What is asked of an agent, checked before anybody queues for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from headway import durations, setting_table
from headway.errors import ConfigError
from headway.tickets import check_task
from headway.watchdogs import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headway.config import Settings
    from headway.harness.events import AgentEvent
    from headway.harness.scope import Cancellation

_MAX_RETRIES = 100


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
    task, timeout = options.get("task"), options.get("timeout")
    chosen = watch(options, settings)
    return Order(
        prompt=_passable("prompt", prompt),
        task=None if task is None else check_task(task),
        directory=os.path.abspath(os.fspath(options.get("cwd") or os.getcwd())),
        session=_optional("session", options.get("session")),
        timeout_seconds=None if timeout is None else durations.seconds(timeout, name="timeout"),
        wait=options.get("wait", True),
        priority=options.get("priority", 0),
        weight=options.get("weight", 1),
        watch=chosen,
        retries=_retries(options.get("retries", 0)),
        models=(model, *(_passable("fallbacks", one) for one in options.get("fallbacks", ()))),
        env=variables(options.get("env")),
    )


def watch(options: Options, settings: Settings) -> dict[str, object]:
    """The watchdogs that were set for this one, by the names of the settings they replace."""
    chosen: dict[str, object] = {}
    for name, field in FIELDS.items():
        value = options.get(name)
        if value is not None:
            chosen[field] = setting_table.SETTINGS[f"watchdog.{name}"].check(value, name)
    problems = setting_table.shadowed(
        {field: chosen.get(field, getattr(settings, field)) for field in FIELDS.values()}
    )
    if problems:
        raise ConfigError(*problems)
    return chosen


def variables(env: Mapping[Any, Any] | None) -> dict[str, str]:
    """Variables of an environment, if they are; what they contain is nobody's business."""
    given = {} if env is None else dict(env)
    for name, value in given.items():
        if not isinstance(name, str) or "=" in name or not name or not isinstance(value, str):
            raise ConfigError(f"env: {name!r} is no variable that can be passed on as text")
    return given


def _passable(name: str, text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{name} must be text and not empty, got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name} contains broken text, which no program can read") from None
    return text


def _optional(name: str, text: object) -> str | None:
    if text is None:
        return None
    if isinstance(text, str) and text.startswith("-"):
        raise ConfigError(f"{name} must not begin with a dash, got {text!r}")
    return _passable(name, text)


def _retries(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_RETRIES:
        raise ConfigError(f"retries must be a whole number from 0 to {_MAX_RETRIES}, got {value!r}")
    return value
