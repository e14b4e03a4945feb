"""Commands beside a jobs.db that is newer or damaged, and what they promise in detail."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from headway.errors import NotStartable
from headway.jobs.orders import Order

if TYPE_CHECKING:
    from tests.worker.kit import House


def printed(house: House, *words: str) -> Any:
    """What a command prints as JSON."""
    return json.loads(house.run(*words, "--json").stdout)


def newer(house: House) -> None:
    """Have a jobs.db that a later version has made."""
    house.jobs.board.database.close()
    with closing(sqlite3.connect(house.home / "jobs.db")) as other:
        other.execute("pragma user_version = 99")


def test_status_works_beside_a_newer_jobs_db(house: House) -> None:
    """Slots are shown, and that jobs are not; the doctor says what to do."""
    house.submit("true")
    newer(house)

    with house.governor.slot("agent/other"):
        for words in (["status"], ["queue"], ["top"]):
            seen = house.run(*words)
            assert seen.returncode == 0, words
            assert "jobs are not shown: " in seen.stderr, words
            assert "made by a newer Headway (format 99" in seen.stderr
        assert [one["keys"] for one in printed(house, "status")["leases"]] == [["agent/other"]]
    (problem,) = [one for one in printed(house, "doctor")["findings"] if one["level"] == "problem"]
    assert "jobs.db was made by a newer Headway (format 99, this one knows" in problem["text"]
    assert "upgrade" in problem["fix"]


@pytest.mark.parametrize("damage", ["garbage", "empty", "page"])
def test_the_doctor_reports_a_damaged_jobs_db(house: House, damage: str) -> None:
    """As a problem, with the way out, and without changing it."""
    for _ in range(200):
        house.submit("true", task="x" * 50)
    house.jobs.board.database.close()
    database = house.home / "jobs.db"
    whole = database.read_bytes()
    page = whole[:4096] + b"\xaa" * 4096 + whole[8192:]
    left = {"garbage": b"\xaa" * 8192, "empty": b"", "page": page}[damage]
    database.write_bytes(left)
    for name in ("jobs.db-wal", "jobs.db-shm"):
        (house.home / name).unlink(missing_ok=True)

    done = house.run("doctor", "--json")

    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    (problem,) = [one for one in findings if one["level"] == "problem"]
    assert problem["about"] == "jobs"
    assert "restore it from a backup" in problem["fix"]
    assert database.read_bytes() == left
    database.unlink()


def test_attempts_are_a_number_wherever_json_has_them(house: House) -> None:
    """Their list is called runs."""
    house.worker()
    job = house.submit("exit 3")
    house.ended(job)

    for found in (
        printed(house, "jobs")[0],
        printed(house, "show", str(job)),
        printed(house, "why", str(job)),
    ):
        assert found["attempts"] == 1
    for command in ("show", "why"):
        assert [one["exit_code"] for one in printed(house, command, str(job))["runs"]] == [3]


def test_a_program_that_does_not_exist_is_refused_from_python_too(house: House) -> None:
    """In the PATH and the directory that the job will have; nothing is kept."""
    tool = house.directory / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    wrong: list[tuple[list[str], dict[str, Any]]] = [
        (["no-such-program"], {}),
        (["tool"], {}),
        (["./tool"], {"directory": "/"}),
        (["sh"], {"environ": {"PATH": "/nowhere"}}),
    ]
    for command, options in wrong:
        place = {"directory": str(house.directory), **options}
        with pytest.raises(NotStartable, match="no such program"):
            house.keep(command, **options)
        with pytest.raises(NotStartable):
            house.jobs.submit_many([Order(["true"]), Order(command, **place)], start=False)
    assert not house.jobs.all()

    house.keep(["./tool"])
    house.keep(["tool"], environ={"PATH": str(house.directory)})
    assert len(house.jobs.all()) == 2
