"""A scripted node that asks who one is."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.client.sasl.scram_keys import SCRAM_MECHANISMS
from broker.errors import ErrorCode
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.client.peers import Peer
from tests.client.sasl.scram_server import ScramServer


@dataclass
class Guard:
    """Stands before a peer: knows one password, for one connection at a time."""

    peer: Peer
    password: str = "pencil"
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    lifetime_ms: int = 0
    in_bare_frames: bool = False
    logins: list[str] = field(default_factory=list)
    """Who said who they are, and was believed."""
    _mechanism: str = ""
    _scram: ScramServer | None = None

    def __post_init__(self) -> None:
        self.peer.on(SaslHandshakeRequest, self._handshake)
        self.peer.on(SaslAuthenticateRequest, self._authenticate)
        if self.in_bare_frames:
            del self.peer.versions[SaslAuthenticateRequest.api_key]
            self.peer.versions[SaslHandshakeRequest.api_key] = (0, 0)

    def _handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        self._mechanism, self._scram = request.mechanism, None
        known = request.mechanism in self.mechanisms
        if known and self.in_bare_frames:
            self.peer.bare_frames.append(self._bare)
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=list(self.mechanisms))

    def _authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        answer = self._respond(bytes(request.auth_bytes))
        if answer is None:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(error_code=code, error_message="Invalid credentials")
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=self.lifetime_ms)

    def _bare(self, frame: bytes) -> bytes | None:
        answer = self._respond(frame)
        if answer is not None and self._scram is not None and answer.startswith(b"r="):
            self.peer.bare_frames.append(self._bare)
        return answer

    def _respond(self, message: bytes) -> bytes | None:
        match self._mechanism:
            case "PLAIN":
                _, username, password = message.decode().split("\0")
                return self._believed(username) if password == self.password else None
            case "OAUTHBEARER":
                if message == b"\x01":
                    return None
                if message == f"n,,\x01auth=Bearer {self.password}\x01\x01".encode():
                    return self._believed("bearer")
                return b'{"status":"invalid_token"}'
            case name:
                if self._scram is None:
                    self._scram = ScramServer(SCRAM_MECHANISMS[name], self.password)
                    return self._scram.respond(message)
                answer = self._scram.respond(message)
                if answer is not None:
                    self._believed(self._scram.username)
                return answer

    def _believed(self, username: str) -> bytes:
        self.logins.append(username)
        return b""
