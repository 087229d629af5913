"""SASL exchanges out of credentials: secrets are read, tokens obtained, nonces drawn. Blocks, as files and
the network do; a connection has it done in a thread.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import assert_never

from broker.client.sasl.exchange import SaslExchange
from broker.client.sasl.oauthbearer import OAUTHBEARER, BearerExchange
from broker.client.sasl.plain import PLAIN, PlainExchange
from broker.client.sasl.scram import ScramExchange
from broker.client.security.disclosure import disclose, disclose_filled
from broker.client.security.given_options import GivenOptions
from broker.client.security.login_options import read_jaas
from broker.client.security.settings import (
    BearerCredentials,
    Credentials,
    DirectCredentials,
    JaasCredentials,
    PlainCredentials,
    ScramCredentials,
    TokenEndpoint,
)
from broker.client.security.token_sources import obtain_token
from broker.clock import Clock
from broker.errors import ConfigurationError

_NONCE_BYTES = 24


def begin_login(credentials: Credentials, clock: Clock) -> SaslExchange:
    """An exchange that has yet to say its first words.

    Raises ConfigurationError for what cannot be read, and as `obtain_token` does.
    """
    match credentials:
        case PlainCredentials(username=username, password=password):
            return PlainExchange(disclose_filled(username), disclose_filled(password))
        case ScramCredentials(username=username, password=password):
            return ScramExchange(
                credentials.mechanism,
                disclose(username),
                disclose(password),
                nonce=secrets.token_urlsafe(_NONCE_BYTES),
                extensions={"tokenauth": "true"} if credentials.of_delegation_token else None,
            )
        case BearerCredentials(source=source, extensions=extensions):
            return BearerExchange(obtain_token(source, clock), extensions)
        case JaasCredentials():
            return begin_login(_of_jaas(credentials), clock)
    assert_never(credentials)


def mechanism_of(credentials: Credentials) -> str:
    """The registered name of the mechanism."""
    match credentials:
        case PlainCredentials():
            return PLAIN
        case ScramCredentials(mechanism=mechanism):
            return mechanism.name
        case BearerCredentials():
            return OAUTHBEARER
        case JaasCredentials(mechanism=name):
            return name
    assert_never(credentials)


def _of_jaas(jaas: JaasCredentials) -> DirectCredentials:
    given = GivenOptions(jaas.others, folder=None, inline_secrets=True)
    credentials = read_jaas(given, jaas.mechanism, disclose(jaas.config))
    if credentials is None or given.problems:
        raise ConfigurationError([f"{jaas.config.where}: {problem.message}" for problem in given.problems])
    if isinstance(credentials, BearerCredentials) and isinstance(credentials.source, TokenEndpoint):
        source = dataclasses.replace(credentials.source, kept=jaas.kept)
        return dataclasses.replace(credentials, source=source)
    return credentials
