"""``headway config``: the settings, where each comes from, and whether they are good."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from headway import config, limits, setting_table, spelling
from headway.cli import arguments, in_use, output
from headway.errors import ConfigError
from headway.watchdogs import Chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.config import Settings


@click.group("config")
def command() -> None:
    """Show and check the settings.

    \b
    Example:
      headway config show
      headway config check
      $EDITOR "$(headway config path)"
    """


@command.command("path")
def path() -> None:
    """Print where config.toml is, or would be.

    \b
    Example:
      $EDITOR "$(headway config path)"
    """
    output.data(_path())


@command.command("check")
def check() -> None:
    """Check the settings; report all problems together.

    They are those in config.toml and in the environment. With a problem the exit code
    is 78, and no command that opens the home works until it is mended.

    \b
    Example:
      headway config check
    """
    settings = config.load()
    for name in sorted(_unknown_variables()):
        output.talk(f"warning: {name} is not a variable of Headway")
    if not os.path.exists(_path()):
        output.data(f"{_path()}: not there, so the defaults count")
        return
    _check_receivers(settings)
    patterns = [line.pattern for line in settings.lines]
    for doubt in [
        *spelling.doubts(patterns, in_use.peek(settings.home), known=patterns),
        *Chosen(settings, {}).doubts(),
    ]:
        output.talk(f"warning: {output.clean(doubt)}")
    lines = output.count(len(settings.lines), "limit")
    output.data(f"{_path()}: good, {lines}, {len(settings.paused)} paused")


def _check_receivers(settings: Settings) -> None:
    """Refuse addresses of notifications that nothing can be sent to."""
    if settings.notify:
        from headway.jobs import receivers  # noqa: PLC0415 - few have one, and it loads apprise

        problems = [receivers.problem_with(url) for url in settings.notify]
        wrong = [f"jobs.notify {problem}" for problem in problems if problem is not None]
        if wrong:
            raise ConfigError(*wrong)


@command.command("show")
@arguments.json_option
def show(*, as_json: bool) -> None:
    """Show every setting, its value and its source.

    A variable beats the file and the file beats the default. Limits are the exception:
    what the file says stands, and HEADWAY_LIMITS fills in the rest.

    \b
    Example:
      headway config show
      HEADWAY_QUEUE_BOOST=5m headway config show --json
    """
    rows = list(_rows(config.load()))
    if as_json:
        output.as_json(
            [{"name": name, "value": value, "source": source} for name, value, source in rows]
        )
        return
    output.table(
        ("SETTING", "VALUE", "SOURCE"),
        [(name, shown(value), _brief(source)) for name, value, source in rows],
        folded=("VALUE", "SOURCE"),
    )


def _brief(source: str) -> str:
    """The name of the file without its directory, which the first line has."""
    return config.FILE_NAME if source == _path() else source


def _rows(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Name, value and source of everything that can be set."""
    written, file = _written(), _path()
    home = "HEADWAY_HOME" if os.environ.get("HEADWAY_HOME") else "default"
    yield "home", settings.home, home
    for name, setting in setting_table.SETTINGS.items():
        section, _, entry = name.partition(".")
        value: Any
        if setting.variable in os.environ:
            value, source = os.environ[setting.variable], setting.variable
        elif entry in written.get(section, {}):
            value, source = written[section][entry], file
        else:
            value, source = setting.default, "default"
        hidden = setting.is_secret and value != setting.default
        yield name, "(set, not shown)" if hidden else value, source
    yield "paused", sorted(settings.paused), file if "paused" in written else "default"
    from_file = {line.pattern for line in settings.lines}
    offered = [line for line in settings.offered_lines if line.pattern not in from_file]
    lines = [*settings.lines, *offered]
    default = limits.Terms(lines).line_for(limits.DEFAULT.pattern)
    sources = {limits.FILE: file, limits.ENVIRONMENT: "HEADWAY_LIMITS"}
    for line in sorted({*lines, default}, key=lambda line: line.pattern):
        source = sources.get(line.source, line.source)
        yield f'limits."{line.pattern}"', line.written(), source
    for name in ("HEADWAY_LEASE", "HEADWAY_TASK"):
        if os.environ.get(name):
            yield name, os.environ[name], "environment"


def _written() -> dict[str, Any]:
    """What stands in the file, which has been checked."""
    import tomllib  # noqa: PLC0415

    try:
        with open(_path(), "rb") as file:
            return tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _unknown_variables() -> set[str]:
    known = {
        *setting_table.VARIABLES,
        *(setting.variable for setting in setting_table.SETTINGS.values()),
    }
    return {name for name in os.environ if name.startswith("HEADWAY_")} - known


def _path() -> str:
    return os.path.join(config.home_directory(), config.FILE_NAME)


def shown(value: object) -> str:
    """A value as people would write it."""
    if isinstance(value, list):
        return ", ".join(value) or "-"
    if isinstance(value, dict):
        parts = (
            f'{name} = "{x}"' if isinstance(x, str) else f"{name} = {x}"
            for name, x in value.items()
        )
        return f"{{ {', '.join(parts)} }}" if value else "-"
    return output.clean(str(value))
