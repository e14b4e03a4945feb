"""Headway: capacity control for AI coding agents and LLM calls."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError(
        "Headway runs on Linux and macOS: it needs flock and Unix sockets. On Windows, use WSL"
    )

from headway.current_leases import current_lease
from headway.errors import (
    AtCapacity,
    Cancelled,
    ConfigError,
    CoolingDown,
    DeadlockRefused,
    HeadwayError,
    LeaseLost,
    NoSuchJob,
    NotStartable,
    QueueFull,
    QueueTimeout,
    StoreUnavailable,
)
from headway.governor import Governor, default
from headway.keys import llm_key
from headway.limits import UNLIMITED
from headway.slot import Lease, Slot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.decorating import Decorator
    from headway.events import Event
    from headway.views import BlockedBy, Capacity, Snapshot

__version__ = "0.1.0"

__all__ = [
    "UNLIMITED",
    "AtCapacity",
    "BlockedBy",
    "Cancelled",
    "Capacity",
    "ConfigError",
    "CoolingDown",
    "DeadlockRefused",
    "Governor",
    "HeadwayError",
    "Lease",
    "LeaseLost",
    "NoSuchJob",
    "NotStartable",
    "QueueFull",
    "QueueTimeout",
    "Slot",
    "Snapshot",
    "StoreUnavailable",
    "current_lease",
    "limited",
    "llm_key",
    "slot",
]


def slot(
    *keys: str,
    task: str | None = None,
    weight: int = 1,
    priority: int = 0,
    timeout: float | str | None = None,
    wait: bool = True,
    parent: Lease | str | None = None,
    on_wait: Callable[[Event], None] | None = None,
) -> Slot:
    """Ask the home's governor for one slot on each of these keys; see ``Governor.slot``."""
    return default().slot(
        *keys,
        task=task,
        weight=weight,
        priority=priority,
        timeout=timeout,
        wait=wait,
        parent=parent,
        on_wait=on_wait,
    )


def limited(
    *keys: str,
    task: str | None = None,
    weight: int = 1,
    priority: int = 0,
    timeout: float | str | None = None,
    wait: bool = True,
    parent: Lease | str | None = None,
) -> Decorator:
    """Decorate a function, coroutine function or (async) generator to run under a slot.

    The home is looked up when the function is called, not when it is decorated. With
    ``parent="current"`` the function runs on its caller's slot, if that has one on these keys.
    """
    from headway.decorating import limited as decorator  # noqa: PLC0415 - loads inspect

    return decorator(
        keys,
        lambda: slot(
            *keys,
            task=task,
            weight=weight,
            priority=priority,
            timeout=timeout,
            wait=wait,
            parent=parent,
        ),
    )


def __getattr__(name: str) -> object:
    """Load what only those who look need, when they look."""
    if name in ("BlockedBy", "Capacity", "Snapshot"):
        from headway import views  # noqa: PLC0415

        return getattr(views, name)
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
