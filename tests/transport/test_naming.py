"""Every call finds its key: the provider by its base URL, the model by its path or body."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway import keys
from headway.llm import models
from headway.llm.models import in_body, in_path
from headway.llm.naming import key_of, provider_of

if TYPE_CHECKING:
    from collections.abc import Callable

_JSON = "application/json"
_CHAT = "/v1/chat/completions"
_PROFILE = "arn:aws:bedrock:eu:1:inference-profile/a.b"


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.openai.com", "openai"),
        ("eu.api.openai.com", "openai"),
        ("API.OpenAI.com.", "openai"),
        ("api.openai.com:443", "openai"),
        ("api.anthropic.com", "anthropic"),
        ("generativelanguage.googleapis.com", "gemini"),
        ("aiplatform.googleapis.com", "vertex"),
        ("us-central1-aiplatform.googleapis.com", "vertex"),
        ("aiplatform.eu.rep.googleapis.com", "vertex"),
        ("my-team.openai.azure.com", "azure"),
        ("my-team.services.ai.azure.com", "azure"),
        ("models.inference.ai.azure.com", "github"),
        ("bedrock-runtime.eu-central-1.amazonaws.com", "bedrock"),
        ("openrouter.ai", "openrouter"),
        ("api.mistral.ai", "mistral"),
        ("api.groq.com", "groq"),
        ("api.deepseek.com", "deepseek"),
        ("api.x.ai", "xai"),
        ("api.together.xyz", "together"),
        ("api.together.ai", "together"),
        ("api.fireworks.ai", "fireworks"),
        ("api.cohere.com", "cohere"),
        ("api.perplexity.ai", "perplexity"),
        ("api.cerebras.ai", "cerebras"),
        ("dashscope-intl.aliyuncs.com", "dashscope"),
    ],
)
def test_well_known_hosts_have_a_name(host: str, provider: str) -> None:
    """Regions and resources of one provider are one provider."""
    assert provider_of(host, _CHAT, {}) == provider


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("llm.example.org", "llm.example.org"),
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("[::1]:11434", "[::1]:11434"),
        ("LLM.example.org:80", "llm.example.org"),
        ("api.openai.com:8443", "api.openai.com:8443"),
        ("evilapi.openai.com", "evilapi.openai.com"),
        ("api.openai.com.example.org", "api.openai.com.example.org"),
        (".openai.azure.com", ".openai.azure.com"),
        ("", "unknown"),
    ],
)
def test_any_other_host_is_its_own_provider(host: str, provider: str) -> None:
    """Unknown servers are counted apart, each on its port."""
    assert provider_of(host, _CHAT, {}) == provider


@pytest.mark.parametrize(
    ("host", "path", "provider"),
    [
        ("gateway.example.org", "/openai/v1/responses", "first"),
        ("gateway.example.org", "/openai", "first"),
        ("gateway.example.org", "/openai/eu/v1/responses", "second"),
        ("gateway.example.org", "/openai2/v1/responses", "third"),
        ("gateway.example.org:8080", "/openai/v1/responses", "first"),
        ("gateway.example.org:9090", "/openai/v1/responses", "fourth"),
        ("api.openai.com", _CHAT, "ours"),
        ("localhost:8000", _CHAT, "local"),
        ("localhost:8001", _CHAT, "localhost:8001"),
        ("api.groq.com", _CHAT, "groq"),
    ],
)
def test_settings_win_and_the_longest_path_of_them(host: str, path: str, provider: str) -> None:
    """A path counts by whole segments; a port goes before the host alone."""
    known = {
        "https://gateway.example.org/openai/": "first",
        "gateway.example.org/openai/eu": "second",
        "Gateway.Example.org": "third",
        "http://gateway.example.org:9090": "fourth",
        "https://api.openai.com:443": "ours",
        "localhost:8000": "local",
    }

    assert provider_of(host, path, known) == provider


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", "gemini-2.5-pro"),
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini-2.5-pro"),
        ("/v1beta/models/text-embedding-004:batchEmbedContents", "text-embedding-004"),
        ("/v1beta/models/gemini-2.5-pro:countTokens", "gemini-2.5-pro"),
        ("/v1beta/tunedModels/mine-1:generateContent", "mine-1"),
        (
            "/v1/projects/p/locations/us/publishers/google/models/gemini-2.0-flash:generateContent",
            "gemini-2.0-flash",
        ),
        (
            "/v1/projects/p/locations/us/publishers/anthropic/models/claude-4@1:streamRawPredict",
            "claude-4@1",
        ),
        ("/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21", "gpt-4o"),
        ("/model/anthropic.claude-3-v1%3A0/invoke", "anthropic.claude-3-v1:0"),
        ("/model/anthropic.claude-3-v1:0/converse-stream", "anthropic.claude-3-v1:0"),
        ("/model/arn:aws:bedrock:eu:1:inference-profile/a.b/invoke", _PROFILE),
        ("/model/arn%3Aaws%3Abedrock%3Aeu%3A1%3Ainference-profile%2Fa.b/invoke", _PROFILE),
        ("/v1/chat/completions", None),
        ("/v1/models/ft:gpt-4o:acme::abc", None),
        ("/v1/models", None),
        ("", None),
    ],
)
def test_a_path_may_name_the_model(path: str, model: str | None) -> None:
    """Gemini, Vertex, Azure and Bedrock say it there."""
    assert in_path(path) == model


def test_the_top_level_name_is_the_model() -> None:
    """Neither nested names, nor texts, nor values are taken for it."""
    body = b"""{"messages": [{"role": "user", "content": "\\"model\\": \\"text", "model": "no"},
        {"input": {"model": "nested"}}, "model"], "last": "\\\\", "note": "model", "x\\"model": 1,
        "model" : "gpt-\\u0034o" , "tools": [{"properties": {"model": {"type": "string"}}}]}"""

    assert in_body(body, _JSON) == "gpt-4o"
    assert in_body(bytearray(body), _JSON) == "gpt-4o"
    assert in_body(body.replace(b'"model" :', b'"modem" :'), _JSON) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": null}',
        b'{"model": ""}',
        b'{"model": 5, "x": 1}',
        b'{"model": {"model": "x"}}',
        b'[{"model": "x"}]',
        b'"model"',
        b"{}",
        b"",
        b"model=x&stream=1",
        b'{"model"',
        b'{"model": ' + b"[" * 100_000,
        bytes(range(256)),
    ],
)
def test_a_body_without_a_model_has_none(body: bytes) -> None:
    """What is not understood is no error."""
    assert in_body(body, _JSON) is None


_TEXTS = st.one_of(
    st.sampled_from(["model", '"model"', '"model": "a"', 'x"model', "\\", '\\"', "{", "}]}", ", "]),
    st.text(max_size=8),
)
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)
    ),
    max_leaves=12,
)
_WRITERS: list[Callable[[Any], str]] = [
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    lambda value: json.dumps(value, indent=8),
    lambda value: "\n \t" * 40 + json.dumps(value, separators=(" , ", " " * 20 + ":\r\n")),
    lambda value: json.dumps(value).replace('"model"', r'"m\u006fd\u0065l"'),
]
_WRITTEN = st.sampled_from(_WRITERS)


@given(st.lists(st.tuples(_TEXTS, _VALUES), max_size=6), _WRITTEN)
@example([("a", [{"model": "x"}]), ("model", "m"), ("b", {"model": "y"})], json.dumps)
@example([("model", "m" * 5000)], json.dumps)
@example([("a", "padding"), ('x"model', "trap")], json.dumps)
@example([("model", "m")], _WRITERS[-1])
def test_the_quick_way_finds_what_a_parser_finds(
    items: list[tuple[str, Any]], write: Callable[[Any], str]
) -> None:
    """Whatever the body, and however it is written."""
    document = dict(items)
    expected = document.get("model")
    body = write(document).encode("utf-8", "surrogatepass")

    found = in_body(body, _JSON)

    assert found == (expected if isinstance(expected, str) and expected else None)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
def test_rare_encodings_are_read(encoding: str) -> None:
    """What a strict parser can read is read."""
    body = json.dumps({"input": "grüße", "model": "m"}, ensure_ascii=False).encode(encoding)

    assert in_body(body, _JSON) == "m"


@given(st.binary(max_size=200), st.sampled_from([_JSON, "multipart/form-data; boundary=b", ""]))
def test_no_body_is_an_error(body: bytes, content_type: str) -> None:
    """Any bytes at all."""
    in_body(body, content_type)
    in_body(b"--b\r\n" + body, content_type)
    in_body(b'{"' + body + b'"model":' + body, content_type)


@pytest.mark.parametrize("order", ["first", "last", "in the middle", "first of many"])
def test_a_large_body_is_not_parsed(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of megabytes is passed over, wherever the model stands."""
    parsed: list[int] = []

    def loads(text: bytes) -> object:
        parsed.append(len(text))
        return json.loads(text)

    image = {"type": "image", "data": "QUJD" * 1_000_000, "meta": {"model": "camera"}}
    content = ("messages", [{"role": "user", "content": [image]}])
    named = ("model", "gpt-4o")
    tools = ("tools", [{"name": "x", "schema": {"model": "string"}}])
    orders: dict[str, list[tuple[str, Any]]] = {
        "first": [named, ("stream", True), content, tools],
        "first of many": [named, ("messages", [{"model": "x" * 100}] * 1000)],
        "last": [content, ("tools", []), named],
        "in the middle": [content, named, tools],
    }
    body = json.dumps(dict(orders[order])).encode()
    monkeypatch.setattr(models, "json", type("Json", (), {"loads": staticmethod(loads)}))

    assert in_body(body, _JSON) == "gpt-4o"
    assert sum(parsed) < 1000


def test_a_form_may_name_the_model() -> None:
    """Audio is sent as a form; a file in it that looks like a field is none."""
    boundary = "0123abcd"
    parts = [
        ('name="model"; filename="a.wav"', b"weights"),
        ('name="file"; filename="model"', b'Content-Disposition: form-data; name="model"\r\n\r\nx'),
        ('name="prompt"', b"model"),
        ('name="model"', b"whisper-1"),
        ('name="language"', b"de"),
    ]
    body = b"".join(
        f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + value + b"\r\n"
        for head, value in parts
    )
    content_type = f"multipart/form-data; boundary={boundary}"

    assert in_body(body, content_type) == "whisper-1"
    whole = bytearray(body + f"--{boundary}--\r\n".encode())
    assert in_body(whole, content_type) == "whisper-1"
    assert in_body(body, "multipart/form-data") is None
    assert in_body(body[:-120], content_type) is None
    assert in_body(b"--b\r\n\r\n--b", "multipart/x; boundary=b") is None


@pytest.mark.parametrize(
    ("provider", "model", "key"),
    [
        ("anthropic", "claude-opus-4", "llm/anthropic/claude-opus-4"),
        ("openrouter", "anthropic/claude-opus-4", "llm/openrouter/anthropic%2Fclaude-opus-4"),
        ("openai", None, "llm/openai"),
        ("openai", "", "llm/openai"),
        ("127.0.0.1:8000", "*", "llm/127.0.0.1:8000/%2A"),
        ("", "m", "llm/unknown/m"),
    ],
)
def test_a_key_is_made_of_both(provider: str, model: str | None, key: str) -> None:
    """A model is one level, whatever it is called."""
    assert key_of(provider, model) == key


@given(st.text(max_size=40), st.text(max_size=40), st.integers(1, 200))
def test_every_name_makes_a_key(provider: str, model: str, times: int) -> None:
    """Names that are odd or far too long make no call fail, and different ones stay apart."""
    long = model * times
    key = key_of(provider, long)

    assert keys.check(key) == key
    assert key == key_of.__wrapped__(provider, long)
    assert key.count("/") == (2 if long else 1)
    assert key != key_of(provider, long + "x")


def test_long_names_that_begin_alike_stay_apart() -> None:
    """What is cut off still counts."""
    one, two = (key_of("openai", "m" * 3000 + end) for end in "ab")

    assert one != two
    assert len(one) < 200
    assert one.startswith("llm/openai/mmm")
