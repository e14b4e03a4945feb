"""Certificates for servers of the tests' own."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def certified(directory: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 that vouches for itself, and a server's side of it."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    cert, key = directory / "cert.pem", directory / "key.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -keyout {key} -out {cert}"
    names = ["-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*words.split(), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context
