"""Bearer tokens from where the settings say that they come from. Blocks, as files, functions and the network
do.
"""

from __future__ import annotations

import pkgutil
from typing import assert_never

from broker.client.sasl.unsecured_token import unsecured_token
from broker.client.security.disclosure import disclose
from broker.client.security.settings import (
    CalledForToken,
    GivenToken,
    TokenEndpoint,
    TokenSource,
    UnsecuredToken,
)
from broker.client.security.token_endpoint import endpoint_token
from broker.clock import Clock
from broker.errors import ConfigurationError, ConnectionFailedError


def obtain_token(source: TokenSource, clock: Clock) -> str:
    """A token that is good now.

    Raises ConfigurationError, AuthenticationError when an endpoint refuses, ConnectionFailedError when it
    cannot be reached.
    """
    match source:
        case GivenToken():
            return disclose(source.token).strip()
        case UnsecuredToken():
            return unsecured_token(source.claims, issued_ms=clock.now_ms(), lifetime_ms=source.lifetime_ms)
        case CalledForToken():
            return _called(source.path)
        case TokenEndpoint():
            return endpoint_token(source, clock)
    assert_never(source)


def _called(path: str) -> str:
    option = "sasl.oauthbearer.token.provider"
    try:
        provider = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError([f"{option}: {path} cannot be found: {error}"]) from error
    if not callable(provider):
        raise ConfigurationError([f"{option}: {path} is nothing that can be called"])
    try:
        token = provider()
    except Exception as error:  # somebody else's function, which may raise anything
        raise ConnectionFailedError(f"{path} obtained no token: {type(error).__name__}") from error
    if not isinstance(token, str):
        raise ConfigurationError([f"{option}: {path} returned {type(token).__name__}, not a token"])
    return token
