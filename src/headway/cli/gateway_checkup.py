"""The examination of what listens where the home's gateway does."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING

from headway.cli.diagnosis import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.config import Settings

_HOST = "127.0.0.1"
_PATIENCE_SECONDS = 2.0


OPEN_TO_LOCAL_USERS = (
    "warning: every user of this machine can send requests with the gateway's credentials;"
    " set gateway.token to prevent that"
)


def is_open_to_local_users(settings: Settings) -> bool:
    """Whether the gateway sends its own credentials for anyone on this machine."""
    return bool(settings.gateway_credentials) and settings.gateway_token is None


def findings(settings: Settings) -> Iterator[Finding]:
    """How the gateway is; nothing if nobody listens there: few have one."""
    place = f"{_HOST}:{settings.gateway_port}"
    connection = http.client.HTTPConnection(_HOST, settings.gateway_port, timeout=_PATIENCE_SECONDS)
    try:
        connection.connect()
    except OSError:
        return
    try:
        connection.request("GET", "/healthz")  # without the token: it may be anybody
        answer = connection.getresponse()
        told = json.loads(answer.read())["headway"]
        tells_all = told["status"] == "ok" and "busy" in told
        if tells_all:
            text = f"listens on {place}, requests under way: {told['busy']}"
            yield Finding("ok", "gateway", text)
            if is_open_to_local_users(settings):
                text = "every user of this machine can send requests with its credentials"
                yield Finding("warning", "gateway", text, "set gateway.token, and restart it")
        elif settings.gateway_token is not None:
            yield Finding("ok", "gateway", f"listens on {place}, for those who have its token")
        else:
            fix = "set gateway.token, or HEADWAY_GATEWAY_TOKEN, to the one that it was started with"
            yield Finding("warning", "gateway", f"that on {place} wants a token", fix)
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        fix = "let the gateway listen elsewhere: gateway.port, or headway gateway --port"
        yield Finding("warning", "gateway", f"what listens on {place} is no gateway", fix)
    finally:
        connection.close()
