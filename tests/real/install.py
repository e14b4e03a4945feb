"""Installs the real agents, at pinned versions, into a cache of the tests' own.

``python -m tests.real.install`` does it ahead of a test run; tests that find the cache empty do
it by themselves.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.real.agents import Agent

_PATIENCE_SECONDS = 900


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
    prefix = os.path.join(cache(), f"{agent.name}-{agent.version}")
    program = os.path.join(prefix, "node_modules", ".bin", agent.name)
    # Written last: without it, what is there may be half of an installation.
    stamp = os.path.join(prefix, "complete")
    os.makedirs(cache(), exist_ok=True)
    with open(f"{prefix}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(stamp):
            shutil.rmtree(prefix, ignore_errors=True)
            _npm_install(f"{agent.package}@{agent.version}", prefix)
            if not os.access(program, os.X_OK):
                raise CannotInstall(f"{agent.package} brought no program {agent.name}")
            with open(stamp, "w"):
                pass
    return program


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
    from tests.real.agents import AGENTS  # noqa: PLC0415 - they import this module

    for agent in AGENTS:
        try:
            print(f"{agent.name} {agent.version}: {install(agent)}", file=sys.stderr)
        except CannotInstall as reason:
            sys.exit(f"the tests with real agents cannot run: {reason}")


if __name__ == "__main__":
    main()
