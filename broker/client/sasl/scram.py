"""SCRAM (RFC 5802, RFC 7677), the client's side, without channel binding.

    client: n,,n=USER,r=NONCE                   CLIENT_FIRST  -> SERVER_FIRST
    server: r=NONCE+MORE,s=SALT,i=ITERATIONS    SERVER_FIRST  -> SERVER_FINAL
    client: c=biws,r=NONCE+MORE,p=PROOF
    server: v=SIGNATURE, or e=ERROR             SERVER_FINAL  -> COMPLETE

The exchange is complete only when the server's signature holds: a server that does not know the password is
not the one that was meant. An exchange that failed stays where it is and is of no more use.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from enum import Enum, auto

from broker.client.sasl.exchange import SaslError
from broker.client.sasl.scram_keys import ITERATIONS_MAX, ITERATIONS_MIN, ScramKeys, ScramMechanism

_GS2_HEADER = "n,,"
"""No channel binding, no authorization id."""
_CHANNEL_BINDING = base64.b64encode(_GS2_HEADER.encode()).decode()


class ScramState(Enum):
    """Which message is next."""

    CLIENT_FIRST = auto()
    SERVER_FIRST = auto()
    SERVER_FINAL = auto()
    COMPLETE = auto()


class ScramExchange:
    """One exchange; `nonce` is printable text without commas that was never used before."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        username: str,
        password: str,
        *,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self.state = ScramState.CLIENT_FIRST
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        more = "".join(f",{name}={value}" for name, value in (extensions or {}).items())
        self._client_first = f"n={_sasl_name(username)},r={nonce}{more}"
        self._server_signature = b""

    @property
    def mechanism(self) -> str:
        return self._mechanism.name

    def first(self) -> bytes:
        assert self.state is ScramState.CLIENT_FIRST, self.state
        self.state = ScramState.SERVER_FIRST
        return f"{_GS2_HEADER}{self._client_first}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        attributes = parse_attributes(challenge, self.mechanism)
        match self.state:
            case ScramState.SERVER_FIRST:
                proof = self._prove(challenge, attributes)
                self.state = ScramState.SERVER_FINAL
                return proof
            case ScramState.SERVER_FINAL:
                self._verify(attributes)
                self.state = ScramState.COMPLETE
                return None
            case ScramState.CLIENT_FIRST | ScramState.COMPLETE:
                raise AssertionError(f"no message is awaited in {self.state}")

    def _prove(self, server_first: bytes, attributes: Mapping[str, str]) -> bytes:
        nonce, salt, iterations = self._agreed(attributes)
        without_proof = f"c={_CHANNEL_BINDING},r={nonce}"
        auth_message = b",".join((self._client_first.encode(), server_first, without_proof.encode()))
        keys = ScramKeys.derive(self._mechanism, self._password, salt, iterations)
        self._server_signature = keys.server_signature(auth_message)
        proof = base64.b64encode(keys.client_proof(auth_message)).decode()
        return f"{without_proof},p={proof}".encode()

    def _agreed(self, attributes: Mapping[str, str]) -> tuple[str, bytes, int]:
        """Nonce, salt and iterations as the server has them. Raises SaslError for what a client refuses."""
        if "m" in attributes:
            raise SaslError(f"{self.mechanism}: the server asks for an extension that is not known here")
        if error := attributes.get("e"):
            raise SaslError(f"{self.mechanism}: the server refuses: {error}")
        nonce, salt, iterations = (attributes.get(name, "") for name in "rsi")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError(f"{self.mechanism}: the server's nonce does not go on from the client's")
        if not iterations.isascii() or not iterations.isdigit() or len(iterations) > len(str(ITERATIONS_MAX)):
            raise SaslError(f"{self.mechanism}: the server's number of iterations is no number")
        if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise SaslError(
                f"{self.mechanism}: the server asks for {iterations} iterations,"
                f" {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
            )
        return nonce, self._decode(salt, "salt"), int(iterations)

    def _verify(self, attributes: Mapping[str, str]) -> None:
        if error := attributes.get("e"):
            raise SaslError(f"{self.mechanism}: the server refuses: {error}")
        signature = self._decode(attributes.get("v", ""), "signature")
        if not hmac.compare_digest(signature, self._server_signature):
            raise SaslError(
                f"{self.mechanism}: the server's signature is wrong: it does not know the password's keys"
            )

    def _decode(self, text: str, what: str) -> bytes:
        try:
            decoded = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise SaslError(f"{self.mechanism}: the server's {what} is not base64") from error
        if not decoded:
            raise SaslError(f"{self.mechanism}: the server's message has no {what}")
        return decoded


def parse_attributes(message: bytes, mechanism: str) -> dict[str, str]:
    """The attributes of a message of either side, by their letters.

    Raises SaslError for what is no list of them.
    """
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError as error:
        raise SaslError(f"{mechanism}: a message that is not UTF-8") from error
    attributes: dict[str, str] = {}
    for part in parts:
        name, separator, value = part.partition("=")
        if len(name) != 1 or not name.isalpha() or not separator or name in attributes:
            raise SaslError(f"{mechanism}: a message that is no list of attributes")
        attributes[name] = value
    return attributes


def _sasl_name(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")
