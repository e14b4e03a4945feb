"""Programs that are neither threads nor asyncio: one clear error with the way out."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import assert_clean

import headway
from headway import Governor, HeadwayError
from headway.harness import ClaudeCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.slots.conftest import Govern


def limited_coroutine(governor: Governor) -> Coroutine[Any, Any, object]:
    """A coroutine under a slot."""

    @governor.limited("k")
    async def call() -> None:
        raise AssertionError("not granted")

    return call()


def limited_stream(governor: Governor) -> Coroutine[Any, Any, object]:
    """The first value of an async generator under a slot."""

    @governor.limited("k")
    async def stream() -> AsyncIterator[int]:
        yield 1

    async def consume() -> list[int]:
        return [value async for value in stream()]

    return consume()


CALLS: dict[str, Callable[[Governor], Coroutine[Any, Any, object]]] = {
    "slot": lambda governor: governor.slot("k").__aenter__(),
    "limited coroutine": limited_coroutine,
    "limited stream": limited_stream,
    "acapacity": lambda governor: governor.acapacity("k"),
    "asnapshot": lambda governor: governor.asnapshot(),
    "acool_down": lambda governor: governor.acool_down("k", 1),
    "aset_limit": lambda governor: governor.aset_limit("k", 2),
    "aunset_limit": lambda governor: governor.aunset_limit("k"),
    "apause": lambda governor: governor.apause("k"),
    "aresume": lambda governor: governor.aresume("k"),
    "areload": lambda governor: governor.areload(),
    "acancel": lambda governor: governor.acancel("x"),
    "arevoke": lambda governor: governor.arevoke("x"),
    "aclose": lambda governor: governor.aclose(),
    "aexecute": lambda governor: ClaudeCode(governor=governor).aexecute("x"),
}


def test_every_async_twin_is_tried() -> None:
    """So that a new one is not forgotten here."""
    public = {
        name for name in vars(Governor) if name.startswith("a") and name[1:] in vars(Governor)
    }
    assert public <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_another_event_loop_is_refused_in_plain_words(govern: Govern, name: str) -> None:
    """Driven as trio does it, every call says that it needs asyncio, and leaves nothing behind."""
    governor = govern({"k": 1})
    coroutine = CALLS[name](governor)

    with pytest.raises(HeadwayError, match=r"asyncio.*trio.*thread"):
        coroutine.send(None)

    coroutine.close()
    assert governor.capacity("k").limit == 1
    assert_clean(governor)


def import_gevent(monkeypatch: pytest.MonkeyPatch, *, patches: str) -> None:
    """Have gevent in this process, which has replaced one module."""
    monkey: Any = types.ModuleType("gevent.monkey")
    monkey.is_module_patched = lambda name: name == patches
    monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)


@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
def test_a_process_that_gevent_has_patched_is_told_what_to_do(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of a traceback from inside the store; the slot of the module says the same."""
    import_gevent(monkeypatch, patches="thread")

    with pytest.raises(HeadwayError, match=r"gevent .*memory://"):
        Governor(url)
    with pytest.raises(HeadwayError, match="gevent"):
        headway.slot("k")


def test_a_store_in_memory_serves_a_patched_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It blocks on locks alone, and gevent has replaced those too."""
    import_gevent(monkeypatch, patches="thread")

    with Governor("memory://", limits={"k": 1}) as governor, governor.slot("k"):
        assert governor.capacity("k").used == 1


def test_gevent_that_has_patched_nothing_changes_nothing(
    govern: Govern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing it is no reason to refuse."""
    import_gevent(monkeypatch, patches="nothing")

    with govern({"k": 1}).slot("k"):
        pass
