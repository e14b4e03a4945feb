"""Which key a call counts on, and which provider is behind its base URL."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headway import base_urls
from headway.errors import ConfigError
from headway.keys import llm_key
from headway.lean import blake2b

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOSTS = {
    "ai-gateway.vercel.sh": "vercel",
    "aiplatform.googleapis.com": "vertex",
    "api.anthropic.com": "anthropic",
    "api.cerebras.ai": "cerebras",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
    "api.deepinfra.com": "deepinfra",
    "api.deepseek.com": "deepseek",
    "api.fireworks.ai": "fireworks",
    "api.githubcopilot.com": "github-copilot",
    "api.groq.com": "groq",
    "api.hyperbolic.xyz": "hyperbolic",
    "api.minimax.io": "minimax",
    "api.minimaxi.com": "minimax",
    "api.mistral.ai": "mistral",
    "api.moonshot.ai": "moonshot",
    "api.moonshot.cn": "moonshot",
    "api.novita.ai": "novita",
    "api.openai.com": "openai",
    "api.perplexity.ai": "perplexity",
    "api.replicate.com": "replicate",
    "api.sambanova.ai": "sambanova",
    "api.siliconflow.cn": "siliconflow",
    "api.siliconflow.com": "siliconflow",
    "api.studio.nebius.ai": "nebius",
    "api.studio.nebius.com": "nebius",
    "api.tokenfactory.nebius.com": "nebius",
    "api.together.ai": "together",
    "api.together.xyz": "together",
    "api.x.ai": "xai",
    "api.z.ai": "zai",
    "codestral.mistral.ai": "mistral",
    "dashscope-intl.aliyuncs.com": "dashscope",
    "dashscope-us.aliyuncs.com": "dashscope",
    "dashscope.aliyuncs.com": "dashscope",
    "generativelanguage.googleapis.com": "gemini",
    "integrate.api.nvidia.com": "nvidia",
    "models.github.ai": "github",
    "models.inference.ai.azure.com": "github",
    "ollama.com": "ollama",
    "open.bigmodel.cn": "zai",
    "openrouter.ai": "openrouter",
    "router.huggingface.co": "huggingface",
}
# A host that begins and ends like this, with whatever in between, for regions and resources.
_FAMILIES = (
    ("", ".api.openai.com", "openai"),
    ("", "-aiplatform.googleapis.com", "vertex"),
    ("", ".aiplatform.googleapis.com", "vertex"),
    ("aiplatform.", ".rep.googleapis.com", "vertex"),
    ("", ".openai.azure.com", "azure"),
    ("", ".openai.azure.us", "azure"),
    ("", ".services.ai.azure.com", "azure"),
    ("", ".models.ai.azure.com", "azure"),
    ("", ".cognitiveservices.azure.com", "azure"),
    ("bedrock-runtime.", ".amazonaws.com", "bedrock"),
    ("bedrock-runtime.", ".amazonaws.com.cn", "bedrock"),
    ("bedrock-runtime-fips.", ".amazonaws.com", "bedrock"),
)
_KEPT_CHARACTERS = 60
_UNKNOWN = "unknown"


def provider_of(url_host: str, path: str, known: Mapping[str, str]) -> str:
    """The provider behind a host (with its port, if it has an unusual one) and a path.

    What is ``known`` from the settings wins, the longest path first, and a host with a port
    before the host alone; then the well-known hosts. Any other host is a provider itself.
    """
    host = _plain_host(url_host)
    if known:
        named = _longest(host, path, _plain(tuple(known.items())))
        if named is not None:
            return named
    return _well_known(host) or host or _UNKNOWN


@lru_cache(maxsize=1024)
def key_of(provider: str, model: str | None) -> str:
    """The key of a model. A name that no key can have is cut, never an error."""
    model = model or None
    try:
        return llm_key(provider or _UNKNOWN, model)
    except ConfigError:  # too long
        return llm_key(_short(provider or _UNKNOWN), model and _short(model))


def _longest(host: str, path: str, known: Mapping[str, str]) -> str | None:
    parts = [part for part in path.partition("?")[0].split("/") if part]
    for place in dict.fromkeys((host, base_urls.without_port(host))):
        for end in range(len(parts), -1, -1):
            named = known.get("/".join((place, *parts[:end])))
            if named is not None:
                return named
    return None


@lru_cache(maxsize=1024)
def _plain_host(url_host: str) -> str:
    return base_urls.plain_host(url_host) or url_host


@lru_cache(maxsize=64)
def _plain(known: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {base_urls.plain(base) or base: name for base, name in known}


@lru_cache(maxsize=1024)
def _well_known(host: str) -> str | None:
    name = _HOSTS.get(host)
    if name is not None:
        return name
    for begin, end, family in _FAMILIES:
        if host.startswith(begin) and host.endswith(end) and len(host) > len(begin) + len(end):
            return family
    return None


def _short(name: str) -> str:
    """The beginning, and a mark that tells it from others that begin like this."""
    if len(name) <= _KEPT_CHARACTERS:
        return name
    mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{name[:_KEPT_CHARACTERS]}~{mark}"
