"""Limits on keys that look like misspellings of keys in use."""

from __future__ import annotations

from headway import keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_LIKENESS = 0.8
# So many comparisons take some 50 ms. A warning is not worth more.
_MANY_PAIRS = 10_000


def doubts(
    patterns: Iterable[str], in_use: Collection[str], *, known: Collection[str] = ()
) -> list[str]:
    """A sentence for each limited key that nobody uses but that is nearly one in use.

    Keys in use that are ``known``, because a limit names them, are not taken for what
    another limit meant: whoever wrote both knows them apart.
    """
    idle = [pattern for pattern in patterns if not _is_used(pattern, in_use)]
    candidates = sorted(set(in_use).difference(known))
    if not idle or not candidates or len(idle) * len(candidates) > _MANY_PAIRS:
        return []
    from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

    near = {
        pattern: get_close_matches(pattern, candidates, n=3, cutoff=_LIKENESS) for pattern in idle
    }
    return [
        f"nothing uses {pattern!r}, but these are in use: {', '.join(found)}"
        for pattern, found in near.items()
        if found
    ]


def _is_used(pattern: str, in_use: Collection[str]) -> bool:
    if "*" not in pattern:
        return pattern in in_use
    return any(keys.matches(pattern, key) for key in in_use)
