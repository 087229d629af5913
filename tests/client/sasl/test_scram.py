from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.sasl.exchange import SaslError
from broker.client.sasl.scram import ScramExchange, ScramState
from broker.client.sasl.scram_keys import SCRAM_MECHANISMS, SCRAM_SHA_256, ScramKeys, ScramMechanism
from tests.client.sasl.scram_server import ScramServer

SCRAM_SHA_1 = ScramMechanism(name="SCRAM-SHA-1", hash_name="sha1")
"""Of RFC 5802 itself; no cluster offers it."""


def exchange(password: str = "pencil", username: str = "user") -> ScramExchange:
    return ScramExchange(SCRAM_SHA_256, username, password, nonce="rOprNGfwEbeRWgbNEkqO")


@pytest.mark.parametrize(
    ("mechanism", "nonce", "server_first", "client_final", "server_final"),
    [
        (
            SCRAM_SHA_1,
            "fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ),
        (
            SCRAM_SHA_256,
            "rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ],
    ids=["RFC 5802", "RFC 7677"],
)
def test_the_examples_of_the_standards_come_out_to_the_letter(
    mechanism: ScramMechanism, nonce: str, server_first: str, client_final: str, server_final: str
) -> None:
    client = ScramExchange(mechanism, "user", "pencil", nonce=nonce)
    assert client.first() == f"n,,n=user,r={nonce}".encode()
    assert client.respond(server_first.encode()) == client_final.encode()
    assert client.respond(server_final.encode()) is None
    assert client.state is ScramState.COMPLETE


@given(
    mechanism=st.sampled_from(sorted(SCRAM_MECHANISMS)),
    username=st.text(min_size=1).filter(lambda text: "\0" not in text),
    password=st.text(min_size=1),
    delegated=st.booleans(),
)
def test_any_name_and_password_get_through_to_a_server_that_knows_them(
    mechanism: str, username: str, password: str, delegated: bool
) -> None:
    server = ScramServer(SCRAM_MECHANISMS[mechanism], password)
    extensions = {"tokenauth": "true"} if delegated else {}
    client = ScramExchange(
        SCRAM_MECHANISMS[mechanism], username, password, nonce="nonce", extensions=extensions
    )
    challenge = server.respond(client.first())
    assert challenge is not None
    proof = client.respond(challenge)
    assert proof is not None
    assert (server.username, server.extensions) == (username, extensions)
    signature = server.respond(proof)
    assert signature is not None
    assert client.respond(signature) is None


def test_a_wrong_password_is_refused_by_the_server() -> None:
    server, client = ScramServer(SCRAM_SHA_256, "pencil"), exchange("pen")
    challenge = server.respond(client.first())
    assert challenge is not None
    proof = client.respond(challenge)
    assert proof is not None
    assert server.respond(proof) is None


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    server, client = ScramServer(SCRAM_SHA_256, "pencil"), exchange("pencil")
    challenge = server.respond(client.first())
    assert challenge is not None
    client.respond(challenge)
    other = ScramKeys.derive(SCRAM_SHA_256, "pen", b"salt", 4096)
    with pytest.raises(SaslError, match="signature is wrong"):
        client.respond(b"v=" + base64.b64encode(other.server_signature(b"anything")))


NONCE = "r=rOprNGfwEbeRWgbNEkqOmore"


@pytest.mark.parametrize(
    ("server_first", "problem"),
    [
        (f"{NONCE},s=c2FsdA==,i=4095", "asks for 4095 iterations, 4096 to 1000000"),
        (f"{NONCE},s=c2FsdA==,i=1000001", "asks for 1000001 iterations"),
        (f"{NONCE},s=c2FsdA==,i=" + "9" * 5000, "iterations is no number"),
        (f"{NONCE},s=c2FsdA==,i=-1", "iterations is no number"),
        (f"{NONCE},s=c2FsdA==,i=²", "iterations is no number"),
        (f"{NONCE},s=c2FsdA==", "iterations is no number"),
        (f"{NONCE},s=,i=4096", "has no salt"),
        (f"{NONCE},s=#,i=4096", "salt is not base64"),
        (f"{NONCE},s=é,i=4096", "salt is not base64"),
        ("r=other,s=c2FsdA==,i=4096", "nonce does not go on"),
        ("r=rOprNGfwEbeRWgbNEkqO,s=c2FsdA==,i=4096", "nonce does not go on"),
        (f"m=extension,{NONCE},s=c2FsdA==,i=4096", "extension that is not known"),
        ("e=unknown-user", "the server refuses: unknown-user"),
        ("", "no list of attributes"),
        (f"{NONCE},s=c2FsdA==,s=c2FsdA==,i=4096", "no list of attributes"),
        ("words", "no list of attributes"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_what_no_server_may_say_first_is_refused(server_first: str, problem: str) -> None:
    client = exchange()
    client.first()
    with pytest.raises(SaslError, match=f"SCRAM-SHA-256: .*{problem}"):
        client.respond(server_first.encode(errors="surrogateescape"))
    assert client.state is ScramState.SERVER_FIRST


@pytest.mark.parametrize(
    ("server_final", "problem"),
    [
        (b"e=invalid-proof", "the server refuses: invalid-proof"),
        (b"v=c2hvcnQ=", "signature is wrong"),
        (b"v=", "has no signature"),
        (b"", "no list of attributes"),
    ],
)
def test_a_server_that_ends_without_its_proof_is_refused(server_final: bytes, problem: str) -> None:
    client = exchange()
    client.first()
    client.respond(b"r=rOprNGfwEbeRWgbNEkqOmore,s=c2FsdA==,i=4096")
    with pytest.raises(SaslError, match=problem):
        client.respond(server_final)
    assert client.state is ScramState.SERVER_FINAL


@given(st.binary())
def test_any_bytes_from_a_server_are_an_answer_or_an_error(message: bytes) -> None:
    client = exchange()
    client.first()
    with pytest.raises(SaslError):
        client.respond(message)


def test_messages_out_of_turn_are_bugs_of_the_caller() -> None:
    client = exchange()
    with pytest.raises(AssertionError):
        client.respond(b"v=c2hvcnQ=")
    client.first()
    with pytest.raises(AssertionError):
        client.first()


def test_keys_are_not_shown() -> None:
    assert repr(ScramKeys.derive(SCRAM_SHA_256, "pencil", b"salt", 4096)) == "ScramKeys(hash_name='sha256')"
