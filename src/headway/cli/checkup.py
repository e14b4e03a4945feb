"""The examinations of ``headway doctor``: each looks at one thing and changes nothing.

None of them opens the home as other commands do: that would make a missing home,
set a broken database aside and give back for the dead, and a doctor who does all
that finds everybody well.
"""

from __future__ import annotations

import os
import platform
import shlex
import sqlite3
from difflib import get_close_matches
from typing import TYPE_CHECKING

from headway import __version__, config, limits, releases, setting_table, spelling
from headway.cli import deadlock_checkup, in_use, output
from headway.cli.config import shown
from headway.cli.diagnosis import Finding, processes, wrong_counts
from headway.cli.finding import called
from headway.cli.place import Place
from headway.errors import ConfigError, HeadwayError, StoreUnavailable
from headway.stores.database import INNOCENT, Database, suspicion
from headway.stores.guard import PAGE_BYTES, Guard
from headway.stores.liveness import Live
from headway.stores.reader import read_census
from headway.stores.sqlrepair import examine
from headway.stores.sqlrows import read_terms, state_from
from headway.watchdogs import Chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headway.config import Settings
    from headway.limits import Terms
    from headway.stores.reader import Look

_PATIENCE_SECONDS = 1.0
_NAMED = 5


class Checkup:
    """Looks at one home, from the outside in."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._place = Place(home)
        self._settings: Settings | None = None

    def findings(self) -> Iterator[Finding]:
        """All findings; an examination that fails is one itself."""
        for about, examination in (
            ("versions", self._versions),
            ("home", self._place.directory),
            ("file system", self._place.file_system),
            ("space", self._place.space),
            ("trial", self._place.trial),
            ("settings", self._read_settings),
            ("environment", self._environment),
            ("server", self._server),
            ("store", self._store),
            ("holders", self._holders),
            ("releases", self._releases),
            ("jobs", self._jobs),
            ("gateway", self._gateway),
        ):
            try:
                yield from examination()
            except (HeadwayError, OSError, sqlite3.Error, UnicodeError) as error:
                yield Finding(
                    "problem",
                    about,
                    f"cannot be looked at: {error}",
                    "check the owner, the mode and the disk of the home, or set HEADWAY_HOME",
                )

    @staticmethod
    def _versions() -> Iterator[Finding]:
        text = (
            f"headway {__version__}, Python {platform.python_version()},"
            f" SQLite {sqlite3.sqlite_version}, {platform.system()} {platform.release()}"
        )
        yield Finding("ok", "versions", text)

    # -- settings -------------------------------------------------------------------

    def _read_settings(self) -> Iterator[Finding]:
        path = os.path.join(self._home, config.FILE_NAME)
        try:
            self._settings = config.load(self._home)
        except ConfigError as error:
            for problem in error.problems:
                fix = "mend it; until then every command that opens the home ends with code 78"
                yield Finding("problem", "settings", problem, fix)
            return
        if os.path.exists(path):
            count = output.count(len(self._settings.lines), "limit")
            yield Finding("ok", "settings", f"{path} is good, {count}")
        else:
            yield Finding("ok", "settings", f"no {config.FILE_NAME}, so the defaults count")
        changed = ", ".join(_changed(self._settings, _names_in(path)))
        told = f"not as by default: {changed}" if changed else "all as by default"
        yield Finding("ok", "settings", f"{told}; see: headway config show")

    def _environment(self) -> Iterator[Finding]:
        known = {
            *setting_table.VARIABLES,
            *(setting.variable for setting in setting_table.SETTINGS.values()),
        }
        given = sorted(name for name in os.environ if name.startswith("HEADWAY_"))
        for name in [name for name in given if name not in known]:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield Finding(
                "warning", "environment", f"{name} means nothing to Headway{meant}", f"unset {name}"
            )
        read = [name for name in given if name in known]
        if read:
            yield Finding("ok", "environment", f"{', '.join(read)} set")

    def _server(self) -> Iterator[Finding]:
        if self._settings is None or not self._is_on_server:
            return
        from headway.cli import server_checkup  # noqa: PLC0415 - few have one

        try:
            yield from server_checkup.findings(self._settings)
            unreadable = server_checkup.unreadable(self._settings)
            if unreadable is not None:
                yield unreadable
                return
            running, found = server_checkup.books(self._settings)
            yield from found
            yield from self._inside(running)
        except (ConfigError, StoreUnavailable) as error:
            fix = "see that it runs and can be reached, or unset store.url to use the home alone"
            yield Finding("problem", "server", str(error), fix)
        except ModuleNotFoundError as error:
            fix = "pip install 'headway[redis]'"
            yield Finding("problem", "server", f"store.url needs {error.name}", fix)

    def _jobs(self) -> Iterator[Finding]:
        from headway.cli import jobs_checkup  # noqa: PLC0415 - many have no jobs

        yield from jobs_checkup.findings(self._home)

    def _gateway(self) -> Iterator[Finding]:
        if self._settings is not None:
            from headway.cli import gateway_checkup  # noqa: PLC0415 - a client of its own

            yield from gateway_checkup.findings(self._settings)

    # -- the store ------------------------------------------------------------------

    @property
    def _is_on_server(self) -> bool:
        return self._settings is not None and self._settings.store_url is not None

    def _store(self) -> Iterator[Finding]:
        if self._is_on_server:
            return
        lock = os.path.join(self._home, "slots.lock")
        if not os.path.exists(lock):
            if self._lease_id():
                yield self._lost_lease("there is no store in this home")
            return
        if os.path.isfile(lock) and os.stat(lock).st_size < PAGE_BYTES:
            fix = "nothing to do: the next command makes it whole, and slots.db anew"
            yield Finding("warning", "store", "slots.lock was cut short", fix)
            return
        guard = Guard(lock, timeout_seconds=_PATIENCE_SECONDS)
        try:
            inside = _who_is_inside(guard)
            if inside:
                fix = "let that process go on (kill -CONT) or end it"
                yield Finding("problem", "store", inside, fix)
            yield from self._database(guard.generation)
        finally:
            guard.close()
        aside = sorted(name for name in os.listdir(self._home) if ".db.damaged-" in name)
        if aside:
            text = f"{', '.join(aside)} was set aside; nothing durable is in it"
            yield Finding("warning", "store", text, f"rm {shlex.quote(self._home)}/*.db.damaged-*")

    def _database(self, generation: int) -> Iterator[Finding]:
        path = os.path.join(self._home, "slots.db")
        if not os.path.exists(path):
            yield Finding("ok", "store", "no slots.db: the next command makes it")
            return
        database = Database(path, timeout_seconds=_PATIENCE_SECONDS)
        try:
            database.open(generation)
            yield from self._books(database)
        except StoreUnavailable as error:
            yield _unusable(path, error.reason)
        except Exception as error:
            if suspicion(error) != INNOCENT:
                fix = "nothing to do: the next command sets it aside and makes a new one"
                yield Finding("warning", "store", f"slots.db cannot be used: {error}", fix)
            elif isinstance(error, sqlite3.Error):
                yield _unusable(path, str(error))
            else:
                raise
        finally:
            database.let_go()

    def _books(self, database: Database) -> Iterator[Finding]:
        look = database.connection.execute
        running, waiting = (
            [ticket_id for (ticket_id,) in look(f"select id from {table} order by id")]
            for table in ("leases", "waiting")
        )
        text = f"slots.db is good, {output.count(len(running), 'lease')}, {len(waiting)} waiting"
        yield Finding("ok", "store", text)
        yield from wrong_counts(examine(database.connection))
        dead = [ticket for ticket in (*running, *waiting) if not self._is_alive(ticket)]
        if dead:
            named = ", ".join(dead[:_NAMED]) + (" …" if len(dead) > _NAMED else "")
            text = f"{output.count(len(dead), 'ticket')} of processes that are gone: {named}"
            yield Finding("warning", "holders", text, "headway status gives them back")
        in_force = read_terms(look)
        yield from self._terms(in_force)
        patterns = {line.pattern for line in in_force.lines}
        yield from self._doubts(patterns, in_use.look_up(look))
        yield from self._inside(running)
        yield from self._deadlocks(lambda *query: look(*query).fetchall())

    def _deadlocks(self, look: Look) -> Iterator[Finding]:
        live = Live(os.path.join(self._home, "live"))
        look("begin")  # all of it at one instant
        try:
            census = read_census(look, lambda row: state_from(row, look), live.describe)
        finally:
            look("rollback")
            live.close()
        yield from deadlock_checkup.findings(census)

    def _inside(self, running: Sequence[str]) -> Iterator[Finding]:
        inside = [lease for lease in self._lease_id().split() if lease in running]
        if self._lease_id() and not inside:
            yield self._lost_lease("no such lease is held")
        elif inside:
            text = f"you are inside lease {inside[0]}: what you ask for may go ahead on its slot"
            yield Finding("ok", "environment", text)

    def _terms(self, in_force: Terms) -> Iterator[Finding]:
        if self._settings is None:
            return
        from_file = {line for line in in_force.lines if line.source == limits.FILE}
        differing = {line.pattern for line in from_file ^ set(self._settings.lines)}
        differing |= self._settings.paused ^ in_force.paused
        if differing:
            text = f"{config.FILE_NAME} was changed by hand for {', '.join(sorted(differing))}"
            fix = "headway limits reload puts it in force; so does the next opening of the home"
            yield Finding("warning", "limits", text, fix)
        else:
            yield Finding("ok", "limits", "those of the file are in force")

    def _doubts(self, patterns: set[str], used: set[str]) -> Iterator[Finding]:
        patterns |= {line.pattern for line in self._settings.lines} if self._settings else set()
        for doubt in spelling.doubts(sorted(patterns), used, known=patterns):
            fix = "if it is misspelt, set it right where it is written; see: headway limits"
            yield Finding("warning", "limits", doubt, fix)
        for doubt in Chosen(self._settings, {}).doubts() if self._settings else ():
            fix = "give it more room, or turn it off; see: headway config show"
            yield Finding("warning", "watchdogs", doubt, fix)

    def _holders(self) -> Iterator[Finding]:
        if self._is_on_server:
            return
        directory = os.path.join(self._home, "live")
        if not os.path.isdir(directory):
            if os.path.lexists(directory):
                fix = f"when nothing runs: rm {shlex.quote(directory)}"
                yield Finding("problem", "holders", f"{directory} is not a directory", fix)
            return
        live = Live(directory)
        try:
            holders = live.holders()
            dead = [holder for holder in holders if not live.is_alive(holder)]
            pids = [f"pid {live.describe(holder).pid}" for holder in dead[:_NAMED]]
        finally:
            live.close()
        alive = processes(len(holders) - len(dead))
        yield Finding("ok", "holders", f"{alive} alive, with a lease or without")
        if dead:
            more = " …" if len(dead) > _NAMED else ""
            text = f"{len(dead)} died without leaving: {', '.join(pids)}{more}"
            fix = "headway status clears up after them; nobody has to wait for that"
            yield Finding("warning", "holders", text, fix)

    def _releases(self) -> Iterator[Finding]:
        on_record = releases.read(self._home)
        if on_record:
            last = on_record[0]
            text = (
                f"{output.count(len(on_record), 'lease')} taken back by hand, the last one"
                f" {called(last.lease)} by {last.by.user}, {output.age(last.released_at)} ago"
            )
            yield Finding("ok", "releases", text)

    def _is_alive(self, ticket_id: str) -> bool:
        live = Live(os.path.join(self._home, "live"))
        try:
            return live.is_alive(ticket_id.partition("-")[0])
        finally:
            live.close()

    @staticmethod
    def _lease_id() -> str:
        return os.environ.get("HEADWAY_LEASE", "")

    def _lost_lease(self, why: str) -> Finding:
        text = f"HEADWAY_LEASE={self._lease_id()}, but {why}: nothing is lent from it"
        return Finding("warning", "environment", text, "unset HEADWAY_LEASE")


def _unusable(path: str, reason: str) -> Finding:
    fix = f"check its owner and mode; when nothing runs it may go: rm {shlex.quote(path)}"
    return Finding("problem", "store", f"slots.db: {reason}", fix)


def _who_is_inside(guard: Guard) -> str:
    """Whoever keeps everyone else out for longer than an operation takes."""
    try:
        guard.acquire(patient=True)
    except StoreUnavailable as error:
        return error.reason
    finally:
        guard.release()
    return ""


def _changed(settings: Settings, in_file: dict[str, object]) -> Iterator[str]:
    """The settings that have another value than by default, and where that comes from."""
    for name, setting in setting_table.SETTINGS.items():
        if getattr(settings, setting.field) == setting.check(setting.default, name):
            continue
        is_in_file = setting.variable not in os.environ
        value = in_file.get(name) if is_in_file else os.environ[setting.variable]
        told = "set, not shown" if setting.is_secret else shown(value)
        yield f"{name} {told} ({'file' if is_in_file else setting.variable})"


def _names_in(path: str) -> dict[str, object]:
    """The settings that stand in a file which has been checked."""
    import tomllib  # noqa: PLC0415

    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError:
        return {}
    tables = ((section, table) for section, table in document.items() if section != "limits")
    return {
        f"{section}.{name}": value
        for section, table in tables
        if isinstance(table, dict)
        for name, value in table.items()
    }
