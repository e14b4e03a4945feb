"""Notifications: sent by apprise and by a command, from a process of their own."""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tests.worker.kit import until

from headway.jobs import messenger
from headway.jobs.post import Post

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.worker.kit import House


class Phone:
    """Something that buzzes: a server for webhooks."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        phone = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                phone.messages.append(json.loads(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://user:secret@127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def titles(self) -> list[str]:
        return [message["title"] for message in list(self.messages)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def phone() -> Iterator[Phone]:
    """A phone that is on."""
    phone = Phone()
    yield phone
    phone.close()


def test_those_named_for_a_job_hear_what_becomes_of_it(house: House, phone: Phone) -> None:
    """In its order, with the reason; and only of what was asked for."""
    house.worker()
    job = house.submit(
        "exit 3", notify=[phone.url], notify_on=["queued", "started", "failed"], task="issue-16"
    )

    until(lambda: len(phone.messages) == 3, "three messages")

    assert phone.titles() == [
        f"headway: job {job} is queued",
        f"headway: job {job} started",
        f"headway: job {job} failed",
    ]
    assert "position 1" in phone.messages[0]["message"]
    assert "exit code 3" in phone.messages[-1]["message"]
    assert "(issue-16)" in phone.messages[-1]["message"]


def test_those_named_in_the_settings_hear_of_all_jobs(house: House, phone: Phone) -> None:
    """And that the queue is empty."""
    (house.home / "config.toml").write_text(
        f'[jobs]\nnotify = ["{phone.url}"]\nnotify_on = ["finished", "killed", "empty"]\n'
    )
    house.worker()
    killed = house.submit("sleep 600", max_runtime="200ms")

    until(lambda: "headway: the job queue is empty" in phone.titles(), "an empty queue")

    assert phone.titles()[0] == f"headway: job {killed} was killed"


def test_a_local_command_is_told_too(house: House) -> None:
    """A title, a text, and everything as JSON on its stdin."""
    (house.home / "config.toml").write_text(
        f'[jobs]\nnotify_on = ["finished"]\n'
        f"notify_command = 'cd {house.directory}; cat > facts; echo \"$1\" > title'\n"
    )
    house.worker()
    job = house.submit("true")

    assert house.file("title") == f"headway: job {job} finished"
    facts = json.loads((house.directory / "facts").read_text())
    assert (facts["event"], facts["job"]["id"]) == ("finished", job)


def test_whom_nobody_can_reach_delays_nothing(house: House, phone: Phone) -> None:
    """Jobs go on, other messages arrive, and the address with its secret is not printed."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"json://user:secret@127.0.0.1:{closed.getsockname()[1]}/"
        worker = house.worker()
        first = house.submit("true", notify=[nobody, phone.url], notify_on=["finished"])
        second = house.submit("true", notify=[phone.url], notify_on=["finished"])

        assert {house.ended(job).state for job in (first, second)} == {"succeeded"}
        until(lambda: len(phone.messages) == 2, "both messages")
        assert worker.stderr is not None
        line = worker.stderr.readline()
    assert line == "headway: a notification through json was not sent: it was refused\n"
    until(lambda: not house.jobs.board.news.unsent(), "the end of it")


def test_secrets_are_not_shown(house: House) -> None:
    """Neither by show nor by the list, whatever form."""
    secret = "json://user:hunter2@127.0.0.1:9/"  # noqa: S105
    job = house.submit("true", notify=[secret], hold=True)

    for words in (["show", str(job)], ["show", str(job), "--json"], ["jobs", "--json"], ["jobs"]):
        seen = house.run(*words)
        assert seen.returncode == 0
        assert "hunter2" not in seen.stdout + seen.stderr
    refused = house.run("submit", "--notify", "hunter2-without-scheme", "--", "true")
    assert refused.returncode == 64
    assert "hunter2" not in refused.stderr


def test_what_was_not_sent_is_sent_by_the_next_worker(house: House, phone: Phone) -> None:
    """The news stands in the board until then."""
    job = house.submit("true", notify=[phone.url], notify_on=["cancelled"])
    house.jobs.cancel(job)
    assert not phone.messages

    house.worker()

    until(lambda: phone.titles() == [f"headway: job {job} cancelled"], "the message")


def test_a_job_that_loses_its_slot_goes_on_and_says_so(house: House, phone: Phone) -> None:
    """In its log, and to whoever wants to hear of warnings."""
    house.worker()
    os.mkfifo(house.directory / "end")
    job = house.submit("cat < end", notify=[phone.url], notify_on=["warned"])
    house.running(job)
    leases = house.governor.snapshot
    until(lambda: len(leases().leases) == 1, "the worker to let go of it")

    assert house.governor.revoke(leases().leases[0].id, "somebody wanted it")

    until(lambda: len(phone.messages) == 1, "a message")
    (house.directory / "end").write_text("the end")
    assert house.ended(job).state == "succeeded"
    assert "its slot was lost, somebody wanted it" in phone.messages[0]["message"]
    assert "its slot was lost, somebody wanted it" in house.output(job)


def test_what_happens_while_the_messenger_leaves_is_told_by_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has seen it at its post, and starts no other."""
    told: list[str] = []
    parents = itertools.count()  # after the first turn, its worker seems to have gone
    leave = Post.leave

    def notify(_url: str, title: str, _body: str) -> bool:
        told.append(title)
        return True

    def leave_late(post: Post) -> None:
        if not told:
            monkeypatch.setattr(messenger, "_LINGER_SECONDS", 20.0)
            house.jobs.cancel(house.submit("true", notify=["json://x"], notify_on=["cancelled"]))
        leave(post)

    monkeypatch.setattr(messenger, "_LINGER_SECONDS", 0.0)
    monkeypatch.setattr(messenger, "_notify", notify)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(Post, "leave", leave_late)

    messenger.main([str(house.home)])

    assert told == ["headway: job 1 cancelled"]
