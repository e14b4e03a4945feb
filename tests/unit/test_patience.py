"""Whoever waited for a thread has waited."""

from __future__ import annotations

import time

import pytest

from headway import StoreUnavailable
from headway.stores import patience
from headway.stores.patience import Patience


def test_a_crowd_alone_costs_nobody_its_time() -> None:
    """All of it is left when a call has its turn, however late that is."""
    slow = Patience("the store", 5)

    assert patience.since(time.monotonic() - 100, slow.left_seconds) == 5


def test_who_came_before_somebody_waited_in_vain_has_waited_as_well() -> None:
    """It hears the same; who comes later tries for itself."""
    silent = Patience("the store", 5)
    before, long_before = time.monotonic() - 2, time.monotonic() - 6
    told = silent.in_vain("it is silent")

    assert patience.since(before, silent.left_seconds) <= 3
    with pytest.raises(StoreUnavailable) as heard:
        patience.since(long_before, silent.left_seconds)
    assert str(heard.value) == str(told)
    assert silent.left_seconds() == 5
