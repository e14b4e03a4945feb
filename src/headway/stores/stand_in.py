"""Speaks for a holder that was killed, as long as what it guarded runs on.

In a home the copy of its lock is enough. A server has to hear of it: a process of the same machine
that is on that server sees to it (``neighbours.py``), and this makes sure that there is one.
"""

from __future__ import annotations

import os
import time

from headway import background, config
from headway.errors import ConfigError, StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.stores.redis import RedisStore

_PAUSE_SECONDS = 1.0


class StandIn:
    """This process, for the holder whose lock it has a copy of."""

    def __init__(self, lifeline: int | None) -> None:
        self._lifeline = lifeline
        self._store: RedisStore | None = None
        if lifeline is not None:
            background.start(self._come)

    def _come(self) -> None:
        while True:
            try:
                settings = config.load()
                if settings.store_url is not None:
                    self._appear(settings.store_url, settings)
            except StoreUnavailable:
                time.sleep(_PAUSE_SECONDS)
            except ConfigError:
                return  # somebody has broken it just now
            else:
                return

    def _appear(self, url: str, settings: config.Settings) -> None:
        from headway.stores.redis import RedisStore  # noqa: PLC0415 - rarely needed

        store = RedisStore(settings, RedisStore.link(url, settings))
        store.version()
        self._store = store

    def leave(self) -> None:
        """Nothing is left to speak for: let go of the lock, and have its slot given back."""
        if self._lifeline is not None:
            os.close(self._lifeline)
        if self._store is None:
            return
        try:
            self._store.bury_ended()
            self._store.close()
        except StoreUnavailable:
            pass  # then the server notices the silence
