"""One attempt with a guardian that says what the test wants, when it wants."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import subprocess
import termios
import threading
from typing import TYPE_CHECKING, Any

from tests.harness.kit import Diary, until
from tests.harness.speech import answer

from headway import guardian
from headway.harness import ClaudeCode
from headway.wire import Wire

if TYPE_CHECKING:
    import pytest
    from tests.harness.kit import Stage

    from headway.harness import Result


class Puppet:
    """In place of a guardian: its end of the wire, and of the streams."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._begun = threading.Event()
        monkeypatch.setattr(guardian, "launch", self._launch)

    def _launch(self, *_: object, streams: tuple[int, int, int], **__: Any) -> tuple[int, Wire]:
        near, self.wire = Wire.pair()
        self.output, self.errors = (os.dup(stream) for stream in streams[1:])
        # Somebody has to be buried.
        self._process = subprocess.Popen(["true"])
        self._begun.set()
        return self._process.pid, near

    def wait(self) -> None:
        """Until the attempt has begun."""
        assert self._begun.wait(60)

    def has_been_heard(self) -> bool:
        """Whether nothing is left of what was written to the errors."""
        answer = fcntl.ioctl(self.errors, termios.FIONREAD, b"\0" * 4)
        return struct.unpack("i", answer) == (0,)

    def close(self) -> None:
        """Be gone."""
        for descriptor in (self.output, self.errors):
            os.close(descriptor)
        self.wire.close()
        self._process.returncode = 0  # the attempt has waited for it


class Watched:
    """An execution in a thread."""

    def __init__(self, agent: ClaudeCode) -> None:
        self.diary = Diary()
        self._results: list[Result] = []
        self._thread = threading.Thread(target=self._run, args=(agent,))
        self._thread.start()

    def _run(self, agent: ClaudeCode) -> None:
        self._results.append(asyncio.run(agent.aexecute("x", on_event=self.diary)))

    def result(self) -> Result:
        """When it is over."""
        self._thread.join()
        return self._results[0]


def _begun(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> tuple[Puppet, Watched]:
    puppet = Puppet(monkeypatch)
    watched = Watched(ClaudeCode(executable=stage.script("claude", "true")))
    puppet.wait()
    return puppet, watched


def _lines(text: str) -> bytes:
    import json  # noqa: PLC0415

    return b"".join(json.dumps(one).encode() + b"\n" for one in answer("claude", text))


def test_nothing_is_told_before_the_start(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent may be faster than the guardian's word of it."""
    puppet, watched = _begun(stage, monkeypatch)
    os.write(puppet.output, _lines("quick"))
    for _ in range(3):  # it has been through its round, with the output at hand
        os.write(puppet.errors, b"x")
        until(puppet.has_been_heard, "a round")
    assert watched.diary.events == []

    puppet.wire.send("started", pid=1)
    watched.diary.wait_for("text")
    puppet.wire.send("ended", code=0)
    puppet.wire.send("gone")

    assert (watched.result().status, watched.result().text) == ("succeeded", "quick")
    assert watched.diary.kinds == ["started", "text", "usage", "finished"]
    puppet.close()


def test_gone_is_enough_if_a_fork_keeps_the_wire_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wire never breaks then, and nobody may wait for that; what was written is read."""
    puppet, watched = _begun(stage, monkeypatch)
    puppet.wire.send("started", pid=1)
    os.write(puppet.output, _lines("all of it"))
    puppet.wire.send("ended", code=0)
    puppet.wire.send("gone")

    assert watched.result().text == "all of it"
    puppet.close()


def test_a_guardian_that_breaks_off_is_no_success(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was said before: nobody knows what runs."""
    puppet, watched = _begun(stage, monkeypatch)
    puppet.wire.send("started", pid=1)
    os.write(puppet.output, _lines("done"))
    puppet.wire.send("ended", code=0)
    watched.diary.wait_for("text")
    puppet.wire.close()

    result = watched.result()
    assert (result.status, result.text) == ("failed", "done")
    assert result.reason == "the process that guarded it was killed"
    puppet.close()
