from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.sasl.exchange import SaslError
from broker.client.sasl.oauthbearer import BearerExchange
from broker.client.sasl.plain import PlainExchange
from broker.client.sasl.unsecured_token import unsecured_token


def test_plain_says_name_and_password_in_one_message() -> None:
    exchange = PlainExchange("tim", "tanstaaftanstaaf")
    assert exchange.first() == b"\0tim\0tanstaaftanstaaf"
    assert exchange.respond(b"") is None


@pytest.mark.parametrize(("username", "password"), [("", "p"), ("u", ""), ("u\0", "p"), ("u", "p\0")])
def test_plain_refuses_what_its_message_cannot_carry(username: str, password: str) -> None:
    with pytest.raises(SaslError, match="empty or holds a NUL") as caught:
        PlainExchange(username, password)
    assert "p\0" not in str(caught.value)


def test_a_bearer_token_goes_out_as_the_standard_has_it() -> None:
    exchange = BearerExchange("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", {"traceId": "123"})
    assert exchange.first() == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01traceId=123\x01\x01"
    )
    assert exchange.respond(b"") is None


def test_a_refused_token_is_told_of_with_what_the_server_says() -> None:
    exchange = BearerExchange("token")
    exchange.first()
    refusal = {"status": "invalid_token", "scope": "kafka"}
    assert exchange.respond(json.dumps(refusal).encode()) == b"\x01"
    with pytest.raises(SaslError, match="refuses the token: status invalid_token, scope kafka"):
        exchange.respond(b"")


@pytest.mark.parametrize("token", ["", "two words", "a\x01b", "naïve", "a=b"])
def test_what_is_no_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(SaslError, match="the token is empty or holds") as caught:
        BearerExchange(token)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("auth", "x"), ("with-sign", "x"), ("", "x"), ("ok", "\x01")])
def test_extensions_that_the_message_cannot_carry_are_refused(name: str, value: str) -> None:
    with pytest.raises(SaslError, match="extension"):
        BearerExchange("token", {name: value})


@given(st.binary(min_size=1))
def test_any_refusal_is_answered_and_then_an_error(challenge: bytes) -> None:
    exchange = BearerExchange("token")
    exchange.first()
    assert exchange.respond(challenge) == b"\x01"
    with pytest.raises(SaslError):
        exchange.respond(b"")


def test_unsecured_tokens_hold_their_claims_and_times() -> None:
    token = unsecured_token({"sub": "mirror", "groups": ["a"]}, issued_ms=1_000_000, lifetime_ms=60_000)
    header, claims, signature = token.split(".")
    decoded = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (header, claims)]
    assert decoded == [{"alg": "none"}, {"iat": 1000.0, "exp": 1060.0, "sub": "mirror", "groups": ["a"]}]
    assert signature == ""
    assert BearerExchange(token).first()
