"""Certificates for tests, made by the `openssl` command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A certificate and its key; `both` holds the key, then the certificate."""

    certificate: Path
    key: Path
    both: Path

    def server_context(self, *, clients: Path | None = None) -> ssl.SSLContext:
        """For a server that is this, and asks for certificates of `clients` if that is given."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients)
        return context


class Authority:
    """Issues certificates, into files of its directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self._directory = directory
        self.certificate, self._key = directory / f"{name}.pem", directory / f"{name}.key"
        subject = ("-subj", f"/CN={name}", "-days", "2")
        self._openssl("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate, *subject)

    def issue(
        self, name: str, *, hosts: str = "DNS:localhost,IP:127.0.0.1", expired: bool = False
    ) -> Identity:
        """A certificate for `hosts`, as openssl writes alternative names; its own name is `name`."""
        certificate, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        both = self._directory / f"{name}-both.pem"
        issuer = ("-CA", self.certificate, "-CAkey", self._key)
        extensions = ("-addext", f"subjectAltName={hosts}", "-addext", "basicConstraints=critical,CA:false")
        subject = ("-subj", f"/CN={name}", "-days", "2")
        self._openssl(
            *("req", "-x509", *_NEW_KEY, *issuer, *subject, *extensions),
            *("-keyout", key, "-out", certificate),
        )
        if expired:
            request = certificate.with_suffix(".request")
            self._openssl("req", "-new", "-key", key, "-out", request, "-subj", f"/CN={name}", *extensions)
            again = ("-days", "-1", "-copy_extensions", "copy")
            self._openssl("x509", "-req", "-in", request, *issuer, *again, "-out", certificate)
        both.write_text(key.read_text() + certificate.read_text())
        return Identity(certificate=certificate, key=key, both=both)

    def encrypted(self, key: Path, password: str) -> Path:
        """A copy of the key that only the password opens."""
        encrypted = key.with_suffix(".encrypted")
        self._openssl("pkey", "-in", key, "-aes256", "-passout", f"pass:{password}", "-out", encrypted)
        return encrypted

    def _openssl(self, *arguments: str | Path) -> None:
        done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
