"""Receivers of notifications: addresses that apprise knows, and a local command.

Addresses have secrets in them: only their scheme is ever shown.
"""

from __future__ import annotations

import json
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from headway.config import Settings

_COMMAND_SECONDS = 30.0
# Services that take HTML or Markdown get what a job is called as text, not as markup.
_TEXT = "text"


def problem_with(url: object) -> str | None:
    """Why nothing can be sent to an address; nothing if it is well-formed."""
    if not isinstance(url, str) or "://" not in url:
        # Not shown: people mistype secrets as well.
        return 'must be a URL such as "ntfy://my-topic"'
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("apprise") is None:
        return "needs apprise: pip install 'headway[notify]'"
    if _instantiated(url) is None:
        return (
            f"has an address of the kind {url.partition('://')[0]}:// that apprise cannot use;"
            " how such addresses are written: https://github.com/caronc/apprise/wiki"
        )
    return None


class Receiver:
    """One who is told: an address, or a command."""

    __slots__ = ("_text", "is_command")

    def __init__(self, text: str, *, is_command: bool = False) -> None:
        self._text, self.is_command = text, is_command

    @property
    def key(self) -> tuple[str, bool]:
        """What makes two the same."""
        return self._text, self.is_command

    @property
    def kind(self) -> str:
        """What may be shown of it."""
        return "notify_command" if self.is_command else self._text.partition("://")[0]

    def send(self, title: str, body: str, facts: Mapping[str, object]) -> str | None:
        """Tell it once; what went wrong, or nothing."""
        try:
            if self.is_command:
                return _call(self._text, title, body, facts)
            service = _instantiated(self._text)
            is_sent = service is not None and _notify(service, title, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, jobs go on
            return type(error).__name__
        return None if is_sent else "it was refused, or nobody answered"


def of_settings(settings: Settings) -> list[Receiver]:
    """Those that are told of all jobs."""
    command = settings.notify_command
    told = [Receiver(url) for url in settings.notify]
    return [*told, Receiver(command, is_command=True)] if command else told


def _instantiated(url: str) -> Any:
    """What apprise makes of an address; nothing if it cannot use it."""
    import logging  # noqa: PLC0415
    import warnings  # noqa: PLC0415

    logging.getLogger("apprise").disabled = True  # it would print the address
    with warnings.catch_warnings():  # of what it loads
        warnings.simplefilter("ignore", DeprecationWarning)
        import apprise  # noqa: PLC0415 - takes long: loaded when there is something to send

        return apprise.Apprise.instantiate(url)


def _notify(service: Any, title: str, body: str) -> bool:
    import apprise  # noqa: PLC0415

    sender = apprise.Apprise()
    return bool(sender.add(service) and sender.notify(body, title, body_format=_TEXT))


def _call(command: str, title: str, body: str, facts: Mapping[str, object]) -> str | None:
    done = subprocess.run(
        ["/bin/sh", "-c", command, "headway", title, body],
        input=json.dumps({**facts, "title": title, "body": body}),
        text=True,
        timeout=_COMMAND_SECONDS,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    return None if done.returncode == 0 else f"it ended with exit code {done.returncode}"
