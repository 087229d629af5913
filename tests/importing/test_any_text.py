"""Whatever stands in files of MirrorMaker 2, they make a topology that loads, or what is wrong is said; and a
secret is never shown.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ConfigurationError
from mirrormaker.importing.importer import import_files
from mirrormaker.importing.positions import OffsetsFile
from mirrormaker.topology.loader import parse_topology

SECRET = "s3cr3t"
PROPERTIES = rf"""
clusters = a, b, c
a.bootstrap.servers = a1:9092, SSL://a2:9093
b.bootstrap.servers = b1:9092
c.bootstrap.servers = c1:9092
a.security.protocol = SASL_SSL
a.sasl.mechanism = PLAIN
a.sasl.jaas.config = org.example.PlainLoginModule required username="u" \
    password="{SECRET}";
a.ssl.truststore.location = /trust.jks
a.ssl.truststore.password = {SECRET}
b.security.protocol = SSL
b.ssl.keystore.location = /key.p12
b.ssl.keystore.password = {SECRET}
b.consumer.ssl.enabled.protocols = TLSv1.2
a->b.enabled = true
a->b.topics = orders, payments.*
b->a.enabled = true
a->c.enabled = true
a->c.replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
b->c.enabled = true
b->c.replication.policy.class = IdentityReplicationPolicy
topics.exclude = x, y-.*
groups = g.*
config.properties.exclude = min\\.insync\\.replicas
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 60
refresh.topics.interval.seconds = 30
replication.policy.separator = .
tasks.max = 4
b.exactly.once.source.support = enabled
a.consumer.isolation.level = read_committed
a->b.producer.compression.type = zstd
replication.factor = 3
"""
CONNECTOR = json.dumps(
    {
        "name": "one",
        "config": {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": "a",
            "source.cluster.bootstrap.servers": "a:1",
            "source.cluster.security.protocol": "SASL_PLAINTEXT",
            "source.cluster.sasl.mechanism": "SCRAM-SHA-256",
            "source.cluster.sasl.username": "u",
            "source.cluster.sasl.password": SECRET,
            "target.cluster.bootstrap.servers": "b:1",
            "topics": "orders",
            "tasks.max": 3,
        },
    },
    indent=1,
)
POSITIONS = '["one",{"cluster":"a","partition":0,"topic":"orders"}] {"offset":41}\n'
ODD_WORDS = r"""
= : \u00e9 \u1 \ud83d # -> a-> ->b a->b. b. . a b c d true no -1 0 1.5 ${file:/x:y} ${env:X} ${
.* ( [ [[a] a{1,2} (?i)x (?P<n>x) \\Qx\\E (?:){400000000} * null {} [] [1] " ' , / /x/.. { }
SSL SASL_SSL GSSAPI OAUTHBEARER PEM https://x file: env: é 😀
"""
ODD = [*ODD_WORDS.split(), "", " ", "\t", "\x85", "\x00", '{"a": 1}', "x" * 300, "9" * 400]
"""Nothing that ends a line, or has one go on: a secret would be a name then, or part of another setting."""
WORD = re.compile(r"[\w.*+/\-]+|\"[^\"]*\"|[=:{}\[\],>]")


def check(text: str, positions: str | None = None) -> None:
    """Raises for what is neither."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, told = folder / "mm2.conf", folder / "offsets"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        told.write_text(positions or "")
        problems: list[str] = []
        try:
            imported = import_files(
                [file], folder / "topology.yaml", [] if positions is None else [OffsetsFile(told)]
            )
        except ConfigurationError as error:
            problems = error.problems
        if problems:
            assert all(problem.startswith(str(folder)) for problem in problems), problems
            assert SECRET not in "".join(problems)
            return
        parse_topology(imported.text, folder / "topology.yaml")
        places = rf"({re.escape(str(file))}|{re.escape(str(told))}):\d+: "
        assert all(re.match(places, note) for note in imported.notes)
        assert SECRET not in imported.text + "".join(imported.notes)


def changed(text: str, changes: list[tuple[int, str]]) -> str:
    """With some of its words replaced; secrets stay whole and where they are."""
    words = [found.span() for found in WORD.finditer(text) if SECRET not in found[0]]
    by_place = {place % len(words): odd for place, odd in changes}
    for place, odd in sorted(by_place.items(), reverse=True):
        start, end = words[place]
        text = text[:start] + odd + text[end:]
    return text


CHANGES = st.lists(st.tuples(st.integers(0, 400), st.sampled_from(ODD)), min_size=1, max_size=3)


@settings(deadline=None, max_examples=300)
@given(changes=CHANGES)
@pytest.mark.long
def test_any_word_of_properties_may_be_any_other_thing(changes: list[tuple[int, str]]) -> None:
    check(changed(PROPERTIES, changes))


@settings(deadline=None, max_examples=150)
@given(changes=CHANGES)
def test_any_word_of_a_connector_may_be_any_other_thing(changes: list[tuple[int, str]]) -> None:
    check(changed(CONNECTOR, changes))


@settings(deadline=None, max_examples=100)
@given(changes=CHANGES)
def test_any_word_of_positions_may_be_any_other_thing(changes: list[tuple[int, str]]) -> None:
    check(CONNECTOR, changed(POSITIONS, changes))
