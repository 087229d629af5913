"""Tokens granted by an OIDC provider for a client's credentials (RFC 6749 section 4.4, KIP-768).

A token serves all connections until four fifths of its life are over. Then the next connection asks for
another; should the endpoint be away just then, the old one goes on until it expires.
"""

from __future__ import annotations

import base64
import json
import ssl
from typing import TYPE_CHECKING, Any

from broker.client.security.disclosure import disclose
from broker.client.security.settings import KeptToken, TokenEndpoint
from broker.client.security.tls_context import trust
from broker.clock import Clock
from broker.errors import AuthenticationError, BrokerError, ConnectionFailedError

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

TIMEOUT_S = 10.0
REFRESHED_AT = 0.8
"""Share of a token's life after which another is asked for, as by Java's clients."""
_ANSWER_BYTES_MAX = 1 << 20
_STATUS_OF_REFUSALS = range(400, 500)
_STATUS_OF_HASTE = (408, 429)
"""Refusals that say to come again."""


def endpoint_token(endpoint: TokenEndpoint, clock: Clock) -> str:
    """A token that is good now.

    Raises AuthenticationError when the provider refuses the credentials, ConnectionFailedError when it cannot
    be reached or makes no sense, ConfigurationError.
    """
    kept = endpoint.kept
    with kept.lock:
        if kept.token and clock.monotonic_ms() < kept.refresh_at_ms:
            return kept.token
        try:
            return _renewed(endpoint, kept, clock)
        except BrokerError:
            if kept.token and clock.monotonic_ms() < kept.valid_until_ms:
                return kept.token
            raise


def _renewed(endpoint: TokenEndpoint, kept: KeptToken, clock: Clock) -> str:
    asked_ms = clock.monotonic_ms()
    answer = _ask(endpoint)
    token, lifetime_s = answer.get("access_token"), answer.get("expires_in", 0)
    if not isinstance(token, str) or not token:
        raise ConnectionFailedError(f"{endpoint.url}: the answer holds no access_token")
    if not isinstance(lifetime_s, int | float):
        lifetime_s = 0
    kept.token = token
    kept.refresh_at_ms = asked_ms + int(lifetime_s * 1000 * REFRESHED_AT)
    kept.valid_until_ms = asked_ms + int(lifetime_s * 1000)
    return token


def _ask(endpoint: TokenEndpoint) -> dict[str, Any]:
    from http.client import HTTPException  # only here: these take long to load, and few need them
    from urllib.error import HTTPError, URLError
    from urllib.parse import urlencode
    from urllib.request import Request

    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    client = f"{disclose(endpoint.client_id)}:{disclose(endpoint.client_secret)}"
    request = Request(
        endpoint.url,
        data=urlencode(form).encode(),
        headers={
            "Authorization": f"Basic {base64.b64encode(client.encode()).decode()}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    try:
        with _opener(endpoint).open(request, timeout=TIMEOUT_S) as response:
            return _document(endpoint, response.read(_ANSWER_BYTES_MAX))
    except HTTPError as error:
        with error:
            raise _refusal(endpoint, error.code, error.read(_ANSWER_BYTES_MAX)) from None
    except URLError as error:
        reason = error.reason
        if isinstance(reason, ssl.SSLCertVerificationError):
            problem = f"{endpoint.url}: its certificate is refused: {reason.verify_message}"
            raise AuthenticationError(problem) from None
        raise ConnectionFailedError(f"{endpoint.url}: {reason}") from None
    except (OSError, HTTPException) as error:
        raise ConnectionFailedError(f"{endpoint.url}: {error or type(error).__name__}") from None


def _opener(endpoint: TokenEndpoint) -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

    class Nowhere(HTTPRedirectHandler):
        """Credentials go to the endpoint that was named and to no other."""

        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    context = ssl.create_default_context()
    if endpoint.trusted is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust(context, endpoint.trusted)
    return build_opener(Nowhere, HTTPSHandler(context=context))


def _document(endpoint: TokenEndpoint, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ConnectionFailedError(f"{endpoint.url}: the answer is no JSON object")
    return document


def _refusal(endpoint: TokenEndpoint, status: int, content: bytes) -> BrokerError:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    said = document if isinstance(document, dict) else {}
    told = " ".join(str(said[name]) for name in ("error", "error_description") if said.get(name))
    message = f"{endpoint.url}: no token: status {status}{f', {told}' if told else ''}"
    if status in _STATUS_OF_REFUSALS and status not in _STATUS_OF_HASTE:
        return AuthenticationError(message)
    return ConnectionFailedError(message)
