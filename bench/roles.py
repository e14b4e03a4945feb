"""What children do on command: the parts that more than one figure needs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from bench.contenders import Contender


def take_turns(pipe: Connection, contender: Contender) -> None:
    """Go in when told to and say when; leave when told to and say when that began."""
    gate = contender.gate()
    while True:
        pipe.recv()
        with gate():
            pipe.send(time.monotonic_ns())
            pipe.recv()
            left_at = time.monotonic_ns()
        pipe.send(left_at)


def pass_through(pipe: Connection, contender: Contender, hold_seconds: float = 0.0) -> None:
    """When told to, go in and out again; then say when that was."""
    gate = contender.gate()
    while True:
        pipe.recv()
        with gate():
            entered_at = time.monotonic_ns()
            if hold_seconds:
                time.sleep(hold_seconds)
        pipe.send(entered_at)


def come_and_go(pipe: Connection, contender: Contender, hold_seconds: float) -> None:
    """Until the moment that is told, go in and out; then say from when to when each time."""
    gate = contender.gate()
    pipe.send("ready")
    while True:
        ends_at, stays = pipe.recv(), []
        while time.monotonic() < ends_at:
            with gate():
                entered_at = time.monotonic_ns()
                time.sleep(hold_seconds)
                stays.append((entered_at, time.monotonic_ns()))
        pipe.send(stays)
