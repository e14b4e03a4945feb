"""Short messages between the worker, its nursery and the supervisors."""

from __future__ import annotations

import array
import json
import os
import resource
import socket
from typing import Any

_MAX_BYTES = 1 << 16
_MANY_FILES = 1 << 16


class Wire:
    """One end of a connection between two processes. It breaks when the other one ends."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    @classmethod
    def pair(cls) -> tuple[Wire, Wire]:
        """Both ends of a new connection."""
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(near), cls(far)

    @classmethod
    def inherited(cls, descriptor: int) -> Wire:
        """The end that a parent process has passed on."""
        os.set_inheritable(descriptor, False)
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """For those who wait for other things as well."""
        return self._socket.fileno()

    def send(self, kind: str, *, lifeline: int | None = None, **facts: object) -> bool:
        """Say something, with a descriptor if there is one; false if nobody hears it."""
        message = json.dumps({"kind": kind, **facts}).encode()
        rights = [] if lifeline is None else [array.array("i", [lifeline])]
        try:
            self._socket.sendmsg(
                [message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, right) for right in rights]
            )
        except OSError:
            return False
        return True

    def offer(self, kind: str, **facts: object) -> bool:
        """Say something if that can be done without waiting; false if it cannot."""
        try:
            self._socket.send(json.dumps({"kind": kind, **facts}).encode(), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass  # nobody is there who could hear it
        return True

    def receive(self) -> dict[str, Any] | None:
        """The next message, waited for; nothing if the other end is gone.

        A descriptor that came with it is under ``lifeline``.
        """
        try:
            message, descriptors, _, _ = socket.recv_fds(self._socket, _MAX_BYTES, 1)
        except OSError:
            return None
        if not message:
            return None
        facts: dict[str, Any] = json.loads(message)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
            facts["lifeline"] = descriptor
        return facts

    def hang_up(self) -> None:
        """Say nothing more; the other end is told, and may still speak."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone

    def close(self) -> None:
        """Break the connection."""
        self._socket.close()


def raise_limit_of_files() -> int:
    """Allow this process the descriptors that many connections take; the limit before.

    What it starts and does not belong to Headway must get that one back.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _MANY_FILES)), hard))
    except (OSError, ValueError):
        pass  # then it is as it is
    return soft


def restore_limit_of_files(soft: int) -> None:
    """As it was before."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
