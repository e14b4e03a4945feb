"""Who is alive, and how to wake them: a locked file and a datagram socket per holder.

A holder is alive as long as the kernel keeps its lock. No clocks and no pids
are trusted: a reused pid, another pid namespace, a suspended machine and a
jumping clock change nothing. Testers take the lock shared, so that one tester
is never mistaken for a living holder by another.
"""

from __future__ import annotations

import _socket  # what socket.py adds to it takes longer to load than a home to open
import fcntl
import os
import select
import sys
from _weakref import ref

from headway import background, ownership
from headway.stores import locks
from headway.stores.base import Holder, new_holder_id
from headway.stores.processes import own_command, pid_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LOCK, _SOCKET, _UNLOCKED = ".lock", ".sock", ".new"
# The first letter of a holder's card: whether it ever asked for anything, and whether others
# had to give back for it, for those who keep the card open to see how it ended.
_IDLE, _BUSY, RECLAIMED = "-", "+", "x"
_HAS_EPOLL = sys.platform == "linux"
_MAX_MESSAGE = 4096
_MAX_CARD = 65536
# A full socket queue drops messages. It holds about ten; who found this many may have missed some.
_MAYBE_FULL = 4


class Live:
    """The directory of those who are alive.

    It is closed when nobody uses it any more, not when its home is left: another thread
    may be in the middle of a look, and a closed descriptor's number is another file's in
    the next moment.
    """

    _descriptor = -1

    def __init__(self, directory: str) -> None:
        self.directory = directory
        ownership.make_directory(directory)
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def holders(self) -> list[str]:
        """Everyone who ever was here and left a file."""
        return sorted(
            name.removesuffix(_LOCK) for name in os.listdir(self.directory) if name.endswith(_LOCK)
        )

    def is_alive(self, holder: str) -> bool:
        """Whether the kernel still keeps the holder's lock."""
        try:
            descriptor = self.open_lock(holder)
        except FileNotFoundError:
            return False
        try:
            return not locks.taken(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def is_busy(self, holder: str) -> bool:
        """Whether the holder may have tickets."""
        try:
            descriptor = self.open_lock(holder)
        except FileNotFoundError:
            return False
        try:
            return os.read(descriptor, 1) == _BUSY.encode()
        finally:
            os.close(descriptor)

    def mark_reclaimed(self, holder: str) -> None:
        """Note on a dead holder's card that its slots were given back for it."""
        try:
            descriptor = os.open(
                holder + _LOCK, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._descriptor
            )
        except OSError:  # the mark is for people only: giving back must not fail for it
            return
        try:
            os.write(descriptor, RECLAIMED.encode())
        except OSError:
            pass
        finally:
            os.close(descriptor)

    def describe(self, holder: str) -> Holder:
        """What a holder has written about itself."""
        pid, _, host, command, stopped = self._card(holder)
        return Holder(holder, pid, host, command, stopped=stopped)

    def stopped(self) -> list[Holder]:
        """Those who have said that they are stopped."""
        found = [self.describe(holder) for holder in self.holders()]
        return [holder for holder in found if holder.stopped and self.is_alive(holder.id)]

    def remove(self, holder: str) -> None:
        """Clear away what a dead holder left."""
        for suffix in (_SOCKET, _UNLOCKED, _LOCK):
            self._unlink(holder + suffix)

    def remove_drafts(self) -> None:
        """Clear away files of those who were killed while they appeared.

        For a directory in which all appear under one lock, by someone who has it.
        """
        for name in os.listdir(self.directory):
            if name.endswith(_UNLOCKED):
                self._unlink(name)

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            pass

    def address(self, holder: str) -> str:
        """Where to send to. A socket's path is limited to about 100 bytes, a home's is not."""
        if sys.platform == "linux":
            return f"/proc/self/fd/{self._descriptor}/{holder}{_SOCKET}"
        return os.path.join(self.directory, holder + _SOCKET)

    def open_locked(self, holder: str) -> int:
        """Create a holder's file; whoever sees it under its name finds it locked."""
        descriptor = ownership.create(
            holder + _UNLOCKED, os.O_RDWR | os.O_EXCL, dir_fd=self._descriptor
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_card(descriptor, _IDLE)
            self._rename(holder + _UNLOCKED, holder + _LOCK)
        except OSError:
            os.close(descriptor)
            self.remove(holder)
            raise
        return descriptor

    def _rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def wait_for_end(self, holder: str) -> None:
        """Block until the holder is gone."""
        try:
            descriptor = self.open_lock(holder)
        except FileNotFoundError:
            return
        locks.wait_and_close(descriptor)

    def open_process(self, holder: str) -> int | None:
        """A descriptor that becomes readable when the holder's process ends, if there can be one.

        The lock must be tested after this, not before: then a lock still held
        proves that the pid was not reused.
        """
        pid, namespace, *_ = self._card(holder)
        comparable = pid and namespace and namespace == pid_namespace()
        if not comparable or not hasattr(os, "pidfd_open"):
            return None
        try:
            return os.pidfd_open(pid)
        except OSError:
            return None

    def is_orphaned(self, holder: str) -> bool:
        """Whether a holder's process is certainly over, and somebody else keeps its lock."""
        pid, namespace, *_ = self._card(holder)
        if not pid or not namespace or namespace != pid_namespace():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return self.is_alive(holder)
        except OSError:
            pass  # it is another user's by now
        return False

    def open_lock(self, holder: str) -> int:
        """A descriptor to test a holder's lock with, or to wait for it."""
        return os.open(holder + _LOCK, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._descriptor)

    def _card(self, holder: str) -> tuple[int, int, str, str, str]:
        try:
            descriptor = self.open_lock(holder)
        except FileNotFoundError:
            return 0, 0, "", "(gone)", ""
        try:
            lines = os.read(descriptor, _MAX_CARD).decode(errors="replace").split("\n")
        finally:
            os.close(descriptor)
        try:
            return int(lines[0][1:]), int(lines[1]), lines[2], lines[3], "".join(lines[4:])
        except (ValueError, IndexError):  # killed while it wrote its card
            return 0, 0, "", "(unknown)", ""

    def close(self) -> None:
        """Safe to repeat."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close


def _write_card(descriptor: int, mark: str, stopped: str = "") -> None:
    lines = f"{mark}{os.getpid()}", pid_namespace(), os.uname().nodename, own_command(), stopped
    card = "\n".join(map(str, lines))
    written = os.pwrite(descriptor, card.encode(errors="surrogateescape"), 0)
    os.ftruncate(descriptor, written)


class Presence:
    """This process among the living: its lock, its socket, and those it watches.

    As the directory, it is closed when nobody uses it any more.
    """

    lock = -1

    def __init__(self, live: Live, *, name: str = "") -> None:
        """Appear."""
        self._live = live
        self.id = name or new_holder_id()
        self.is_busy = False
        self._watched: dict[str, int | None] = {}
        self._holder_of: dict[int, str] = {}
        lock = live.open_locked(self.id)
        try:
            self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._bind()
            self._epoll = select.epoll() if _HAS_EPOLL else None
            # For who sleeps until there is a message, and is deaf while another receives.
            self._ear = select.epoll() if _HAS_EPOLL else None
            if self._epoll is not None and self._ear is not None:
                self._epoll.register(self._socket, select.EPOLLIN)
                self._ear.register(self._socket, select.EPOLLIN)
        except BaseException:
            # A lock of nobody would look like a holder that never answers.
            os.close(lock)
            live.remove(self.id)
            raise
        self.lock = lock

    def _bind(self) -> None:
        try:
            self._socket.bind(self._live.address(self.id))
        except OSError:
            # Too long a path on a system without /proc. The periodic look still works.
            return
        os.chmod(self._live.address(self.id), 0o600)
        ownership.hand_over(self._live.address(self.id), directory=self._live.directory)

    def get_busy(self, stopped: str = "") -> None:
        """Say that there will be tickets, and for what command; before the first.

        Said again, that it is stopped, or is not any more.
        """
        _write_card(self.lock, _BUSY, stopped)
        self.is_busy = True

    def send(self, holder: str, message: str) -> bool:
        """Wake another holder; false if there is nobody to wake."""
        try:
            self._socket.sendto(message.encode(), self._live.address(holder))
        except BlockingIOError:
            return True  # so many are waiting for it that it will look for itself
        except OSError:
            return False
        return True

    def receive(self, timeout_seconds: float) -> tuple[list[str], bool, list[str]]:
        """Wait for messages: those, whether some may be missing, and holders that ended."""
        try:
            if self._ear is not None:
                self._ear.modify(self._socket, 0)
            ended = self._wait(timeout_seconds)
            messages = self._read_all()
        finally:
            if self._ear is not None:
                self._ear.modify(self._socket, select.EPOLLIN)
        return messages, len(messages) >= _MAYBE_FULL, ended

    def doze(self, timeout_seconds: float) -> bool:
        """Sleep until there is a message that nobody is receiving; whether there is one."""
        if self._ear is None:
            return bool(select.select([self._socket], [], [], timeout_seconds)[0])
        return bool(self._ear.poll(timeout_seconds))

    def _wait(self, timeout_seconds: float) -> list[str]:
        """Wait for a message or the end of a holder; those that ended."""
        if self._epoll is None:
            select.select([self._socket], [], [], timeout_seconds)
            return []
        ready = [self._holder_of.get(found) for found, _ in self._epoll.poll(timeout_seconds)]
        return [holder for holder in ready if holder is not None]

    def _read_all(self) -> list[str]:
        messages: list[str] = []
        while True:
            try:
                messages.append(self._socket.recv(_MAX_MESSAGE).decode())
            except BlockingIOError:
                return messages

    def watch(self, holders: Iterable[str]) -> list[str]:
        """Be woken when one of these ends; those that are gone already are the answer."""
        return [holder for holder in holders if holder != self.id and not self._watch(holder)]

    def watched(self) -> list[str]:
        """Those whose end is waited for."""
        return list(self._watched)

    def watches(self, holder: str) -> bool:
        """Whether the end of this holder would be noticed."""
        return holder == self.id or holder in self._watched

    def _watch(self, holder: str) -> bool:
        if holder in self._watched:
            return True
        process = self._live.open_process(holder) if self._epoll is not None else None
        if not self._live.is_alive(holder):
            if process is not None:
                os.close(process)
            return False
        if process is not None and self._epoll is not None:
            # Before others know of it: they may close it.
            self._holder_of[process] = holder
            self._epoll.register(process, select.EPOLLIN)
        if self._watched.setdefault(holder, process) != process:
            # Another thread was faster. Two descriptors for one holder: the second would
            # stay, and report the end of its process for ever.
            self._drop(process)
        elif process is None:
            background.start(_watch_lock, ref(self), holder)
        return True

    def watch_by_lock(self, holders: Iterable[str]) -> None:
        """Watch only the lock of those whose process ended and who are still not dead.

        Someone else keeps their lock open: a child, forked in a way that Python is
        not told of.
        """
        for holder in holders:
            if self._watched.get(holder) is not None:
                self.unwatch(holder)
                self._watched[holder] = None
                background.start(_watch_lock, ref(self), holder)

    def open_lock(self, holder: str) -> int:
        """To wait for another holder's lock."""
        return self._live.open_lock(holder)

    def unwatch(self, holder: str) -> None:
        """Stop watching someone who is gone."""
        self._drop(self._watched.pop(holder, None))

    def _drop(self, process: int | None) -> None:
        if process is not None and self._epoll is not None:
            self._holder_of.pop(process, None)
            self._epoll.unregister(process)
            os.close(process)

    def leave(self) -> None:
        """Disappear; the rest goes when the last thread that uses it has noticed."""
        self._live.remove(self.id)

    def forget(self) -> None:
        """Close everything; what a parent holds after a fork stays held. Safe to repeat."""
        lock, self.lock = self.lock, -1
        if lock >= 0:  # first of all: as long as it is open, the parent seems to live
            os.close(lock)
        for process in self._watched.values():
            if process is not None:
                os.close(process)
        self._watched, self._holder_of = {}, {}
        for epoll in (self._epoll, self._ear):
            if epoll is not None:
                epoll.close()
        self._socket.close()

    def __del__(self) -> None:
        if self.lock >= 0:  # otherwise closed, or never quite there
            self.forget()


def _watch_lock(watcher: ref[Presence], holder: str) -> None:
    """Where a process cannot be watched, its lock can: a thread sleeps on it.

    Meanwhile it holds on to nothing else, so that its own presence may end first.
    """
    presence = watcher()
    if presence is None:
        return
    try:
        descriptor = presence.open_lock(holder)
        del presence
        locks.wait_and_close(descriptor)
    except OSError:
        pass  # no file, or no such locks here
    presence = watcher()
    if presence is not None:
        presence.send(presence.id, f"e {holder}")
