"""What both sides of SCRAM compute (RFC 5802 section 3): keys out of a password, proofs out of keys.

A server keeps `stored_key` and `server_key`; neither gives the password away, nor does a proof.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Self

ITERATIONS_MIN = 4096
"""Fewer are refused, as RFC 7677 asks."""
ITERATIONS_MAX = 1_000_000
"""More are refused: the server decides how long the client computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramMechanism:
    """A member of the family: its registered name, and its hash as `hashlib` calls it."""

    name: str
    hash_name: str


SCRAM_SHA_256 = ScramMechanism(name="SCRAM-SHA-256", hash_name="sha256")
SCRAM_SHA_512 = ScramMechanism(name="SCRAM-SHA-512", hash_name="sha512")
SCRAM_MECHANISMS = {mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramKeys:
    """The keys that a password has with one salt and number of iterations."""

    hash_name: str
    client_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def derive(cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> Self:
        """Compute them, which takes milliseconds by intent. The password counts as its UTF-8 bytes, without
        SASLprep, as with Apache Kafka.
        """
        hash_name = mechanism.hash_name
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        return cls(
            hash_name=hash_name,
            client_key=hmac.digest(salted, b"Client Key", hash_name),
            server_key=hmac.digest(salted, b"Server Key", hash_name),
        )

    @property
    def stored_key(self) -> bytes:
        return hashlib.new(self.hash_name, self.client_key).digest()

    def client_proof(self, auth_message: bytes) -> bytes:
        """What proves that the client has the password."""
        signature = hmac.digest(self.stored_key, auth_message, self.hash_name)
        return bytes(one ^ other for one, other in zip(self.client_key, signature, strict=True))

    def server_signature(self, auth_message: bytes) -> bytes:
        """What proves that the server knows the password's keys."""
        return hmac.digest(self.server_key, auth_message, self.hash_name)
