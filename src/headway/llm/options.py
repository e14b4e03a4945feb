"""What a transport was told, checked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway import durations
from headway.errors import ConfigError
from headway.governor import Governor
from headway.keys import llm_key
from headway.llm.retrying import Retry
from headway.tickets import check_priority, check_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.events import Event


class Options:
    """The same for both transports."""

    __slots__ = (
        "governor",
        "on_wait",
        "priority",
        "provider",
        "raise_truncated",
        "retry",
        "task",
        "timeout_seconds",
    )

    def __init__(
        self,
        *,
        provider: str | None,
        governor: Governor | None,
        task: str | None,
        priority: int,
        timeout: float | str | None,
        on_wait: Callable[[Event], None] | None,
        raise_truncated: bool,
        retry: int | Retry | None,
    ) -> None:
        if provider is not None:
            llm_key(provider)
        if governor is not None and not isinstance(governor, Governor):
            raise ConfigError(f"governor must be a headway.Governor, got {governor!r}")
        if on_wait is not None and not callable(on_wait):
            raise ConfigError(f"on_wait must be a function that takes an event, got {on_wait!r}")
        if raise_truncated.__class__ is not bool:
            raise ConfigError(f"raise_truncated must be True or False, got {raise_truncated!r}")
        self.provider, self.governor = provider, governor
        self.task = None if task is None else check_task(task)
        self.priority = check_priority(priority)
        self.timeout_seconds = (
            None if timeout is None else durations.seconds(timeout, name="timeout")
        )
        self.on_wait, self.raise_truncated = on_wait, raise_truncated
        self.retry = None if retry is None else Retry.of(retry)
