"""Installs the real agents, at pinned versions and the newest, into a cache of the tests' own.

``python -m tests.real.install`` does it ahead of a test run; tests that find the cache empty do
it by themselves.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from functools import cache as cache_forever
from typing import TYPE_CHECKING

from tests.real.agents import AGENTS, NEWEST, NEWEST_AGENTS

if TYPE_CHECKING:
    from tests.real.agents import Agent

_PATIENCE_SECONDS = 900
_ASKING_SECONDS = 60


class CannotInstall(Exception):  # noqa: N818 - a reason to skip, or to fail
    """An agent is not here, and cannot be brought."""


def cache() -> str:
    """Where the agents are kept: outside the repository, shared by all clones."""
    chosen = os.environ.get("HEADWAY_TEST_CACHE")
    if chosen:
        return os.path.abspath(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "headway-tests")


def install(agent: Agent) -> str:
    """The agent's program, after it was installed if need be."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise CannotInstall(f"{agent.name} needs node and npm")
    version = version_of(agent)
    prefix = os.path.join(cache(), f"{agent.name}-{version}")
    program = os.path.join(prefix, "node_modules", ".bin", agent.name)
    # Written last: without it, what is there may be half of an installation.
    stamp = os.path.join(prefix, "complete")
    os.makedirs(cache(), exist_ok=True)
    with open(f"{prefix}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(stamp):
            shutil.rmtree(prefix, ignore_errors=True)
            _npm_install(f"{agent.package}@{version}", prefix)
            if not os.access(program, os.X_OK):
                raise CannotInstall(f"{agent.package} brought no program {agent.name}")
            with open(stamp, "w"):
                pass
    return program


def version_of(agent: Agent) -> str:
    """The agent's version as a number: the newest is asked for, once in a process."""
    return _newest(agent.package) if agent.version == NEWEST else agent.version


@cache_forever
def _newest(package: str) -> str:
    command = ["npm", "view", package, "version"]
    try:
        told = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_ASKING_SECONDS,
        ).stdout.strip()
    except (subprocess.SubprocessError, OSError) as error:
        raise CannotInstall(f"npm does not say the newest version of {package}: {error}") from error
    if not re.fullmatch(r"[0-9][0-9A-Za-z.+-]*", told):
        raise CannotInstall(f"npm says that the newest version of {package} is {told!r}")
    return told


def _npm_install(package: str, prefix: str) -> None:
    print(f"installing {package} into {prefix}", file=sys.stderr, flush=True)
    home = os.path.join(prefix, "home")
    os.makedirs(home)
    # Some packages write to the home upon installation: it shall not be a person's. The
    # person's settings of npm still count, for they may name the only registry there is.
    environ = {**os.environ, "HOME": home}
    settings = os.path.expanduser("~/.npmrc")
    if os.path.exists(settings):
        environ.setdefault("NPM_CONFIG_USERCONFIG", settings)
    command = ["npm", "install", "--prefix", prefix, "--no-audit", "--no-fund", package]
    try:
        subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            check=True,
            timeout=_PATIENCE_SECONDS,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise CannotInstall(f"npm did not install {package}: {error}") from error


def main() -> None:
    """Install all of them."""
    for agent in (*AGENTS, *NEWEST_AGENTS):
        try:
            print(f"{agent.name} {version_of(agent)}: {install(agent)}", file=sys.stderr)
        except CannotInstall as reason:
            sys.exit(f"the tests with real agents cannot run: {reason}")


if __name__ == "__main__":
    main()
