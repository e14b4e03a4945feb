"""The address of a Redis server: what may stand in it, and what else may answer there."""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import redis
from redis.exceptions import (
    ConnectionError,  # noqa: A004 - the driver's name for it
    InvalidResponse,
    RedisError,
    TimeoutError,  # noqa: A004
)

from headway.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from urllib.parse import SplitResult

_FILES = {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"}
_TLS_OPTIONS = _FILES | {
    "ssl_ca_data",
    "ssl_cert_reqs",
    "ssl_check_hostname",
    "ssl_ciphers",
    "ssl_min_version",
    "ssl_password",
}
# Others of the driver's options change how it answers, or are objects.
_OPTIONS = {
    "client_name",
    "db",
    "health_check_interval",
    "password",
    "protocol",
    "socket_connect_timeout",
    "socket_keepalive",
    "socket_timeout",
    "username",
}
_PROBE_SECONDS = 1.0
_PASSWORD_HINT = "in a password, write / as %2F, : as %3A, ? as %3F, # as %23 and @ as %40"  # noqa: S105


class WrongServer(RedisError):  # noqa: N818 - it is not at fault
    """What answers is no server that could hold slots; asking again changes nothing."""


def pool_for(
    url: str, name: str, *, timeout_seconds: float, password: str | None
) -> redis.ConnectionPool:
    """What connections to this address are made from; ``name`` is the address without secrets."""
    secret = {} if password is None else {"password": password}
    try:
        _check(url)
        pool = redis.ConnectionPool.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            client_name="headway",
            **secret,
        )
        pool.connection_class(**pool.connection_kwargs)  # it refuses values when it is made
    except (ValueError, TypeError, RedisError) as error:
        raise ConfigError(f"store {name} cannot be used: {error}") from None
    return pool


def _check(url: str) -> None:
    """Raise ``ValueError`` with the reason if the driver would misread the address."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        if parts.netloc.rpartition("@")[2] or not parts.path:
            raise ValueError("the path of a socket begins with /, as in unix:///run/redis.sock")
    else:
        _check_place(parts)
    _check_options(parts)


def _check_place(parts: SplitResult) -> None:
    try:
        port = parts.port
    except ValueError:  # what stands there may be a part of the password
        port = 0
    if port == 0:
        raise ValueError(f"its port is not a number from 1 to 65535; {_PASSWORD_HINT}")
    if "@" in parts.path or parts.fragment:
        raise ValueError(f"it cannot be read; {_PASSWORD_HINT}")
    database = parts.path.removeprefix("/")
    if database and not (database.isascii() and database.isdecimal()):
        raise ValueError(
            f"its database is {parts.path!r}, and databases have numbers, as in /0;"
            " to keep fleets apart on one server, set store.namespace"
        )


def _check_options(parts: SplitResult) -> None:
    given = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(given.keys() - _OPTIONS - _TLS_OPTIONS)
    if unknown and "@" in parts.query:
        raise ValueError(f"it cannot be read; {_PASSWORD_HINT}")
    if unknown:
        known = _OPTIONS | _TLS_OPTIONS if parts.scheme == "rediss" else _OPTIONS
        raise ValueError(
            f"there is no option {_listed(unknown)} in an address; there are {_listed(known)}"
        )
    if parts.scheme != "rediss" and given.keys() & _TLS_OPTIONS:
        options = _listed(given.keys() & _TLS_OPTIONS)
        raise ValueError(f"{options} is for TLS; write rediss:// instead of {parts.scheme}://")
    for option in sorted(given.keys() & _FILES):
        path = given[option][0]
        if not os.access(path, os.R_OK):
            raise ValueError(f"{option} names {path!r}, which cannot be read")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def explained(error: Exception, pool: redis.ConnectionPool) -> Exception:
    """Why the first connection to an address failed, if that can be told better than by ``error``.

    A server that expects TLS hangs up on a client that does not use it. One without TLS takes the
    handshake for a command and waits for the rest of it. Neither sends a reason.
    """
    if isinstance(error, InvalidResponse):
        return WrongServer("what answers there does not speak the Redis protocol")
    if "DB index is out of range" in str(error):
        return WrongServer("it has no database of that number (DB index is out of range)")
    options = pool.connection_kwargs
    if type(error) not in {ConnectionError, TimeoutError} or "host" not in options:
        return error  # it has answered, if only with a refusal
    is_tls = issubclass(pool.connection_class, redis.SSLConnection)
    address = options["host"], options.get("port", 6379)
    if is_tls and _answers_plainly(address):
        return WrongServer("it does not use TLS; write redis:// instead of rediss://")
    if not is_tls and type(error) is ConnectionError and _answers_in_tls(address):
        return WrongServer("it expects TLS; write rediss:// instead of redis://")
    return error


def _answers_plainly(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, _PROBE_SECONDS) as sock:
            sock.sendall(b"PING\r\n")
            return sock.recv(1) in {b"+", b"-"}
    except OSError:
        return False


def _answers_in_tls(address: tuple[str, int]) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, _PROBE_SECONDS) as sock,
            context.wrap_socket(sock),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it wants a certificate of ours, say
    except OSError:
        return False


def refuse_sentinel(facts: Mapping[str, str]) -> None:
    """A Sentinel knows where servers are, and is none."""
    if facts.get("redis_mode") == "sentinel":
        raise WrongServer(
            "it is a Sentinel, which holds no data; write the address of the server that it watches"
            " (redis-cli SENTINEL GET-MASTER-ADDR-BY-NAME tells it)"
        )


def read_password(path: str) -> str:
    """The password that stands in a file, alone."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"store.password_file {path} cannot be read: {error}") from None
