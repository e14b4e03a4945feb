"""Keys that look like misspellings of keys in use, of keys with a limit, or of known names."""

from __future__ import annotations

from headway import keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_LIKENESS = 0.8
# So many comparisons take some 50 ms. A warning is not worth more.
_MANY_PAIRS = 10_000
# Providers that the transports and the gateway know by their addresses.
PROVIDERS = (
    "anthropic",
    "azure",
    "bedrock",
    "cerebras",
    "cohere",
    "dashscope",
    "deepinfra",
    "deepseek",
    "fireworks",
    "gemini",
    "github",
    "github-copilot",
    "groq",
    "huggingface",
    "hyperbolic",
    "minimax",
    "mistral",
    "moonshot",
    "nebius",
    "novita",
    "nvidia",
    "ollama",
    "openai",
    "openrouter",
    "perplexity",
    "replicate",
    "sambanova",
    "siliconflow",
    "together",
    "vercel",
    "vertex",
    "xai",
    "zai",
)
_ROOTS = ("agent", "llm", "machine")


def doubts(
    patterns: Iterable[str],
    in_use: Collection[str],
    *,
    known: Collection[str] = (),
    configured: Collection[str] = (),
) -> list[str]:
    """A sentence for each key that nobody uses but that is nearly another one.

    That is one in use, one that is ``configured``, or one with a built-in name in it. Keys in
    use that are ``known``, because a limit names them, are not taken for what
    another limit meant: whoever wrote both knows them apart.
    """
    idle = [pattern for pattern in patterns if not _is_used(pattern, in_use)]
    candidates = sorted(set(in_use).difference(known))
    if not idle or len(idle) * (len(candidates) + len(configured)) > _MANY_PAIRS:
        return []
    found = [_doubt(pattern, candidates, {*in_use, *configured}) for pattern in idle]
    return [doubt for doubt in found if doubt]


def _doubt(pattern: str, in_use: Collection[str], real: Collection[str]) -> str:
    near = _near(pattern, in_use)
    if near:
        return f"nothing uses {pattern!r}, but these are in use: {', '.join(near)}"
    if pattern in real:
        return ""
    meant = _with_known_names(pattern, real)
    likely = [other for other in _near(pattern, real) if _is_typo(pattern, other)]
    likely = [meant] if meant != pattern else likely
    return f"nothing uses {pattern!r}; did you mean {' or '.join(likely)}?" if likely else ""


def _with_known_names(pattern: str, real: Collection[str]) -> str:
    """The key with its first two names spelt as others spell them."""
    from headway.programs import AGENTS  # noqa: PLC0415 - rarely needed

    families = {"agent": AGENTS, "llm": PROVIDERS}
    first, *rest = pattern.split("/")
    first = _meant(first, [*_ROOTS, *(key.partition("/")[0] for key in real)])
    if rest and first in families:
        name, at, account = rest[0].partition("@")
        others = [
            key.split("/")[1].partition("@")[0] for key in real if key.startswith(f"{first}/")
        ]
        rest[0] = _meant(name, [*families[first], *others]) + at + account
    return "/".join([first, *rest])


def _meant(name: str, names: list[str]) -> str:
    if name in names:
        return name
    return next((other for other in _near(name, names) if _is_typo(name, other)), name)


def _near(text: str, others: Collection[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

    return get_close_matches(text, others, n=3, cutoff=_LIKENESS) if others else []


def _is_typo(text: str, other: str) -> bool:
    """Whether letters are wrong: another number, or an addition such as -2, is another name."""
    longer, shorter = (text, other) if len(text) > len(other) else (other, text)
    is_longer_name = longer.startswith(shorter) and not longer[len(shorter) :].isalpha()
    return _letters(text) != _letters(other) and not is_longer_name


def _letters(text: str) -> str:
    return "".join(letter for letter in text if letter.isalpha())


def _is_used(pattern: str, in_use: Collection[str]) -> bool:
    if "*" not in pattern:
        return pattern in in_use
    return any(keys.matches(pattern, key) for key in in_use)
