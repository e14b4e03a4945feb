"""Ctrl-C strikes between any two steps of a call; no slot stays behind."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import Worker, assert_counts_are_true, is_clean
from tests.slots.test_interrupts import interrupt, strike_everywhere
from tests.transport.kit import SSE, WHOLE, Provider, ask, client_of
from tests.transport.kit import stream as streamed

from headway import waiting

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

# Python cannot raise an interrupt that strikes while garbage is taken away; it prints it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def call(client: Any) -> None:
    """Not streamed."""
    ask(client)


def read(client: Any) -> None:
    """Read to the end."""
    with streamed(client) as response:
        for _ in response.iter_raw():
            pass


def leave(client: Any) -> None:
    """Closed half-way."""
    with streamed(client) as response:
        pieces = response.iter_raw()
        next(pieces)


@pytest.mark.parametrize("scenario", [call, read, leave])
def test_an_interrupt_anywhere_leaves_no_slot_behind(
    lib: Any, govern: Govern, monkeypatch: pytest.MonkeyPatch, scenario: Any
) -> None:
    """Before the grant, between grant and sending, while the answer is taken in or freed."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.002)
    governor = govern({"llm": 2})
    provider = Provider(lib, WHOLE, headers=SSE)
    client = client_of(lib, governor, provider)

    def is_well() -> bool:
        # What was interrupted may hang on in circles of references. Not to the next strike:
        # Python breaks if one hits a lease that is being collected.
        gc.collect()
        return is_clean(governor)

    gc.collect()
    gc.freeze()  # so that collecting is quick
    try:
        strike_everywhere(lambda: scenario(client), interrupt, is_well=is_well)
    finally:
        gc.unfreeze()

    assert_counts_are_true(governor)
    Worker(lambda: scenario(client)).result()
