"""Sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import ConfigError, sizes


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (1, 1),
        (4096, 4096),
        (10**15, 10**15),
        ("1B", 1),
        ("512KB", 512_000),
        ("10MB", 10_000_000),
        ("1.5GB", 1_500_000_000),
        ("0.001KB", 1),
        (".5MB", 500_000),
        ("2TB", 2 * 10**12),
        ("1000TB", 10**15),
        ("10 MB", 10_000_000),
    ],
)
def test_a_size_means_bytes(written: object, meant: int) -> None:
    """Units are powers of ten, as disks are sold."""
    assert sizes.size(written, name="x") == meant


@pytest.mark.parametrize(
    "written",
    [
        0,
        -1,
        1.5,
        True,
        None,
        float("nan"),
        10**15 + 1,
        "",
        "4096",
        "0MB",
        "-1MB",
        "MB",
        ".MB",
        "1.2.3MB",
        "1e3MB",
        "10mb",
        "10MiB",
        "10 M B",
        "ten MB",
        "\u0663MB",
        "1001TB",
        "9" * 400 + "KB",
        "9" * 5000 + "KB",
        "nanMB",
        "infMB",
        b"10MB",
        [10],
    ],
    ids=lambda written: repr(written)[:20],
)
def test_anything_else_is_refused_by_name(written: object) -> None:
    """With the value and how to write it."""
    with pytest.raises(ConfigError) as caught:
        sizes.size(written, name="jobs.max_log")
    for word in ("jobs.max_log", repr(written)[:100], '"10MB"'):  # a long value is shortened
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0B"),
        (999, "999B"),
        (1_000, "1KB"),
        (1_234, "1.23KB"),
        (10_000_000, "10MB"),
        (1_500_000_000, "1.5GB"),
        (999_499, "999KB"),
        (999_500, "1MB"),
        (999_999, "1MB"),
        (999_999_999, "1GB"),
        (999_999_999_999, "1TB"),
        (10**15, "1000TB"),
    ],
)
def test_a_size_is_shown_as_people_write_it(number: int, text: str) -> None:
    """Three digits and the unit that suits it."""
    assert sizes.shown(number) == text


@given(st.integers(1, 10**15))
def test_what_is_shown_can_be_read_again(number: int) -> None:
    """And means nearly the same."""
    again = sizes.size(sizes.shown(number), name="x")

    assert abs(again - number) <= number * 0.005 + 1
