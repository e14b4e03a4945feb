"""``@limited``: run a function under a slot, whatever kind of function it is."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from headway.keys import path as check_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.slot import Slot

P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    """Keeps the signature of what it decorates."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...


def limited(keys: tuple[str, ...], new_slot: Callable[[], Slot]) -> Decorator:
    """Take a new slot for every call; a generator keeps its slot until it is closed or done."""
    if keys and callable(keys[0]):
        name = getattr(keys[0], "__name__", repr(keys[0]))
        raise TypeError(
            f"limited needs the keys that {name}() runs under: write"
            f' @headway.limited("llm/openai") above it, not @headway.limited alone'
        )
    check_keys(keys)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        untyped = cast("Callable[..., Any]", function)
        if inspect.isasyncgenfunction(function):
            wrapper = _async_generator(untyped, new_slot)
        elif inspect.iscoroutinefunction(function):
            wrapper = _coroutine(untyped, new_slot)
        elif inspect.isgeneratorfunction(function):
            wrapper = _generator(untyped, new_slot)
        else:
            wrapper = _plain(untyped, new_slot)
        return cast("Callable[P, R]", functools.wraps(function)(wrapper))

    return decorate


def _plain(function: Callable[..., Any], new_slot: Callable[[], Slot]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with new_slot():
            return function(*args, **kwargs)

    return call


def _coroutine(function: Callable[..., Any], new_slot: Callable[[], Slot]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        async with new_slot():
            return await function(*args, **kwargs)

    return call


def _generator(function: Callable[..., Any], new_slot: Callable[[], Slot]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with new_slot():
            return (yield from function(*args, **kwargs))

    return call


def _async_generator(
    function: Callable[..., Any], new_slot: Callable[[], Slot]
) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        async with new_slot():
            inner = function(*args, **kwargs)
            # There is no "yield from" for these: pass on what the consumer sends and throws.
            step = inner.asend(None)
            try:
                while True:
                    try:
                        value = await step
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield value
                    except GeneratorExit:
                        raise
                    except BaseException as error:  # noqa: BLE001 - it is passed on
                        step = inner.athrow(error)
                    else:
                        step = inner.asend(sent)
            finally:
                await inner.aclose()

    return call
