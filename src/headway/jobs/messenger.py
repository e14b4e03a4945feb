"""Tells people what became of jobs, in a process of its own.

What is to be told stands in the board until it was sent, so nothing is lost; and
nobody but this process ever waits for a server that does not answer.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from headway import config, interpreter, plain_text
from headway.errors import HeadwayError, NoSuchJob, no_more_processes
from headway.jobs import receivers
from headway.jobs.bell import Bells
from headway.jobs.board import Board
from headway.jobs.listing import Listing
from headway.jobs.post import Post
from headway.jobs.receivers import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headway.jobs.listing import Job

_TRIES = 3
_PAUSE_SECONDS = 2.0
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
            try:
                os.posix_spawn(words[0], words, os.environ, setsid=True, setsigmask=[])
            except OSError as error:
                raise no_more_processes(error) from error


class Messenger:
    """Sends what stands in the board; each receiver in its own order, none held up by another."""

    def __init__(self, home: str, post: Post) -> None:
        self._post = post
        self._settings = config.load(home)
        self._board = Board(self._settings)
        self._listing = Listing(self._board)
        self._bells = Bells(home)
        self._lanes: dict[tuple[str, bool], ThreadPoolExecutor] = {}
        self._under_way: dict[int, list[Future[str]]] = {}

    def run(self) -> None:
        """Send until there was nothing to send for a while, or the worker is gone, or the home."""
        quiet_since, worker = time.monotonic(), os.getppid()
        with self._bells.watch() as bell:
            while time.monotonic() - quiet_since < _LINGER_SECONDS and self._post.is_held():
                for number, job, event, _, details in self._board.news.unsent():
                    if number not in self._under_way:
                        self._under_way[number] = list(self._send(job, event, details))
                for number, sent in list(self._under_way.items()):
                    if all(one.done() for one in sent):
                        self._settle(number, [one.result() for one in sent])
                        del self._under_way[number]
                if self._under_way:
                    quiet_since = time.monotonic()
                elif os.getppid() != worker:
                    return
                bell.wait(_LOOK_SECONDS)

    def _settle(self, number: int, problems: list[str]) -> None:
        """Forget what was sent; keep and log what could not be."""
        text = "; ".join(filter(None, problems))
        if not text:
            self._board.news.drop(number)
            return
        job, event = self._board.news.fail(number, text)
        about = f"job {job}: " if job is not None else ""
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        sys.stderr.write(
            f"headway: {now} {about}the notification of {event!r} was not sent: {text}\n"
        )

    def is_needed(self) -> bool:
        """Whether there is something to tell again."""
        return bool(self._board.news.unsent())

    def _send(self, job: int | None, event: str, details: str) -> Iterator[Future[str]]:
        try:
            found = None if job is None else self._listing.find(job)
        except NoSuchJob:  # forgotten meanwhile
            return
        title, body = _title(job, event), _body(found, event, details)
        facts = {"event": event, "job": None if found is None else found.as_dict()}
        for receiver in self._receivers(found, event):
            yield self._later(receiver, title, body, facts)

    def _receivers(self, job: Job | None, event: str) -> list[Receiver]:
        """Whom to tell: those named in the settings, and those named for the job."""
        is_usual = event in self._settings.notify_on
        told = receivers.of_settings(self._settings) if is_usual else []
        options: dict[str, Any] = {} if job is None else self._listing.options(job.id)
        if event in options.get("notify_on", self._settings.notify_on):
            told += [Receiver(url) for url in options.get("notify", [])]
        return list({receiver.key: receiver for receiver in told}.values())

    def _later(
        self, receiver: Receiver, title: str, body: str, facts: Mapping[str, object]
    ) -> Future[str]:
        lane = self._lanes.setdefault(receiver.key, ThreadPoolExecutor(1))
        return lane.submit(_insist, receiver, title, body, facts)


def _insist(receiver: Receiver, title: str, body: str, facts: Mapping[str, object]) -> str:
    """Try a few times; why it could not be sent, without the secrets in an address, or ""."""
    problem = None
    for attempt in range(_TRIES):
        problem = receiver.send(title, body, facts)
        if problem is None:
            return ""
        if attempt + 1 < _TRIES:
            time.sleep(_PAUSE_SECONDS * (attempt + 1))
    return f"{receiver.kind}: {problem}"


def _title(job: int | None, event: str) -> str:
    if job is None:
        return "headway: the job queue is empty"
    words = {"warned": "may be in trouble", "killed": "was killed", "queued": "is queued"}
    return f"headway: job {job} {words.get(event, event)}"


def _body(job: Job | None, event: str, details: str) -> str:
    """What the title is about, as it was when that happened: the job may be elsewhere by now."""
    if job is None:
        return details or "every job has ended"
    task = f" ({job.task})" if job.task else ""
    told = (f"{shlex.join(job.command)}{task}: {event}", details)
    return "\n".join(plain_text.one_line(text) for text in told if text)


def main(words: list[str]) -> None:
    """What the worker starts, with the home."""
    (home,) = words
    post, is_needed = Post(home, "messenger"), True
    try:
        while is_needed and post.take():
            messenger = Messenger(home, post)
            messenger.run()
            is_at_home = post.is_held()
            post.leave()
            # The worker may have seen us at our post and relied on that, just before we left it.
            is_needed = is_at_home and messenger.is_needed()
    except HeadwayError as error:
        sys.stderr.write(f"headway: no notifications: {error}\n")
