"""Tells people what became of jobs, in a process of its own.

What is to be told stands in the board until it was sent, so nothing is lost; and
nobody but this process ever waits for a server that does not answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from headway import config, interpreter
from headway.errors import HeadwayError, NoSuchJob
from headway.jobs.bell import Bells
from headway.jobs.board import Board
from headway.jobs.listing import Listing
from headway.jobs.post import Post

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headway.jobs.listing import Job

_TRIES = 3
_PAUSE_SECONDS = 2.0
_COMMAND_SECONDS = 30.0
_LINGER_SECONDS = 20.0
_LOOK_SECONDS = 1.0


class Messengers:
    """Sees to it that there is a messenger when there is something to tell."""

    def __init__(self, home: str, board: Board) -> None:
        self._home, self._board, self._post = home, board, Post(home, "messenger")

    def look(self) -> None:
        """Start one, if there is news and nobody takes care of it."""
        if self._board.news.unsent() and self._post.holder() is None:
            words = interpreter.words("headway.jobs.messenger", self._home)
            # In a session of its own: Ctrl-C is for the worker.
            os.posix_spawn(words[0], words, os.environ, setsid=True, setsigmask=[])


class Messenger:
    """Sends what stands in the board; each receiver in its own order, none held up by another."""

    def __init__(self, home: str) -> None:
        self._settings = config.load(home)
        self._board = Board(self._settings)
        self._listing = Listing(self._board)
        self._bells = Bells(home)
        self._lanes: dict[str, ThreadPoolExecutor] = {}
        self._under_way: dict[int, list[Future[None]]] = {}

    def run(self) -> None:
        """Send until there was nothing to send for a while, or the worker is gone."""
        quiet_since, worker = time.monotonic(), os.getppid()
        with self._bells.watch() as bell:
            while time.monotonic() - quiet_since < _LINGER_SECONDS:
                for number, job, event, _, details in self._board.news.unsent():
                    if number not in self._under_way:
                        self._under_way[number] = list(self._send(job, event, details))
                for number, sent in list(self._under_way.items()):
                    if all(one.done() for one in sent):
                        self._board.news.drop(number)
                        del self._under_way[number]
                if self._under_way:
                    quiet_since = time.monotonic()
                elif os.getppid() != worker:
                    return
                bell.wait(_LOOK_SECONDS)

    def is_needed(self) -> bool:
        """Whether there is something to tell again."""
        return bool(self._board.news.unsent())

    def _send(self, job: int | None, event: str, details: str) -> Iterator[Future[None]]:
        try:
            found = None if job is None else self._listing.find(job)
        except NoSuchJob:  # forgotten meanwhile
            return
        title, body = _title(job, event), _body(found, details)
        for url in self._urls(found, event):
            yield self._later(url, lambda url=url: _notify(url, title, body))  # type: ignore[misc]
        command = self._settings.notify_command
        if command and event in self._settings.notify_on:
            facts = {"event": event, "job": None if found is None else found.as_dict()}
            yield self._later(command, lambda: _call(command, title, body, facts))

    def _urls(self, job: Job | None, event: str) -> list[str]:
        """Whom to tell: those named in the settings, and those named for the job."""
        urls = list(self._settings.notify) if event in self._settings.notify_on else []
        options: dict[str, Any] = {} if job is None else self._listing.options(job.id)
        if event in options.get("notify_on", self._settings.notify_on):
            urls += options.get("notify", [])
        return list(dict.fromkeys(urls))

    def _later(self, receiver: str, send: Callable[[], bool]) -> Future[None]:
        lane = self._lanes.setdefault(receiver, ThreadPoolExecutor(1))
        return lane.submit(_insist, receiver, send)


def _insist(receiver: str, send: Callable[[], bool]) -> None:
    """Try a few times; then say that it failed, without the secrets in an address."""
    problem = "it was refused"
    for attempt in range(_TRIES):
        try:
            if send():
                return
        except Exception as error:  # noqa: BLE001 - whatever it is, jobs go on
            problem = type(error).__name__
        if attempt + 1 < _TRIES:
            time.sleep(_PAUSE_SECONDS * (attempt + 1))
    scheme = receiver.partition("://")[0] if "://" in receiver else "notify_command"
    sys.stderr.write(f"headway: a notification through {scheme} was not sent: {problem}\n")


def _notify(url: str, title: str, body: str) -> bool:
    import logging  # noqa: PLC0415

    import apprise  # noqa: PLC0415 - loaded when there is something to send

    logging.getLogger("apprise").disabled = True  # it would print the address
    sender = apprise.Apprise()
    return bool(sender.add(url) and sender.notify(title=title, body=body))


def _call(command: str, title: str, body: str, facts: Mapping[str, object]) -> bool:
    done = subprocess.run(
        ["/bin/sh", "-c", command, "headway", title, body],
        input=json.dumps({**facts, "title": title, "body": body}),
        text=True,
        timeout=_COMMAND_SECONDS,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    return done.returncode == 0


def _title(job: int | None, event: str) -> str:
    if job is None:
        return "headway: the job queue is empty"
    words = {"warned": "may be in trouble", "killed": "was killed", "queued": "is queued"}
    return f"headway: job {job} {words.get(event, event)}"


def _body(job: Job | None, details: str) -> str:
    if job is None:
        return details or "every job has ended"
    lines = [job.summary()]
    lines += [details] if details else []
    lines += [job.end_reason] if job.end_reason else []
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """What the worker starts, with the home."""
    (home,) = words
    post, is_needed = Post(home, "messenger"), True
    try:
        while is_needed and post.take():
            messenger = Messenger(home)
            messenger.run()
            post.leave()
            # The worker may have seen us at our post and relied on that, just before we left it.
            is_needed = messenger.is_needed()
    except HeadwayError as error:
        sys.stderr.write(f"headway: no notifications: {error}\n")
