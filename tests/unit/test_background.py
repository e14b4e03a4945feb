"""Threads of Headway's own and the program's signals."""

from __future__ import annotations

import signal
import threading

import pytest

from headway import background, lean


def test_a_thread_of_ours_takes_no_signal() -> None:
    """All are blocked there, and none in the thread that started it."""
    seen: list[set[int]] = []
    done = threading.Event()

    def look() -> None:
        seen.append({int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())})
        done.set()

    background.start(look)

    assert done.wait(20)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1} <= seen[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_a_handler_that_raises_meanwhile_leaves_no_signal_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python runs handlers right after it has blocked the signals."""
    block = lean.signal.pthread_sigmask

    def struck_while_blocking(how: int, mask: set[int]) -> set[signal.Signals | int]:
        before = block(how, mask)
        if len(mask) > 1:
            raise KeyboardInterrupt
        return before

    monkeypatch.setattr(lean.signal, "pthread_sigmask", struck_while_blocking)
    with pytest.raises(KeyboardInterrupt):
        background.start(lambda: None)

    assert block(signal.SIG_BLOCK, ()) == set()
