"""The guardian and the farewell, by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.kit import is_alive, until

from headway import family, guardian, interpreter
from headway.farewell import Farewell
from headway.wire import Wire

if TYPE_CHECKING:
    from tests.harness.kit import Stage


class Post:
    """A guardian that this process has started, and what it says."""

    def __init__(self, stage: Stage, *words: str, directory: str = "/", grace: float = 1.0) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        self.pid, self.wire = guardian.launch(
            words[0],
            words,
            {**os.environ, **stage.environ},
            directory=directory,
            streams=(nothing, nothing, nothing),
            lifeline=None,
            grace_seconds=grace,
        )
        os.close(nothing)

    def hear(self) -> list[dict[str, Any]]:
        """All that it says until it is gone."""
        heard = list(iter(self.wire.receive, None))
        self.wire.close()
        os.waitpid(self.pid, 0)
        return heard


def test_it_tells_of_the_start_the_end_and_the_rest(stage: Stage) -> None:
    """In this order, once each."""
    started, ended, gone = Post(stage, "/bin/sh", "-c", "sleep 600 & exit 3").hear()

    assert (started["kind"], ended, gone) == (
        "started",
        {"kind": "ended", "code": 3},
        {"kind": "gone"},
    )


@pytest.mark.parametrize(
    ("words", "directory", "code"),
    [(("/no/such",), "/", 127), (("/etc/passwd",), "/", 126), (("/bin/true",), "/no/such", 126)],
)
def test_it_tells_of_a_failure_every_time(
    stage: Stage, words: tuple[str, ...], directory: str, code: int
) -> None:
    """Also if it ends at once: the message is not lost."""
    for _ in range(5):
        (failed,) = Post(stage, *words, directory=directory).hear()
        assert (failed["kind"], failed["code"]) == ("failed", code)


def test_it_ends_all_when_the_wire_breaks(stage: Stage) -> None:
    """Nobody has to say so."""
    post = Post(stage, "/bin/sleep", "600")
    started = post.wire.receive()
    assert started is not None
    post.wire.close()
    os.waitpid(post.pid, 0)

    assert not is_alive(started["pid"])


@pytest.mark.parametrize("says_start", [False, True])
def test_nothing_starts_for_a_caller_that_is_gone(stage: Stage, *, says_start: bool) -> None:
    """Not even if a fork of it keeps the wire open."""
    near, far = Wire.pair()
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    if says_start:
        near.send("start")
    os.set_inheritable(far.fileno(), True)
    words = interpreter.words("headway.guardian", str(far.fileno()), str(dead.pid))
    dead.wait()
    process = subprocess.Popen(
        [*words, "1", str(stage.directory), "/bin/sh", "sh", "-c", "echo > started"],
        pass_fds=[far.fileno()],
        env={**os.environ, **stage.environ},
    )
    far.close()
    if not says_start:  # it looks at its parent when it is told to begin
        near.send("start")

    assert process.wait(60) == 0
    assert near.receive() is None
    near.close()
    assert not (stage.directory / "started").exists()


def test_it_inherits_nothing_but_its_streams(stage: Stage) -> None:
    """Nor does the command."""
    secret = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(secret, False)
    place = stage.directory / "open"
    post = Post(stage, "/bin/sh", "-c", f"ls /proc/self/fd > {place}")
    post.hear()
    os.close(secret)

    # One more is the directory that is being listed.
    assert place.read_text().split() == ["0", "1", "2", "3"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What a family was told, at a time that stands still."""
    signals: list[int] = []
    monkeypatch.setattr(family, "tell", signals.append)
    return signals


def test_a_farewell_asks_waits_and_insists(
    told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before it has begun, and who begins it again does not delay it."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    farewell = Farewell(5.0)
    farewell.strike()
    assert (told, farewell.patience_seconds, farewell.has_begun) == ([], None, False)

    farewell.begin(after_seconds=1.0)
    farewell.strike()
    assert (told, farewell.patience_seconds) == ([], 1.0)
    farewell.begin(after_seconds=9.0)
    assert farewell.patience_seconds == 1.0
    farewell.begin()
    farewell.strike()
    assert told == [signal.SIGTERM, signal.SIGCONT]
    assert farewell.patience_seconds == 5.0

    now = 104.9
    farewell.begin()
    farewell.strike()
    assert len(told) == 2
    for now in (105.0, 105.2, 105.4):  # noqa: B007 - the clock
        farewell.strike()
    assert told[2:] == [signal.SIGKILL] * 3


def test_its_interpreter_finds_headway_whatever_the_variables(stage: Stage) -> None:
    """And load nothing from where an agent works."""
    (stage.directory / "headway").mkdir()
    (stage.directory / "headway" / "__init__.py").write_text("raise SystemExit(9)")
    (stage.directory / "select.py").write_text("raise SystemExit(9)")
    environ = {
        "PYTHONPATH": str(stage.directory),
        "PYTHONHOME": "/nowhere",
        "PYTHONSTARTUP": "x",
        "PYTHONWARNINGS": "error",
        **stage.environ,
    }
    process = subprocess.run(
        interpreter.words("headway.guardian", "no-number", "1", "1", "/", "x"),
        cwd=stage.directory,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "ValueError: invalid literal for int() with base 10: 'no-number'" in process.stderr
    until(lambda: not stage.processes(), "its end")
