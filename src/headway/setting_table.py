"""The table of settings: where each stands in the file, its variable, its default and its check."""

from __future__ import annotations

from headway import durations, sizes
from headway.errors import ConfigError
from headway.lean import MappingProxyType
from headway.tickets import check_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST = 10**12
_LAST_PORT = 65_535
_TOKEN_LENGTHS = range(16, 201)
# Stores on a server: plain, over TLS, or through a socket of this machine.
STORE_SCHEMES = ("redis://", "rediss://", "unix://")


def _duration(value: object, name: str) -> float:
    return durations.seconds(value, name=name)


def _positive_duration(value: object, name: str) -> float:
    return durations.positive_seconds(value, name=name)


def _count(value: object, name: str) -> int:
    return _whole(value, name, least=1)


def _whole(value: object, name: str, *, least: int = 0) -> int:
    return check_whole(name, value, least, _MOST)


def _size(value: object, name: str) -> int:
    return sizes.size(value, name=name)


def _unless(word: str, check: Callable[[object, str], object]) -> Callable[[object, str], object]:
    """Let a word stand for "not at all"."""

    def checked(value: object, name: str) -> object:
        try:
            return None if value == word else check(value, name)
        except ConfigError as error:
            raise ConfigError(f'{error}, or "{word}"') from None

    return checked


def _one_of(*words: str) -> Callable[[object, str], str]:
    def checked(value: object, name: str) -> str:
        if not isinstance(value, str) or value not in words:
            raise ConfigError(f"{name} must be one of {', '.join(words)}, got {value!r}")
        return value

    return checked


def _texts(value: object, name: str) -> tuple[str, ...]:
    """A list of texts; a variable, which has no lists, separates them by spaces."""
    listed = value.split() if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(text, str) and text for text in listed):
        raise ConfigError(f'{name} must be a list of texts: ["ntfy://my-topic"], got {value!r}')
    return tuple(listed)


def _urls(value: object, name: str) -> tuple[str, ...]:
    listed = value.split() if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(u, str) and "://" in u for u in listed):
        # Not shown: people mistype secrets as well.
        raise ConfigError(f'{name} must be a list of URLs such as "ntfy://my-topic"')
    return tuple(listed)


def _events(value: object, name: str) -> tuple[str, ...]:
    return check_events(_texts(value, name), name)


def check_events(events: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Those, if a job can have them all."""
    for event in events:
        if event not in JOB_EVENTS:
            known = ", ".join(JOB_EVENTS)
            raise ConfigError(f"{name}: {event!r} is no event; known are {known}")
    return events


def _token(value: object, name: str) -> str:
    if (
        isinstance(value, str)
        and len(value) in _TOKEN_LENGTHS
        and value.isalnum()
        and value.isascii()
    ):
        return value
    raise ConfigError(
        f"{name} must be a text of {_TOKEN_LENGTHS[0]} to {_TOKEN_LENGTHS[-1]} letters and digits"
    )


def _store_url(value: object, name: str) -> str:
    if isinstance(value, str) and value.startswith(STORE_SCHEMES):
        return value
    # Not shown: it may have a password in it.
    raise ConfigError(f"{name} must be an address like redis://host:6379 or rediss://host:6379")


def _namespace(value: object, name: str) -> str:
    if isinstance(value, str) and value and not set(value) & set("{} \n"):
        return value
    raise ConfigError(f"{name} must be a name without blanks and braces, got {value!r}")


def _text(value: object, name: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise ConfigError(f"{name} must be a text that is not empty")


def _command(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be a command for the shell, as one text")
    return value


def _table(
    check: Callable[[object, str], Mapping[str, str]],
) -> Callable[[object, str], Mapping[str, str]]:
    """Names and what they stand for; few have any, and then nothing is loaded to check them."""

    def checked(value: object, name: str) -> Mapping[str, str]:
        return MappingProxyType({} if value == {} else check(value, name))

    return checked


def _providers(value: object, name: str) -> Mapping[str, str]:
    from headway import provider_names  # noqa: PLC0415

    return provider_names.checked(value, name)


def _upstreams(value: object, name: str) -> Mapping[str, str]:
    from headway import upstream_names  # noqa: PLC0415

    return upstream_names.checked_upstreams(value, name)


def _credentials(value: object, name: str) -> Mapping[str, str]:
    from headway import upstream_names  # noqa: PLC0415

    return upstream_names.checked_credentials(value, name)


def _port(value: object, name: str) -> int:
    return check_whole(name, value, 1, _LAST_PORT)


class Setting:
    """One setting: its place in the file, its variable, its default and its check."""

    __slots__ = ("check", "default", "field", "is_secret", "variable")

    def __init__(
        self,
        field: str,
        variable: str,
        default: object,
        check: Callable[[object, str], object],
        *,
        is_secret: bool = False,
    ) -> None:
        self.field, self.variable, self.default, self.check = field, variable, default, check
        self.is_secret = is_secret


# What people can be told of a job.
JOB_EVENTS = (
    "queued",
    "started",
    "finished",
    "failed",
    "interrupted",
    "expired",
    "cancelled",
    "killed",
    "warned",
    "empty",
)
_off_or_duration = _unless("off", _positive_duration)
_off_or_count = _unless("off", _count)
_off_or_size = _unless("off", _size)
_never_or_duration = _unless("never", _positive_duration)
_always_or_duration = _unless("always", _positive_duration)

SETTINGS = {
    "queue.boost": Setting("boost_seconds", "HEADWAY_QUEUE_BOOST", "10m", _positive_duration),
    "queue.max_waiting": Setting("max_waiting", "HEADWAY_QUEUE_MAX_WAITING", 100_000, _count),
    "queue.max_jobs": Setting("max_jobs", "HEADWAY_QUEUE_MAX_JOBS", 10_000, _count),
    "cooldown.max_wait": Setting(
        "max_cooling_seconds", "HEADWAY_COOLDOWN_MAX_WAIT", "10m", _positive_duration
    ),
    "llm.providers": Setting("providers", "HEADWAY_LLM_PROVIDERS", {}, _table(_providers)),
    "gateway.port": Setting("gateway_port", "HEADWAY_GATEWAY_PORT", 8642, _port),
    "gateway.upstreams": Setting(
        "gateway_upstreams", "HEADWAY_GATEWAY_UPSTREAMS", {}, _table(_upstreams)
    ),
    "gateway.credentials": Setting(
        "gateway_credentials", "HEADWAY_GATEWAY_CREDENTIALS", {}, _table(_credentials)
    ),
    "gateway.exempt": Setting(
        "gateway_exempt",
        "HEADWAY_GATEWAY_EXEMPT",
        "count_tokens input_tokens :countTokens models",
        _texts,
    ),
    "gateway.queue_timeout": Setting(
        "gateway_timeout_seconds", "HEADWAY_GATEWAY_QUEUE_TIMEOUT", "off", _off_or_duration
    ),
    "gateway.max_body": Setting(
        "gateway_max_body_bytes", "HEADWAY_GATEWAY_MAX_BODY", "64MB", _size
    ),
    "gateway.max_bodies": Setting(
        "gateway_max_bodies_bytes", "HEADWAY_GATEWAY_MAX_BODIES", "512MB", _size
    ),
    "gateway.client_patience": Setting(
        "gateway_patience_seconds", "HEADWAY_GATEWAY_CLIENT_PATIENCE", "60s", _positive_duration
    ),
    "gateway.upstream_patience": Setting(
        "gateway_upstream_patience_seconds",
        "HEADWAY_GATEWAY_UPSTREAM_PATIENCE",
        "15m",
        _positive_duration,
    ),
    "gateway.token": Setting(
        "gateway_token", "HEADWAY_GATEWAY_TOKEN", "off", _unless("off", _token), is_secret=True
    ),
    "store.url": Setting(
        "store_url", "HEADWAY_STORE_URL", "home", _unless("home", _store_url), is_secret=True
    ),
    "store.namespace": Setting("namespace", "HEADWAY_STORE_NAMESPACE", "default", _namespace),
    "store.lease_seconds": Setting(
        "lease_seconds", "HEADWAY_STORE_LEASE_SECONDS", 15, _positive_duration
    ),
    "store.eviction": Setting(
        "store_eviction", "HEADWAY_STORE_EVICTION", "refuse", _one_of("refuse", "allow")
    ),
    "store.password": Setting(
        "store_password", "HEADWAY_STORE_PASSWORD", "off", _unless("off", _text), is_secret=True
    ),
    "store.password_file": Setting(
        "store_password_file", "HEADWAY_STORE_PASSWORD_FILE", "off", _unless("off", _text)
    ),
    "store.timeout": Setting(
        "store_timeout_seconds", "HEADWAY_STORE_TIMEOUT", "5s", _positive_duration
    ),
    "jobs.approve": Setting(
        "approve", "HEADWAY_JOBS_APPROVE", "never", _one_of("never", "retries", "always")
    ),
    "jobs.expire": Setting("expire_seconds", "HEADWAY_JOBS_EXPIRE", "24h", _never_or_duration),
    "jobs.retries": Setting("retries", "HEADWAY_JOBS_RETRIES", 0, _whole),
    "jobs.retry_delay": Setting(
        "retry_delay_seconds", "HEADWAY_JOBS_RETRY_DELAY", "10s", _duration
    ),
    "jobs.grace": Setting("grace_seconds", "HEADWAY_JOBS_GRACE", "10s", _positive_duration),
    "jobs.retry_within": Setting(
        "retry_within_seconds", "HEADWAY_JOBS_RETRY_WITHIN", "7d", _always_or_duration
    ),
    "jobs.keep": Setting("keep_seconds", "HEADWAY_JOBS_KEEP", "30d", _never_or_duration),
    "jobs.keep_count": Setting("keep_count", "HEADWAY_JOBS_KEEP_COUNT", 1000, _count),
    "jobs.max_log": Setting("max_log_bytes", "HEADWAY_JOBS_MAX_LOG", "10MB", _size),
    "jobs.notify": Setting("notify", "HEADWAY_JOBS_NOTIFY", [], _urls, is_secret=True),
    "jobs.notify_on": Setting(
        "notify_on",
        "HEADWAY_JOBS_NOTIFY_ON",
        " ".join(event for event in JOB_EVENTS if event != "queued"),
        _events,
    ),
    "jobs.notify_command": Setting(
        "notify_command",
        "HEADWAY_JOBS_NOTIFY_COMMAND",
        "off",
        _unless("off", _command),
        is_secret=True,
    ),
    "watchdog.max_runtime": Setting(
        "max_runtime_seconds", "HEADWAY_WATCHDOG_MAX_RUNTIME", "off", _off_or_duration
    ),
    "watchdog.idle_warn": Setting(
        "idle_warn_seconds", "HEADWAY_WATCHDOG_IDLE_WARN", "off", _off_or_duration
    ),
    "watchdog.idle_kill": Setting(
        "idle_kill_seconds", "HEADWAY_WATCHDOG_IDLE_KILL", "off", _off_or_duration
    ),
    "watchdog.max_output": Setting(
        "max_output_bytes", "HEADWAY_WATCHDOG_MAX_OUTPUT", "off", _off_or_size
    ),
    "watchdog.max_tool_calls": Setting(
        "max_tool_calls", "HEADWAY_WATCHDOG_MAX_TOOL_CALLS", "off", _off_or_count
    ),
    "watchdog.max_repeated_calls": Setting(
        "max_repeated_calls", "HEADWAY_WATCHDOG_MAX_REPEATED_CALLS", "off", _off_or_count
    ),
    "watchdog.min_free_memory": Setting(
        "min_free_memory_bytes", "HEADWAY_WATCHDOG_MIN_FREE_MEMORY", "off", _off_or_size
    ),
}
# Each of the first would never act, because the second always acts before it.
_SHADOWS = (
    ("watchdog.idle_kill", "watchdog.max_runtime"),
    ("watchdog.idle_warn", "watchdog.max_runtime"),
    ("watchdog.idle_warn", "watchdog.idle_kill"),
)
# Variables that are no settings: where the home is, limits offered to it, and what a
# surrounding lease passes on to the processes it guards.
VARIABLES = (
    "HEADWAY_HOME",
    "HEADWAY_LIMITS",
    "HEADWAY_LEASE",
    "HEADWAY_TOKEN",
    "HEADWAY_TASK",
    "HEADWAY_JOB",
    "HEADWAY_ATTEMPT",
    "HEADWAY_TRUST_HOME",
)


def shadowed(values: Mapping[str, object]) -> list[str]:
    """Timers that can never run out because another one always does before, as problems."""
    problems = []
    for later, earlier in _SHADOWS:
        slow, fast = (values.get(SETTINGS[name].field) for name in (later, earlier))
        if isinstance(slow, float) and isinstance(fast, float) and fast <= slow:
            problems.append(
                f"{later} ({slow:g} s) can never act, because {earlier} ({fast:g} s) is not longer;"
                " make the second longer, or leave one of them off"
            )
    return problems
