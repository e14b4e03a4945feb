"""A refusal is read as its provider meant it, and nothing that a server sends is an error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.llm.advice import Advice, advice_of

_DAY = 86400.0
_NOW = datetime(2025, 4, 30, 13, 31, 10, tzinfo=UTC)
_DATE = "Wed, 30 Apr 2025 13:31:10 GMT"


def _advice(status: int = 429, *, now: datetime = _NOW, **headers: str) -> Advice | None:
    """The advice of headers that are written with underscores here."""
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return advice_of(status, told, now.timestamp())


def _seconds(status: int = 429, *, now: datetime = _NOW, **headers: str) -> float | None:
    advice = _advice(status, now=now, **headers)
    assert advice is not None
    return advice.seconds


# What providers send with a refusal: its status, its headers, and what they mean.
_SAMPLES: dict[str, tuple[int, dict[str, str], float | None, bool]] = {
    "anthropic, input tokens spent": (
        429,
        {
            "anthropic-ratelimit-input-tokens-limit": "100000",
            "anthropic-ratelimit-input-tokens-remaining": "0",
            "anthropic-ratelimit-input-tokens-reset": "2025-04-30T13:32:11Z",
            "anthropic-ratelimit-output-tokens-limit": "20000",
            "anthropic-ratelimit-output-tokens-remaining": "20000",
            "anthropic-ratelimit-output-tokens-reset": "2025-04-30T13:31:10Z",
            "anthropic-ratelimit-requests-limit": "1000",
            "anthropic-ratelimit-requests-remaining": "1000",
            "anthropic-ratelimit-requests-reset": "2025-04-30T13:31:10Z",
            "date": _DATE,
            "retry-after": "4",
            "x-should-retry": "true",
        },
        4.0,
        False,
    ),
    "anthropic, without retry-after": (
        429,
        {
            "anthropic-ratelimit-requests-limit": "5",
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2025-04-30T13:31:41Z",
            "anthropic-ratelimit-tokens-limit": "25000",
            "anthropic-ratelimit-tokens-remaining": "16000",
            "anthropic-ratelimit-tokens-reset": "2025-04-30T13:31:11Z",
            "date": _DATE,
        },
        31.0,
        False,
    ),
    "anthropic, two limits spent": (
        429,
        {
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2025-04-30T13:31:20Z",
            "anthropic-ratelimit-output-tokens-remaining": "0",
            "anthropic-ratelimit-output-tokens-reset": "2025-04-30T13:31:50.5Z",
        },
        40.5,
        False,
    ),
    "anthropic, five hours of a subscription spent": (
        429,
        {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-5h-status": "rejected",
            "anthropic-ratelimit-unified-5h-reset": "1746033070",
            "anthropic-ratelimit-unified-5h-utilization": "1.08",
            "anthropic-ratelimit-unified-7d-status": "allowed_warning",
            "anthropic-ratelimit-unified-7d-reset": "1746500000",
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
            "anthropic-ratelimit-unified-reset": "1746033070",
            "anthropic-ratelimit-unified-overage-status": "rejected",
            "anthropic-ratelimit-unified-overage-disabled-reason": "org_level_disabled",
            "retry-after": "13262",
            "date": _DATE,
        },
        13262.0,
        True,
    ),
    "anthropic, both windows of a subscription spent": (
        429,
        {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-5h-status": "rejected",
            "anthropic-ratelimit-unified-5h-reset": "1746020170",
            "anthropic-ratelimit-unified-7d-status": "rejected",
            "anthropic-ratelimit-unified-7d-reset": "1746106270",
            "anthropic-ratelimit-unified-reset": "1746106270",
        },
        86400.0,
        True,
    ),
    "anthropic, a subscription's share of one model spent": (
        429,
        {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-5h-status": "allowed",
            "anthropic-ratelimit-unified-5h-reset": "1746033070",
            "anthropic-ratelimit-unified-7d_opus-status": "rejected",
            "anthropic-ratelimit-unified-7d_opus-reset": "1746023470",
            "anthropic-ratelimit-unified-representative-claim": "seven_day_opus",
        },
        3600.0,
        False,
    ),
    "anthropic, a subscription without windows": (
        429,
        {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-reset": "1746019930",
            "anthropic-ratelimit-unified-representative-claim": "seven_day",
        },
        60.0,
        True,
    ),
    "anthropic, a subscription's share of one model, without windows": (
        429,
        {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-reset": "1746019930",
            "anthropic-ratelimit-unified-representative-claim": "seven_day_sonnet",
        },
        60.0,
        False,
    ),
    "anthropic, only when the subscription is whole again": (
        429,
        {"anthropic-ratelimit-unified-reset": "2025-04-30T13:32:10Z"},
        60.0,
        True,
    ),
    "anthropic, a moment's throttle of a subscription that has room": (
        429,
        {
            "anthropic-ratelimit-unified-status": "allowed",
            "anthropic-ratelimit-unified-5h-status": "allowed",
            "anthropic-ratelimit-unified-5h-reset": "1746033070",
            "anthropic-ratelimit-unified-reset": "1746033070",
        },
        None,
        False,
    ),
    "anthropic, overloaded": (529, {"x-should-retry": "true", "date": _DATE}, None, True),
    "openai, tokens spent": (
        429,
        {
            "retry-after": "7",
            "retry-after-ms": "6418",
            "x-ratelimit-limit-requests": "10000",
            "x-ratelimit-limit-tokens": "30000",
            "x-ratelimit-remaining-requests": "9999",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-requests": "6ms",
            "x-ratelimit-reset-tokens": "1m6.418s",
        },
        6.418,
        False,
    ),
    "openai, without retry-after": (
        429,
        {
            "x-ratelimit-remaining-requests": "59",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        360.0,
        False,
    ),
    "openai, nothing said to be spent": (
        429,
        {
            "x-ratelimit-remaining-requests": "4999",
            "x-ratelimit-remaining-tokens": "159976",
            "x-ratelimit-remaining-tokens_usage_based": "159976",
            "x-ratelimit-reset-requests": "12ms",
            "x-ratelimit-reset-tokens": "9ms",
            "x-ratelimit-reset-tokens_usage_based": "9ms",
        },
        0.009,
        False,
    ),
    "openai, no quota left": (429, {"x-request-id": "req_1", "date": _DATE}, None, False),
    "azure, in seconds": (
        429,
        {"x-rate-limit-reset-tokens": "55", "x-ratelimit-remaining-requests": "119"},
        55.0,
        False,
    ),
    "azure, provisioned": (
        429,
        {"retry-after-ms": "1337", "retry-after": "2", "x-ratelimit-reset-tokens": "60"},
        1.337,
        False,
    ),
    "azure, with a limit that it does not know": (
        429,
        {
            "x-ratelimit-limit-tokens": "-1",
            "x-ratelimit-remaining-tokens": "-1",
            "x-ratelimit-reset-tokens": "0",
        },
        None,
        False,
    ),
    "azure, of its own kind": (503, {"x-ms-retry-after-ms": "250"}, 0.25, False),
    "groq, requests of the day spent": (
        429,
        {
            "retry-after": "2",
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "2m59.56s",
            "x-ratelimit-remaining-tokens": "17997",
            "x-ratelimit-reset-tokens": "7.66s",
        },
        2.0,
        False,
    ),
    "mistral, a minute": (
        429,
        {
            "ratelimitbysize-limit": "500000",
            "ratelimitbysize-remaining": "0",
            "ratelimitbysize-reset": "26",
        },
        26.0,
        False,
    ),
    "mistral, of today": (
        429,
        {"x-ratelimit-remaining-req-minute": "0", "x-ratelimit-remaining-tokens-minute": "49"},
        None,
        False,
    ),
    "cerebras": (
        429,
        {
            "x-ratelimit-remaining-requests-day": "120",
            "x-ratelimit-reset-requests-day": "33011.382867",
            "x-ratelimit-remaining-tokens-minute": "0",
            "x-ratelimit-reset-tokens-minute": "11.382867",
        },
        11.382867,
        False,
    ),
    "openrouter, in milliseconds since 1970": (
        429,
        {
            "X-RateLimit-Limit": "20",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": "1746019920000",
        },
        50.0,
        False,
    ),
    "github, in seconds since 1970": (
        429,
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1746019900"},
        30.0,
        False,
    ),
    "together": (429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}, 1.0, False),
    "a gateway by the draft standard": (
        429,
        {"RateLimit-Limit": "100", "RateLimit-Remaining": "0", "RateLimit-Reset": "6"},
        6.0,
        False,
    ),
    "gemini, which says it in the body": (
        429,
        {"content-type": "application/json; charset=UTF-8", "date": _DATE, "alt-svc": "h3"},
        None,
        False,
    ),
    "bedrock, throttled": (
        429,
        {"date": "Wed, 30 Apr 2025 13:31:10 GMT", "x-amzn-errortype": "ThrottlingException"},
        None,
        False,
    ),
    "a proxy that is down for a while": (503, {"Retry-After": "120"}, 120.0, False),
    "a proxy with a date": (
        503,
        {"Retry-After": "Wed, 30 Apr 2025 13:33:10 GMT", "Date": _DATE},
        120.0,
        False,
    ),
}


@pytest.mark.parametrize("sample", _SAMPLES.values(), ids=_SAMPLES)
def test_what_providers_send(sample: tuple[int, dict[str, str], float | None, bool]) -> None:
    """How long, and of whom it speaks, however the names are written."""
    status, headers, seconds, whole = sample

    for spell in (str, str.lower, str.upper, str.title):
        told = {spell(name): value for name, value in headers.items()}
        advice = advice_of(status, told, _NOW.timestamp())

        assert advice is not None
        assert advice.seconds == (None if seconds is None else pytest.approx(seconds))
        assert advice.whole_provider is whole
        assert advice.reason.startswith(f"{status}, ")


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 403, 404, 408, 500, 502, 504])
def test_only_refusals_advise(status: int) -> None:
    """Others mean something else by the same headers."""
    assert _advice(status, retry_after="20", x_ratelimit_reset="5") is None


def test_a_503_without_advice_is_a_bad_moment() -> None:
    """Also if it has the headers that come with every answer."""
    assert _advice(503) is None
    assert _advice(503, retry_after="soon") is None
    assert (
        _advice(503, x_ratelimit_reset_requests="12ms", x_ratelimit_remaining_requests="9") is None
    )
    assert _seconds(503, x_ratelimit_reset="3", x_ratelimit_remaining="0") == 3


def test_an_overload_is_everyones() -> None:
    """Of a 529 the whole provider is meant, with a time and without."""
    assert _advice(529) == Advice(None, True, "529, without a time")
    assert _advice(529, retry_after="3") == Advice(3.0, True, "529, retry-after 3 s")
    assert _advice(529, x_ratelimit_reset="12ms") == Advice(None, True, "529, without a time")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"retry-after": "20"}, "429, retry-after 20 s"),
        ({"retry-after": "0.25"}, "429, retry-after 250 ms"),
        ({"retry-after": "13262"}, "429, retry-after 221 min"),
        ({"Retry-After-Ms": "1500"}, "429, retry-after-ms 1.5 s"),
        ({"x-ratelimit-reset-tokens": "6m0s"}, "429, x-ratelimit-reset-tokens 360 s"),
        ({}, "429, without a time"),
    ],
)
def test_the_reason_is_for_people(headers: dict[str, str], reason: str) -> None:
    """It names the header, so that it can be looked up."""
    advice = advice_of(429, headers, _NOW.timestamp())

    assert advice is not None
    assert advice.reason == reason


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("0", 0.0),
        ("1.5", 1.5),
        (" 20 ", 20.0),
        ("20s", 20.0),
        ("1h2m3.5s", 3723.5),
        ("20, 20", 20.0),
        ("5, 20", 20.0),
        ("nonsense, 20", 20.0),
        ("Wed, 30 Apr 2025 13:31:30 GMT", 20.0),
        ("Wednesday, 30-Apr-25 13:31:30 GMT", 20.0),
        ("Wed Apr 30 13:31:30 2025", 20.0),
        ("Wed, 30 Apr 2025 13:31:30 GMT, Wed, 30 Apr 2025 13:31:40 GMT", 30.0),
        ("Wed, 30 Apr 2025 13:31:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("2025-04-30T13:31:30Z", 20.0),
        ("2025-04-30T15:31:30.25+02:00", 20.25),
        ("1746019890", 20.0),
        ("315360000", 7 * _DAY),
        ("604801", 7 * _DAY),
        ("Wed, 30 Apr 2035 13:31:10 GMT", 7 * _DAY),
        ("9999999999", 7 * _DAY),
    ],
)
def test_retry_after_is_read(retry_after: str, seconds: float) -> None:
    """Seconds, dates of any kind, and the same twice."""
    assert _seconds(retry_after=retry_after) == pytest.approx(seconds)
    assert _seconds(retry_after=retry_after, x_ratelimit_reset="77") == pytest.approx(seconds)


_NONSENSE = [
    "",
    " ",
    "-1",
    "-20",
    "nan",
    "NaN",
    "inf",
    "1e999",
    "soon",
    "null",
    ",",
    "20 apples",
    "٣",
    "9" * 400,
    "9" * 16,
    "Wed, 99 Foo 2025 13:31:30 GMT",
    "Wed, 30 Apr 2025",
    "Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)",
    "0001-01-01T99:00:00Z",
    "6m0",
    "s",
    "\x00",
]


@pytest.mark.parametrize("nonsense", _NONSENSE)
def test_nonsense_is_no_advice(nonsense: str) -> None:
    """And what else is sensible counts instead."""
    assert _seconds(retry_after=nonsense) is None
    assert _seconds(retry_after=nonsense, x_ratelimit_reset=nonsense) is None
    assert _seconds(retry_after_ms=nonsense, retry_after="4") == 4
    assert _seconds(retry_after=nonsense, x_ratelimit_reset="77") == 77
    assert _seconds(x_ratelimit_reset_tokens=nonsense, x_ratelimit_reset_requests="3") == 3
    assert _seconds(date=nonsense, retry_after="Wed, 30 Apr 2025 13:31:30 GMT") == 20


def test_what_was_due_in_the_past_does_not_hide_what_is_due() -> None:
    """Without a word about what is spent, the next reset that is still ahead counts."""
    assert _seconds(x_ratelimit_reset_a="0", x_ratelimit_reset_b="9s") == 9
    assert _seconds(x_ratelimit_reset_a="0", x_ratelimit_reset_b="2015-10-21T07:28:00Z") == 0
    assert _seconds(x_ratelimit_reset="0", x_ratelimit_remaining="0") == 0


_CLOCKS = st.floats(-3 * 365 * _DAY, 3 * 365 * _DAY).map(lambda by: _NOW + timedelta(seconds=by))


@given(_CLOCKS, st.integers(0, int(7 * _DAY)))
def test_the_clocks_of_both_sides_may_differ(now: datetime, seconds: int) -> None:
    """With a ``Date``, a moment is read by the clock that it comes from."""
    then = format_datetime(_NOW + timedelta(seconds=seconds), usegmt=True)
    epoch = str(int(_NOW.timestamp()) + seconds)

    assert _seconds(now=now, date=_DATE, retry_after=then) == seconds
    assert _seconds(now=now, date=_DATE, x_ratelimit_reset=epoch) == seconds


def test_a_server_whose_date_is_long_ago_is_read_by_our_clock() -> None:
    """A broken clock there writes 1970 into each answer."""
    date = "Thu, 01 Jan 1970 00:00:07 GMT"

    assert _seconds(date=date, x_ratelimit_reset="1746019890") == 20


@given(st.floats(0, 30 * _DAY), st.sampled_from(["s", "ms", "plain", "go", "epoch", "epoch-ms"]))
def test_all_spellings_of_a_time_mean_the_same(seconds: float, spelling: str) -> None:
    """Never more than seven days."""
    now = _NOW.timestamp()
    hours, rest = divmod(seconds, 3600)
    written = {
        "s": f"{seconds:.6f}s",
        "ms": f"{seconds * 1000:.3f}ms",
        "plain": f"{seconds:.6f}",
        "go": f"{hours:.0f}h{rest // 60:.0f}m{rest % 60:.6f}s",
        "epoch": f"{now + seconds:.6f}",
        "epoch-ms": f"{(now + seconds) * 1000:.3f}",
    }

    found = _seconds(x_ratelimit_reset_tokens=written[spelling], x_ratelimit_remaining_tokens="0")

    assert found == pytest.approx(min(seconds, 7 * _DAY), abs=1e-3)


_NAMES = st.sampled_from(
    sorted({name for sample in _SAMPLES.values() for name in sample[1]} | {"retry-after", "date"})
)
_SENT = sorted({value for sample in _SAMPLES.values() for value in sample[1].values()})
_TOLD = st.one_of(
    st.sampled_from(_SENT + _NONSENSE),
    st.text(max_size=30),
    st.text("0123456789.,:smhdTZ-+ GMTWed", max_size=30),
    st.dates().map(str),
    st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat()),
    st.datetimes(timezones=st.just(UTC)).map(lambda at: format_datetime(at, usegmt=True)),
    st.lists(st.sampled_from(_SENT), max_size=3).map(", ".join),
)


@given(
    st.sampled_from([200, 429, 503, 529]),
    st.dictionaries(st.one_of(_NAMES, st.text(max_size=12)), _TOLD, max_size=8),
    st.floats(0, 4e9),
)
def test_nothing_that_a_server_sends_is_an_error(
    status: int, headers: dict[str, str], now: float
) -> None:
    """Any headers give a time between nothing and seven days, or none."""
    advice = advice_of(status, headers, now)

    if advice is None:
        assert status in {200, 503}
    else:
        assert status != 200
        assert advice.seconds is None or 0 <= advice.seconds <= 7 * _DAY
        assert advice.seconds is not None or status != 503
        assert advice.whole_provider or status != 529
        assert advice.whole_provider <= (status != 503)
        assert advice.reason.isprintable()
