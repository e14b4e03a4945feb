"""What can stand between a client and its provider: the gateway, nginx, and LiteLLM's proxy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.model_server import MODEL, PATH

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

# In an environment of its own (`make bench` makes it): it wants other versions than the tests.
_LITELLM = os.path.join(".venv-litellm", "bin", "litellm")
_START_SECONDS = 120.0
_LIMIT = 1000
_NGINX_SETTINGS = """
daemon off; worker_processes 1; pid {directory}/pid; error_log /dev/null;
events {{ worker_connections 2048; }}
http {{ access_log off; client_body_temp_path {directory}; proxy_temp_path {directory};
fastcgi_temp_path {directory}; uwsgi_temp_path {directory}; scgi_temp_path {directory};
keepalive_requests 1000000000;
upstream up {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://up/; proxy_http_version 1.1;
proxy_set_header Connection ""; proxy_buffering off; }} }} }}
"""
_LITELLM_SETTINGS = """
model_list:
  - model_name: {model}
    litellm_params:
      model: openai/{model}
      api_base: http://127.0.0.1:{upstream}/v1
      api_key: none
"""
_LITELLM_ENVIRON = {
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
}


class Place(NamedTuple):
    """Where requests are sent to, and which process takes them."""

    port: int
    path: str
    pid: int


def headway(stack: ExitStack, directory: str, upstream: int) -> Place:
    """The gateway with the SQLite store, and a limit in force."""
    port = _free_port()
    environ = {
        "HEADWAY_HOME": os.path.join(directory, "home"),
        "HEADWAY_LIMITS": f"llm/openai={_LIMIT}",
        "HEADWAY_GATEWAY_UPSTREAMS": f"openai=http://127.0.0.1:{upstream}",
    }
    command = [sys.executable, "-m", "headway", "gateway", "--port", str(port), "--log", "off"]
    return _started(stack, command, port, environ)._replace(path=f"/openai{PATH}")


def nginx(stack: ExitStack, directory: str, upstream: int) -> Place | None:
    """One worker of it; none where it is not installed."""
    program, port = shutil.which("nginx"), _free_port()
    if program is None:
        return None
    text = _NGINX_SETTINGS.format(directory=directory, upstream=upstream, port=port)
    settings = _written(directory, "nginx.conf", text)
    return _started(stack, [program, "-c", settings, "-p", directory], port, {})


def litellm(stack: ExitStack, directory: str, upstream: int) -> Place | None:
    """One worker of it; none where it is not installed."""
    if not os.access(_LITELLM, os.X_OK):
        return None
    port = _free_port()
    text = _LITELLM_SETTINGS.format(model=MODEL, upstream=upstream)
    settings = _written(directory, "litellm.yaml", text)
    listening = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    command = [os.path.abspath(_LITELLM), "--config", settings, *listening]
    return _started(stack, command, port, _LITELLM_ENVIRON)


def _written(directory: str, name: str, text: str) -> str:
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def _started(stack: ExitStack, command: list[str], port: int, environ: Mapping[str, str]) -> Place:
    process = subprocess.Popen(
        command,
        env={**os.environ, **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return Place(port, PATH, process.pid)
