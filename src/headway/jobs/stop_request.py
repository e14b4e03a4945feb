"""Why a worker has to stop: somebody asked for it, or its home is not its own any more."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.jobs.post import Post


class StopRequest:
    """What one worker was asked for so far; true as soon as it was asked for anything."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._is_asked = False
        # Running jobs are ended, not waited for.
        self.is_urgent = False
        # The home was deleted, or made anew and has a worker of its own: nothing in it may be
        # touched, because the jobs in there have the same numbers.
        self.is_displaced = False
        # By Ctrl-C: the person who did that wants no worker for now.
        self.is_by_hand = False

    def __bool__(self) -> bool:
        return self._is_asked or self.is_displaced

    def heed_signals(self, woken: int) -> None:
        """Let signals ask for it, and end the sleep of the worker by this descriptor."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._asked)
        signal.signal(signal.SIGQUIT, self._asked_at_once)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)

    def look_at_post(self) -> None:
        """Find out whether the home is still the one that the worker was started in."""
        self.is_displaced = self.is_displaced or not self._post.is_held()

    def _asked(self, signum: int, _: object) -> None:
        """The first time let running jobs finish, the second time end them."""
        if self._is_asked:
            self.is_urgent = True
        elif signum != signal.SIGHUP or os.isatty(0):
            self._is_asked = True
            self.is_by_hand = signum == signal.SIGINT

    def _asked_at_once(self, _signum: int, _: object) -> None:
        self._is_asked = self.is_urgent = True
