"""``headway notify``: tries whether notifications get through."""

from __future__ import annotations

import os

import click

from headway import config
from headway.cli import NOT_THERE, USAGE, Failure, opening, output
from headway.jobs import receivers
from headway.jobs.receivers import Receiver

_TITLE = "headway: this is a test"
_BODY = "If you can read this, notifications of jobs reach you."


@click.group("notify")
def command() -> None:
    """Try the notifications of jobs.

    \b
    Example:
      headway notify test
      headway notify test ntfy://my-topic
    """


@command.command("test")
@click.argument("urls", metavar="[URL]...", nargs=-1)
def test(urls: tuple[str, ...]) -> int:
    """Send a test message, and say whether it was taken.

    Without URL it goes to everything in the settings: jobs.notify and jobs.notify_command.
    If all of that works, what could not be sent before is no longer reported by `headway
    doctor`. Addresses are not printed, only their kind. The exit code is 1 if one failed.

    \b
    Example:
      headway notify test
      headway notify test ntfy://my-topic
    """
    for url in urls:
        problem = receivers.problem_with(url)
        if problem is not None:
            raise Failure(f"the address {problem}", USAGE)
    settings = config.load()
    told = [Receiver(url) for url in urls] or receivers.of_settings(settings)
    if not told:
        hint = "name a URL, or set jobs.notify or jobs.notify_command"
        raise Failure(f"there is nobody to be told: {hint}", NOT_THERE)
    problems = [receiver.send(_TITLE, _BODY, {"event": "test", "job": None}) for receiver in told]
    for receiver, problem in zip(told, problems, strict=True):
        output.data(f"{receiver.kind}: {'sent' if problem is None else f'not sent: {problem}'}")
    if any(problems):
        return NOT_THERE
    if not urls:
        _forget_failures(settings.home)
    return 0


def _forget_failures(home: str) -> None:
    if os.path.exists(os.path.join(home, "jobs.db")):
        with opening.governor() as governor:
            governor.jobs.board.news.forget_failures()
