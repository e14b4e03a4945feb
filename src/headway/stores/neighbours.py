"""The processes of one machine that share a server: each watches the next one.

The server learns that a process has ended from its silence. A process of the same machine can
tell at once, by the lock that the kernel drops. They stand in a ring, in the order of their
ids, so that one look at one other is enough for each of them.

Who guards a command for a holder has a copy of that one's lock. If the holder is killed and the
command runs on, the lock is held and its process is over: then a neighbour is heard for it.
"""

from __future__ import annotations

import hashlib
import os

from headway.stores.base import new_holder_id
from headway.stores.liveness import Live, Presence

_BASE = "/tmp"  # noqa: S108 - one place for all processes of a user, whatever their TMPDIR
_COME = "come"
# Nobody sees to it that no two machines of a fleet choose the same name.
NAME_LENGTH = 10


class Neighbours:
    """This process among those of its machine."""

    def __init__(self, place: str) -> None:
        digest = hashlib.sha256(place.encode()).hexdigest()[:16]
        base = os.path.join(_BASE, f"headway-{os.getuid()}")
        os.makedirs(base, mode=0o700, exist_ok=True)
        found = os.lstat(base)
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(f"{base} is not this user's alone")
        self._live = Live(os.path.join(base, digest))
        self._presence = Presence(self._live, name=new_holder_id(NAME_LENGTH))
        self._watched: list[str] = []

    @property
    def id(self) -> str:
        """Who this process is among them, and on the server."""
        return self._presence.id

    @property
    def lock(self) -> int:
        """As long as somebody keeps a copy of it, this process is not taken for dead here."""
        return self._presence.lock

    def arrive(self) -> list[str]:
        """Have the one in front watch us; those who were dead before we came."""
        dead = self.ended()
        living = [holder for holder in self._others() if holder not in dead]
        if living:
            before = [holder for holder in living if holder < self.id]
            self._presence.send(max(before or living), _COME)
        return [*dead, *self._watch_next()]

    def watch(self, seconds: float) -> list[str]:
        """Wait for at most this long; those of whom it is certain that they have ended."""
        gone = self._watch_next()
        if gone:
            return gone
        messages, _, ended = self._presence.receive(seconds)
        for message in messages:
            kind, _, holder = message.partition(" ")
            if kind == "e":  # the end of a lock that was watched
                ended.append(holder)
        alive = [holder for holder in ended if self._live.is_alive(holder)]
        self._presence.watch_by_lock(alive)
        return [holder for holder in ended if holder not in alive]

    def _watch_next(self) -> list[str]:
        following = self._following()
        for holder in self._watched:
            if holder not in following:
                self._presence.unwatch(holder)
        self._watched = following
        return self._presence.watch(following)

    def _following(self) -> list[str]:
        """The next one; and as long as that is only a lock, which watches nobody, one more."""
        others = self._others()
        later = [holder for holder in others if holder > self.id]
        found: list[str] = []
        for holder in [*later, *others[: len(others) - len(later)]]:
            found.append(holder)
            if not self._live.is_orphaned(holder):
                break
        return found

    def orphans(self) -> list[str]:
        """Those near by of whom only the lock is left: what they guarded is still there."""
        return [holder for holder in self._watched if self._live.is_orphaned(holder)]

    def ended(self) -> list[str]:
        """Everyone who has ended and was not cleared away."""
        return [holder for holder in self._others() if not self._live.is_alive(holder)]

    def _others(self) -> list[str]:
        return [holder for holder in self._live.holders() if holder != self.id]

    def clear_away(self, holder: str) -> None:
        """The server knows that this one has ended."""
        self._presence.unwatch(holder)
        self._live.remove(holder)

    def interrupt(self) -> None:
        """Make ``watch`` return."""
        self._presence.send(self.id, "")

    def leave(self) -> None:
        """Disappear."""
        self._presence.leave()
        try:
            os.rmdir(self._live.directory)
        except OSError:
            pass  # others are there

    def forget(self) -> None:
        """Let go of them; in a forked child they are the parent's."""
        self._presence.forget()
        self._live.close()
