"""The gateway in the background: starting it, finding it and stopping it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from typing import TYPE_CHECKING

from headway import detached, ownership
from headway.cli import UNAVAILABLE, Failure, output
from headway.jobs.orders import packed, unpacked
from headway.jobs.post import Post

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_RUNNING = 1
_LOOK_SECONDS = 0.01
_PATIENCE_SECONDS = 2.0
_LAST_LINES = 3


class Service:
    """The one gateway of a home that ``stop`` and ``status`` speak of."""

    def __init__(self, home: str) -> None:
        self._home, self._post = home, Post(home, "gateway")

    def announce(self, address: str) -> None:
        """Say that this process is it, unless another one is; then that stays the one."""
        ownership.make_home(self._home)
        self._post.take(address)

    @property
    def address(self) -> str:
        """Where it listens; empty if it does not run, or not yet."""
        return self._post.note()

    @property
    def pid(self) -> int | None:
        """Its process, if it runs."""
        holder = self._post.holder()
        return None if holder is None else holder[0]

    def start(self, options: Sequence[str]) -> int:
        """Start it in the background and wait until it listens."""
        if self.pid is not None:
            output.talk(f"a gateway runs already: pid {self.pid}, {self.address}")
            return 0
        ownership.make_home(self._home)
        log = detached.log_path(self._home, "gateway")
        written_before = os.path.getsize(log) if os.path.exists(log) else 0
        environ = unpacked(packed(os.environ))
        pid = detached.start(self._home, "gateway", *options, environ=environ)
        while not self.address:
            if detached.has_ended(pid):
                raise Failure(
                    f"the gateway did not start: {_said(log, written_before)}", UNAVAILABLE
                )
            time.sleep(_LOOK_SECONDS)
        output.data(f"Gateway {pid} runs in the background: {self.address}; its log is {log}")
        return 0

    def stop(self, *, now: bool) -> int:
        """End it, and wait until it is gone."""
        pid = self.pid
        if not pid:
            output.data("No gateway runs.")
            return 0
        try:
            os.kill(pid, signal.SIGTERM)
            if now:  # another signal, so that the two cannot become one
                os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise Failure(f"gateway {pid} belongs to another user", NOT_RUNNING) from None
        busy = 0 if now else self._busy() or 0
        if busy:
            output.talk(f"{output.count(busy, 'answer')} under way; --now would cut them")
        self._post.wait_until_free()
        output.data(f"Gateway {pid} stopped.")
        return 0

    def show(self, *, as_json: bool) -> int:
        """Say whether it runs and where; 1 if it does not."""
        holder = self._post.holder()
        busy = None if holder is None else self._busy()
        if as_json:
            output.data(
                json.dumps(
                    {
                        "running": holder is not None,
                        "pid": holder and holder[0],
                        "since": holder and holder[1],
                        "address": self.address or None,
                        "busy": busy,
                    }
                )
            )
        elif holder is None:
            output.data("No gateway runs.")
        else:
            under_way = "" if busy is None else f", {output.count(busy, 'request')} under way"
            output.data(
                f"Gateway {holder[0]} listens on {self.address}, since"
                f" {output.clock(holder[1])}{under_way}"
            )
        return NOT_RUNNING if holder is None else 0

    def _busy(self) -> int | None:
        """How many requests are under way; none if it wants a token or does not answer."""
        place = self.address.partition("://")[2]
        connection = http.client.HTTPConnection(place, timeout=_PATIENCE_SECONDS)
        try:
            connection.request("GET", "/healthz")
            told = json.loads(connection.getresponse().read())["headway"]
            found = told.get("busy")
        except (OSError, http.client.HTTPException, ValueError, LookupError):
            return None
        finally:
            connection.close()
        return found if isinstance(found, int) else None


def _said(log: str, start: int) -> str:
    """The last lines that a program has written since."""
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(start)
        lines = file.read().strip().splitlines()
    said = " ".join(line.removeprefix("headway: ") for line in lines[-_LAST_LINES:])
    return said or f"see {log}"
