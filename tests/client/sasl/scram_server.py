"""The server's side of SCRAM, which the client's is tried against."""

from __future__ import annotations

import base64
import hashlib
import hmac

from broker.client.sasl.scram import parse_attributes
from broker.client.sasl.scram_keys import ScramKeys, ScramMechanism

SALT = b"salt of the server"


class ScramServer:
    """Knows one password's keys. `respond` to what the client says; None once it is refused."""

    def __init__(self, mechanism: ScramMechanism, password: str, *, iterations: int = 4096) -> None:
        self._hash_name = mechanism.hash_name
        self._mechanism = mechanism
        self._iterations = iterations
        self.keys = ScramKeys.derive(mechanism, password, SALT, iterations)
        self.username = ""
        self.extensions: dict[str, str] = {}
        self._said: list[bytes] = []

    def respond(self, message: bytes) -> bytes | None:
        return self._final(message) if self._said else self._first(message)

    def _first(self, message: bytes) -> bytes:
        assert message.startswith(b"n,,")
        attributes, *extensions = message[3:].decode().split(",tokenauth=")
        said = parse_attributes(attributes.encode(), "test")
        self.username = said["n"].replace("=2C", ",").replace("=3D", "=")
        self.extensions = {"tokenauth": extensions[0]} if extensions else {}
        salt = base64.b64encode(SALT).decode()
        answer = f"r={said['r']}and-more,s={salt},i={self._iterations}".encode()
        self._said = [message[3:], answer]
        return answer

    def _final(self, message: bytes) -> bytes | None:
        without_proof, _, proof = message.rpartition(b",p=")
        auth_message = b",".join((*self._said, without_proof))
        self._said = []
        signature = hmac.digest(self.keys.stored_key, auth_message, self._hash_name)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self._hash_name, client_key).digest() != self.keys.stored_key:
            return None
        return b"v=" + base64.b64encode(self.keys.server_signature(auth_message))
