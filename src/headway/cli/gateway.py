"""``headway gateway``: a local proxy for tools that nobody can change."""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import click

from headway import config
from headway.cli import UNAVAILABLE, Failure, opening, output
from headway.cli.arguments import duration
from headway.cli.gateway_checkup import OPEN_TO_LOCAL_USERS, is_open_to_local_users
from headway.cli.gateway_service import Service
from headway.gateway.reasons import reason_of
from headway.gateway.tools import NAMES, PLACES, address, line_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.config import Settings
    from headway.gateway.access_log import Noted
    from headway.gateway.server import Gateway

_DRAIN_SECONDS = 600.0
_HOST = "127.0.0.1"
_LOOK_SECONDS = 0.5


@click.group("gateway", invoke_without_command=True)
@click.option("--port", type=click.IntRange(0, 65_535), help="Where to listen; 0 takes a free one.")
@click.option("--host", default=_HOST, show_default=True, help="Others need a token.")
@click.option(
    "--log",
    type=click.Choice(["text", "json", "off"]),
    default="text",
    show_default=True,
    help="A line for each request, on stdout.",
)
@click.option(
    "--drain",
    metavar="TIME",
    callback=duration,
    help="How long to let answers end when it is stopped; 10m if nothing is said.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Run in the background and write to logs/gateway.log in the home.",
)
@click.pass_context
def command(
    context: click.Context,
    *,
    port: int | None,
    host: str,
    log: str,
    drain: float | None,
    detach: bool,
) -> int | None:
    """Put tools that cannot be changed under the limits.

    Each request to a provider takes a slot on llm/PROVIDER/MODEL until its answer has
    ended. Point a tool's base URL here: the lines are printed, and `headway gateway env`
    prints them for scripts. Ctrl-C (or SIGTERM) lets answers end; a second one cuts them.

    \b
    Example:
      headway gateway
      eval "$(headway gateway env claude --task issue-16)"
      claude -p "fix issue 16"
      headway gateway --detach
      headway gateway stop
    """
    if context.invoked_subcommand is not None:
        return None
    _require()
    _resolve(host)
    if detach:
        options = ["--host", host, "--log", log]
        options += [] if port is None else ["--port", str(port)]
        options += [] if drain is None else ["--drain", f"{drain:g}"]
        return Service(config.load().home).start(options)
    from headway.gateway.server import Gateway  # noqa: PLC0415

    settings = config.load()
    with opening.governor(may_be_off=True) as governor:
        sys.argv = ["headway", "gateway"]
        gateway = Gateway(governor, settings, os.environ, host=host, log=_writing(log))
        patience = _DRAIN_SECONDS if drain is None else drain
        chosen = settings.gateway_port if port is None else port
        return asyncio.run(_serve(gateway, settings, host, chosen, patience))


def _require() -> None:
    if importlib.util.find_spec("httptools") is None:
        raise Failure(
            "the gateway needs httptools; install it with: pip install 'headway[gateway]'",
            UNAVAILABLE,
        )


def _resolve(host: str) -> None:
    """Whether others can reach an address is a question for one that there is."""
    try:
        socket.getaddrinfo(host or None, 0)
    except (OSError, UnicodeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it is no name of a host"
        raise Failure(f"--host {host} cannot be resolved: {reason}", UNAVAILABLE) from None


def _writing(log: str) -> Callable[[Noted], None] | None:
    from headway.gateway.access_log import FORMATS, HEADER  # noqa: PLC0415

    if log not in FORMATS:
        return None

    header = [HEADER] if log == "text" else []

    def write(noted: Noted) -> None:
        try:
            while header:
                output.data(header.pop())
            output.data(FORMATS[log](noted))
        except Failure as failure:  # the gateway goes on without a log
            raise OSError(failure.message) from None

    return write


async def _serve(
    gateway: Gateway, settings: Settings, host: str, port: int, patience: float
) -> int:
    try:
        bound = await gateway.start(port)
    except OSError as error:
        raise Failure(
            f"cannot listen on {host}:{port}: {reason_of(error)};"
            " if another gateway runs there, use that, or choose another --port",
            UNAVAILABLE,
        ) from None
    _introduce(settings, host, bound)
    Service(settings.home).announce(address(_name_of(host), bound))
    await _until_stopped(gateway, patience)
    return 0


async def _until_stopped(gateway: Gateway, patience: float) -> None:
    """The first signal lets answers end, the second cuts them."""
    asked = asyncio.Event()

    def stop() -> None:
        if asked.is_set():
            gateway.cut()
        asked.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop)
    await asked.wait()
    busy = gateway.busy
    if busy:
        output.talk(
            f"{output.count(busy, 'answer')} under way;"
            " press Ctrl-C or send SIGTERM once more to cut what is left"
        )
    cut = await gateway.stop(patience)
    if cut:
        output.talk(f"stopped; {output.count(cut, 'answer')} cut")


def _introduce(settings: Settings, host: str, port: int) -> None:
    name = _name_of(host)
    # The token itself is for nobody's screen.
    token = None if settings.gateway_token is None else "TOKEN"
    base = address(name, port, token)
    output.talk(f"the gateway listens on {address(name, port)}")
    if name != host:
        output.talk(f"{host or 'that'} is every address of this machine; the lines have its name")
    for tool in NAMES:
        where = f", {PLACES[tool]}" if tool in PLACES else ""
        output.talk(f"for {tool}{where}:")
        output.draw(f"    {line_for(tool, base)}\n")
    if is_open_to_local_users(settings):
        output.talk(OPEN_TO_LOCAL_USERS)
    for upstream, url in settings.gateway_upstreams.items():
        output.talk(f"for {upstream}, which is {url}: {base}/{upstream}")
    is_usual = name == _HOST and port == settings.gateway_port
    where = "" if is_usual else f" --host {name} --port {port}"
    what = "for scripts" if token is None else "for scripts, with the token"
    output.talk(f"{what}: headway gateway env TOOL{where}")


def _name_of(host: str) -> str:
    """What others can call it by."""
    return socket.gethostname() if _is_every_address(host) else host


def _is_every_address(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


@command.command("env")
@click.argument("tool", type=click.Choice(NAMES))
@click.option("--port", type=click.IntRange(1, 65_535), help="Where the gateway listens.")
@click.option("--host", default=_HOST, show_default=True, help="The machine it runs on.")
@click.option("--task", help="What `status` and `queue` are to call it.")
def env(*, tool: str, port: int | None, host: str, task: str | None) -> None:
    """Print what points a tool at the gateway, for a shell; of codex, for its settings.

    If the gateway wants a token (gateway.token), it is in the line.

    \b
    Example:
      eval "$(headway gateway env claude)"
      eval "$(headway gateway env opencode --task issue-16)"
      codex -c "$(headway gateway env codex)"
    """
    settings = config.load()
    chosen = settings.gateway_port if port is None else port
    output.data(line_for(tool, address(host, chosen, settings.gateway_token), task))
    if host == _HOST and not _is_taken(chosen):
        output.talk(
            f"nothing listens on {host}:{chosen} yet; start it with: headway gateway,"
            " or say with --port where it is"
        )


def _is_taken(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), timeout=_LOOK_SECONDS).close()
    except OSError:
        return False
    return True


@command.command("stop")
@click.option("--now", is_flag=True, help="Cut the answers that are under way.")
def stop(*, now: bool) -> int:
    """Stop the gateway of this home, and wait until it is gone.

    It lets answers under way end, for as long as --drain said when it was started.

    \b
    Example:
      headway gateway stop
      headway gateway stop --now
    """
    return Service(config.home_directory()).stop(now=now)


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(*, as_json: bool) -> int:
    """Say whether the gateway of this home runs, and where; exit code 1 if it does not.

    \b
    Example:
      headway gateway status
      headway gateway status --json
    """
    return Service(config.home_directory()).show(as_json=as_json)
