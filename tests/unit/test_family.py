"""The processes that descend from one."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import psutil

from headway import family

if TYPE_CHECKING:
    import pytest


def test_one_who_may_not_be_told_keeps_nobody_from_being_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tool that changed its user, as sudo does, is passed over."""

    def refuse(process: psutil.Process, _: int) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "send_signal", refuse)
    with subprocess.Popen(["sleep", "600"]) as child:
        assert family.tell(signal.SIGTERM) == 0
        child.kill()
