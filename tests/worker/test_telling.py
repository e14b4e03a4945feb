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
from headway.jobs.receivers import Receiver
from headway.jobs.states import Ending

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


def test_labels_reach_people_as_one_line_of_text(house: House) -> None:
    """Whatever a task or a command is called, a notification has no control characters."""
    (house.home / "config.toml").write_text(
        f'[jobs]\nnotify_on = ["finished"]\n'
        f"notify_command = 'cd {house.directory}; echo \"$2\" > body'\n"
    )
    house.worker()
    house.submit("true # \x1b]0;PWNED\x07", task="a\x1b[2J\u202eb\nheadway: all is well")

    body = house.file("body")

    assert "PWNED" in body
    assert "a?[2J?b headway: all is well" in body
    assert all(line.isprintable() for line in body.split("\n"))


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
    told = f"job {first}: the notification of 'finished' was not sent: json: it was refused"
    assert told in line
    assert "secret" not in line
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

    def send(_receiver: Receiver, title: str, *_: object) -> None:
        told.append(title)

    def leave_late(post: Post) -> None:
        if not told:
            monkeypatch.setattr(messenger, "_LINGER_SECONDS", 20.0)
            house.jobs.cancel(house.submit("true", notify=["json://x"], notify_on=["cancelled"]))
        leave(post)

    monkeypatch.setattr(messenger, "_LINGER_SECONDS", 0.0)
    monkeypatch.setattr(Receiver, "send", send)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(Post, "leave", leave_late)

    messenger.main([str(house.home)])

    assert told == ["headway: job 1 cancelled"]


def closed_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port: int = closed.getsockname()[1]
        return port


def test_what_could_not_be_sent_is_shown_until_a_test_gets_through(
    house: House, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In show and doctor, without the address; a test to all of the settings clears that."""
    nobody = f"json://user:secret@127.0.0.1:{closed_port()}/"
    monkeypatch.setattr(messenger, "_PAUSE_SECONDS", 0.0)
    job = house.submit("true", notify=[nobody, phone.url], notify_on=["cancelled"])
    house.jobs.cancel(job)
    monkeypatch.setattr(messenger, "_LINGER_SECONDS", 1.5)
    messenger.main([str(house.home)])

    shown = house.run("show", str(job))
    assert "  not told   cancelled, " in shown.stdout
    facts = json.loads(house.run("show", str(job), "--json").stdout)["unsent_notifications"]
    assert [one["event"] for one in facts] == ["cancelled"]
    assert facts[0]["problem"] == "json: it was refused, or nobody answered"
    told = house.run("doctor").stdout
    assert f"1 notification could not be sent, the last one of job {job} (cancelled)" in told
    assert "secret" not in told + shown.stdout
    assert phone.titles() == [f"headway: job {job} cancelled"]
    assert not house.jobs.board.news.unsent()

    (house.home / "config.toml").write_text(f'[jobs]\nnotify = ["{nobody}", "{phone.url}"]\n')
    tried = house.run("notify", "test")
    wanted = "json: not sent: it was refused, or nobody answered\njson: sent\n"
    assert (tried.returncode, tried.stdout) == (1, wanted)
    assert "could not be sent" in house.run("doctor").stdout
    command = 'notify_command = "echo http://x > $HEADWAY_HOME/called"'
    (house.home / "config.toml").write_text(f'[jobs]\nnotify = ["{phone.url}"]\n{command}\n')
    tried = house.run("notify", "test")
    assert (tried.returncode, tried.stdout) == (0, "json: sent\nnotify_command: sent\n")
    assert (house.home / "called").exists()
    assert phone.titles()[-1] == "headway: this is a test"
    assert "could not be sent" not in house.run("doctor").stdout


@pytest.mark.parametrize("url", ["tgram://", "nosuch://hunter2", "mailto://hunter2"])
def test_an_address_that_apprise_cannot_use_is_refused(house: House, url: str) -> None:
    """By submit, config check and notify test, before anything is kept, and not printed."""
    kind = url.partition("://")[0]
    for words, code in (
        (["submit", "--notify", url, "--", "true"], 64),
        (["notify", "test", url], 64),
    ):
        refused = house.run(*words)
        assert refused.returncode == code
        assert f"an address of the kind {kind}:// that apprise cannot use" in refused.stderr
        assert "hunter2" not in refused.stderr
    assert not house.jobs.all()
    (house.home / "config.toml").write_text(f'[jobs]\nnotify = ["{url}"]\n')
    refused = house.run("config", "check")
    assert refused.returncode == 78
    assert f"jobs.notify has an address of the kind {kind}://" in refused.stderr
    assert "hunter2" not in refused.stderr


def test_nobody_to_be_told_is_said(house: House) -> None:
    """With the ways to name somebody."""
    tried = house.run("notify", "test")

    assert tried.returncode == 1
    assert "jobs.notify or jobs.notify_command" in tried.stderr


def test_a_message_says_what_was_when_it_happened(
    house: House, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job may have gone on since: its text fits its title."""
    events = ["queued", "started", "failed", "cancelled"]
    job = house.submit("exit 3", notify=[phone.url], notify_on=events)
    board = house.jobs.board
    beginning = board.begin(job, holder="h", lease="h-1")
    assert beginning is not None
    board.end(job, 1, Ending("failed", "exit code 3", exit_code=3), holder="h")
    board.retry(job)
    house.jobs.cancel(job, "not needed")

    monkeypatch.setattr(messenger, "_LINGER_SECONDS", 1.5)
    messenger.main([str(house.home)])

    bodies = [message["message"] for message in phone.messages]
    assert bodies == [
        "sh -c 'exit 3': queued\nposition 1",
        "sh -c 'exit 3': started",
        "sh -c 'exit 3': failed\nexit code 3",
        "sh -c 'exit 3': queued",
        "sh -c 'exit 3': cancelled\nnot needed",
    ]
