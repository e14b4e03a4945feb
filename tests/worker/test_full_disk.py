"""A home on a disk that is full for a while."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash.kit import unshare

_ROOT = str(Path(__file__).parents[2])
# In a mount namespace of its own: the house stands on a disk of a few megabytes.
_SCRIPT = """
import errno, os, subprocess, sys
from pathlib import Path

directory = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", directory], check=True)
from headway import StoreUnavailable
from tests.worker.kit import House, until

def fill():
    with open(directory / "ballast", "wb", 0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC

def free():
    os.unlink(directory / "ballast")

house = House(directory)
try:
{body}
finally:
    house.close()
print("well")
"""


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Where the small disk is mounted, in that namespace only."""
    directory = tmp_path / "disk"
    directory.mkdir()
    return directory


def on_small_disk(disk: Path, body: str) -> None:
    """Run the body with a house, and see that it went well."""
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    done = subprocess.run(
        [*unshare("--mount"), sys.executable, "-c", _SCRIPT.replace("{body}", indented), str(disk)],
        env={**os.environ, "PYTHONPATH": _ROOT},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.endswith("well\n"), done.stderr


def test_a_job_that_cannot_be_kept_is_refused(disk: Path) -> None:
    """Clearly; what was kept before is there, and with space again all goes on."""
    on_small_disk(
        disk,
        """
kept = house.submit("true")
fill()
refused = ""
for _ in range(2000):
    try:
        house.submit("true", environ={"FILLER": "x" * 2000})
    except StoreUnavailable as error:
        refused = str(error)
        break
assert "disk is full" in refused, refused
free()
house.worker()
assert house.ended(kept).state == "succeeded"
assert house.ended(house.submit("true")).state == "succeeded"
""",
    )


def test_output_that_cannot_be_kept_does_no_harm_to_its_job(disk: Path) -> None:
    """It runs on, its end says so, and its end is written as soon as there is space."""
    on_small_disk(
        disk,
        """
house.worker()
job = house.submit("echo up > up; until test -e go; do sleep 0.01; done; yes | head -c 8000000")
house.file("up")
(directory / "go").touch()
ended = house.ended(job)
assert ended.state == "succeeded", ended
assert "its output could not be kept: No space left on device" in ended.end_reason, ended
""",
    )


def test_an_end_on_a_full_disk_is_written_later(disk: Path) -> None:
    """A success does not become an interruption."""
    on_small_disk(
        disk,
        """
house.worker()
job = house.submit("echo up > up; until test -e go; do sleep 0.01; done; exit 0")
house.file("up")
os.link(directory / "up", directory / "go")
fill()
until(lambda: house.holders() == 0, "the slot")
free()
ended = house.ended(job)
assert (ended.state, ended.attempts) == ("succeeded", 1), ended
""",
    )
