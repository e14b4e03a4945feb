"""``headway gateway``: a local proxy for tools that nobody can change."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from headway import config
from headway.cli import UNAVAILABLE, Failure, opening, output
from headway.cli.arguments import duration

if TYPE_CHECKING:
    from headway.gateway.exchange import Exchange
    from headway.gateway.server import Gateway
    from headway.governor import Governor

_DRAIN_SECONDS = 600.0


@click.group("gateway", invoke_without_command=True)
@click.option("--port", type=click.IntRange(0, 65_535), help="Where to listen; 0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Others need a token.")
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
@click.pass_context
def command(
    context: click.Context, *, port: int | None, host: str, log: str, drain: float | None
) -> int | None:
    """Put tools under the limits that cannot be changed.

    Each request to a provider takes a slot on llm/PROVIDER/MODEL until its answer has
    ended. Point a tool's base URL here: the lines are printed, and `headway gateway env`
    prints them for scripts. Ctrl-C (or SIGTERM) lets answers end; a second one cuts them.

    \b
    Example:
      headway gateway
      eval "$(headway gateway env claude --task issue-16)"
      claude -p "fix issue 16"
    """
    if context.invoked_subcommand is not None:
        return None
    _require()
    settings = config.load()
    with opening.governor() as governor:
        sys.argv = ["headway", "gateway"]
        patience = _DRAIN_SECONDS if drain is None else drain
        chosen = settings.gateway_port if port is None else port
        return asyncio.run(_serve(governor, host, chosen, log, patience))


def _require() -> None:
    if importlib.util.find_spec("httptools") is None:
        raise Failure(
            "the gateway needs httptools; install it with: pip install 'headway[gateway]'",
            UNAVAILABLE,
        )


async def _serve(governor: Governor, host: str, port: int, log: str, patience: float) -> int:
    from headway.gateway.access_log import FORMATS  # noqa: PLC0415
    from headway.gateway.server import Gateway  # noqa: PLC0415

    def write(exchange: Exchange) -> None:
        output.data(FORMATS[log](exchange))

    gateway = Gateway(
        governor, config.load(), os.environ, host=host, log=None if log == "off" else write
    )
    try:
        bound = await gateway.start(port)
    except OSError as error:
        raise Failure(
            f"cannot listen on {host}:{port}: {error.strerror};"
            " if another gateway runs there, use that, or choose another --port",
            UNAVAILABLE,
        ) from None
    _introduce(host, bound)
    await _until_stopped(gateway, patience)
    return 0


async def _until_stopped(gateway: Gateway, patience: float) -> None:
    """The first signal lets answers end, the second cuts them."""
    asked, asked_again = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (asked_again if asked.is_set() else asked).set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop)
    await asked.wait()
    busy = gateway.busy
    if busy:
        output.talk(f"{output.count(busy, 'answer')} under way; once more cuts them")
    ending = asyncio.create_task(gateway.stop(patience))
    insisting = asyncio.create_task(asked_again.wait())
    await asyncio.wait({ending, insisting}, return_when=asyncio.FIRST_COMPLETED)
    insisting.cancel()
    if not ending.done():
        ending.cancel()
        await gateway.stop(0)


def _introduce(host: str, port: int) -> None:
    from headway.gateway.tools import FILES, NAMES, lines_for  # noqa: PLC0415

    output.talk(f"the gateway listens on http://{host}:{port}")
    for tool in NAMES:
        where = f", in {FILES[tool]}" if tool in FILES else ""
        output.talk(f"for {tool}{where}:")
        for line in lines_for(tool, f"http://{host}:{port}"):
            output.draw(f"    {line}\n")


@command.command("env")
@click.argument("tool", type=click.Choice(["claude", "codex", "gemini", "opencode"]))
@click.option("--port", type=click.IntRange(1, 65_535), help="Where the gateway listens.")
@click.option("--task", help="What `status` and `queue` are to call it.")
def env(*, tool: str, port: int | None, task: str | None) -> None:
    """Print what points a tool at the gateway, for a shell; of codex, for its config.toml.

    \b
    Example:
      eval "$(headway gateway env claude)"
      eval "$(headway gateway env opencode --task issue-16)"
      headway gateway env codex >> ~/.codex/config.toml
    """
    from headway.gateway.tools import lines_for  # noqa: PLC0415

    chosen = config.load().gateway_port if port is None else port
    for line in lines_for(tool, f"http://127.0.0.1:{chosen}", task):
        output.data(line)
