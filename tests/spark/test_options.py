"""Options of the data source."""

from __future__ import annotations

import pickle

import pytest

from broker.client.security.settings import PlainCredentials
from broker.errors import ConfigurationError
from broker.types import HostPort, TopicPartition
from mirrormaker.spark.options import EARLIEST, LATEST, parse_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092,[::1]:9093"}


def test_names_are_those_of_sparks_kafka_source_in_any_case() -> None:
    options = parse_options({"KAFKA.Bootstrap.Servers": "127.0.0.1:9092", "SUBSCRIBE": "a, b,a"})
    assert options.bootstrap == (HostPort("127.0.0.1", 9092),)
    assert options.selection.topics == ("a", "b")


def test_a_load_reads_everything_there_is_unless_told_otherwise() -> None:
    options = parse_options({**SERVERS, "subscribe": "a"})
    assert (options.starting.default, options.ending.default) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.bootstrap[1] == HostPort("::1", 9093)


def test_offsets_can_be_given_by_partition() -> None:
    options = parse_options(
        {
            **SERVERS,
            "subscribe": "a",
            "startingOffsets": '{"a": {"0": 23, "1": -2}}',
            "endingOffsets": '{"a": {"0": -1}}',
        }
    )
    assert options.starting.of(TopicPartition("a", 0)) == 23
    assert options.starting.of(TopicPartition("a", 1)) == EARLIEST
    assert options.ending.of(TopicPartition("a", 0)) == LATEST


def test_partitions_can_be_assigned() -> None:
    options = parse_options({**SERVERS, "assign": '{"a": [0, 2], "b": [1]}'})
    assert options.selection.partitions == (
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 1),
    )


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("kafka.bootstrap.servers", "localhost", "'localhost' is not host:port"),
        ("subscribePattern", "(", "is not a regular expression"),
        ("assign", "[0]", "not a JSON object"),
        ("assign", '{"a": "0"}', "the partitions of a must be a list of numbers"),
        ("startingOffsets", "latest", "cannot start at latest"),
        ("endingOffsets", "earliest", "cannot end at earliest"),
        ("startingOffsets", '{"a": {"0": "x"}}', "is not a partition and its offset"),
        ("startingOffsets", "{", "is not JSON like"),
        ("minPartitions", "0", "not a positive number"),
        ("failOnDataLoss", "maybe", "neither true nor false"),
        ("includeHeader", "true", "unknown, did you mean includeHeaders"),
    ],
)
def test_a_bad_value_is_named_with_its_option(option: str, value: str, message: str) -> None:
    given = {**SERVERS, "subscribe": "a"}
    if option in ("assign", "subscribePattern"):
        del given["subscribe"]
    with pytest.raises(ConfigurationError) as failure:
        parse_options({**given, option: value})
    (problem,) = failure.value.problems
    assert option.lower() in problem.lower()
    assert message in problem


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as failure:
        parse_options({"minPartitions": "x", "nonsense": "1"})
    assert len(failure.value.problems) == 4


def test_exactly_one_selection_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="found subscribe and assign"):
        parse_options({**SERVERS, "subscribe": "a", "assign": '{"a": [0]}'})


def test_options_of_the_connection_have_the_names_of_kafkas_clients_in_any_case() -> None:
    options = parse_options(
        {
            **SERVERS,
            "subscribe": "a",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.SASL.Mechanism": "PLAIN",
            "kafka.sasl.username": "spark",
            "kafka.sasl.password": "env:SECRET",
            "kafka.ssl.truststore.location": "/etc/ca.pem",
        }
    )
    assert options.security.tls is not None
    assert isinstance(options.security.credentials, PlainCredentials)
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(ConfigurationError) as caught:
        parse_options(
            {
                **SERVERS,
                "subscribe": "a",
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechansm": "PLAIN",
                "kafka.ssl.keystore.password": "secret",
            }
        )
    (without_use,) = [each for each in caught.value.problems if "keystore" in each]
    assert without_use.startswith("option kafka.ssl.keystore.password: a PEM file has no password of its own")
    assert [each for each in caught.value.problems if each != without_use] == [
        "option kafka.sasl.mechansm is unknown, did you mean kafka.sasl.mechanism?",
        "option kafka.sasl.mechanism: is missing: one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
    ]
