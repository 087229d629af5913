"""Options of the data source."""

from __future__ import annotations

import pickle

import pytest

from broker.client.security.settings import PlainCredentials
from broker.errors import ConfigurationError
from broker.types import HostPort, TopicPartition
from mirrormaker.spark.bounds import EARLIEST, LATEST, NoMatch, OffsetBounds, TimeBounds
from mirrormaker.spark.options import parse_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092,[::1]:9093"}


def test_names_are_those_of_sparks_kafka_source_in_any_case() -> None:
    options = parse_options({"KAFKA.Bootstrap.Servers": "127.0.0.1:9092", "SUBSCRIBE": "a, b,a"})
    assert options.cluster.bootstrap == (HostPort("127.0.0.1", 9092),)
    assert options.selection.topics == ("a", "b")


def test_a_load_reads_everything_there_is_unless_told_otherwise() -> None:
    options = parse_options({**SERVERS, "subscribe": "a"})
    assert options.starting == OffsetBounds(default=EARLIEST)
    assert options.ending == OffsetBounds(default=LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.cluster.bootstrap[1] == HostPort("::1", 9093)


def test_offsets_can_be_given_by_partition() -> None:
    options = parse_options(
        {
            **SERVERS,
            "subscribe": "a",
            "startingOffsets": '{"a": {"0": 23, "1": -2}}',
            "endingOffsets": '{"a": {"0": -1}}',
        }
    )
    assert isinstance(options.starting, OffsetBounds)
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


def test_a_pattern_may_have_spaces_around_it() -> None:
    patterns = parse_options({**SERVERS, "subscribePattern": " a.* "}).selection.patterns
    assert patterns is not None
    assert patterns.selects("ab")


def test_a_pattern_is_looked_for_anywhere_in_a_name_and_several_are_of_whole_names() -> None:
    """Spark's own source looks for it so, too."""
    names = ("flights", "jfk.flights", "FLIGHTS-late", "light")

    def selected(**options: str) -> list[str]:
        patterns = parse_options(SERVERS | options).selection.patterns
        assert patterns is not None
        return [name for name in names if patterns.selects(name)]

    assert selected(subscribePattern="flights") == ["flights", "jfk.flights"]
    assert selected(subscribePattern="^f|late$") == ["flights", "FLIGHTS-late"]
    assert selected(subscribePattern="(?i)flights") == ["flights", "jfk.flights", "FLIGHTS-late"]
    assert selected(subscribePatterns='{"include": ["flights|light.*"]}') == ["flights", "light"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("kafka.bootstrap.servers", "localhost", "'localhost' is not host:port"),
        ("subscribePattern", "(", "is not a regular expression"),
        ("subscribePattern", " ", "is empty"),
        ("subscribePattern", "[a-z&&[^x]].*", "sets within sets"),
        ("subscribePattern", "[[ab]c].*", "sets within sets"),
        ("subscribePatterns", '{"include": ["("]}', "is not a regular expression"),
        ("subscribePatterns", '{"include": "a"}', "include must be a list of regular expressions"),
        ("subscribePatterns", '{"includes": ["a"]}', "there are include and exclude"),
        ("startingOffsetsElsewhere", "earliest", "has no effect without offsets by partition"),
        ("assign", "[0]", "not a JSON object"),
        ("assign", '{"a": "0"}', "the partitions of a must be a list of numbers"),
        ("startingOffsets", "latest", "cannot start at latest"),
        ("endingOffsets", "earliest", "cannot end at earliest"),
        ("startingOffsets", '{"a": {"0": "x"}}', "is not a partition and its offset"),
        ("startingOffsets", "{", "is not JSON like"),
        ("minPartitions", "0", "not a positive number"),
        ("failOnDataLoss", "maybe", "neither true nor false"),
        ("includeHeader", "true", "unknown, did you mean includeHeaders"),
        ("topic", "a", "is for writing: subscribe says what is read"),
        ("startingOffsets", '{"a": {"0": -1}}', "cannot start at latest"),
        ("endingOffsets", '{"a": {"0": -2}}', "cannot end at earliest"),
        ("startingTimestamp", "yesterday", "not a number"),
        ("startingOffsetsByTimestamp", '{"a": {"0": -2}}', "is not a partition and its timestamp"),
        ("startingOffsetsByTimestampStrategy", "later", "none of error, latest"),
        ("maxOffsetsPerTrigger", "0", "not a positive number"),
        ("kafka.isolation.level", "serializable", "none of read_uncommitted, read_committed"),
        ("kafka.auto.offset.reset", "earliest", "startingOffsets"),
        ("kafka.value.deserializer", "X", "columns of bytes"),
        ("kafka.fetch.max.bytes", "9999999999", "more than"),
    ],
)
def test_a_bad_value_is_named_with_its_option(option: str, value: str, message: str) -> None:
    given = {**SERVERS, "subscribe": "a"}
    if option in ("assign", "subscribePattern", "subscribePatterns"):
        del given["subscribe"]
    with pytest.raises(ConfigurationError) as failure:
        parse_options({**given, option: value})
    (problem,) = failure.value.problems
    assert option.lower() in problem.lower()
    assert message in problem


def test_a_query_begins_at_what_comes_next_and_has_no_end() -> None:
    given = {**SERVERS, "subscribe": "a"}
    assert parse_options(given, streaming=True).starting == OffsetBounds(default=LATEST)
    with pytest.raises(ConfigurationError, match="option endingOffsets: streaming queries have no end"):
        parse_options({**given, "endingOffsets": "latest"}, streaming=True)


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_a_load_passes_over_how_much_a_trigger_takes_with_a_warning(option: str) -> None:
    with pytest.warns(UserWarning, match=f"option {option} is passed over: .*for spark.readStream"):
        parse_options({**SERVERS, "subscribe": "a", option: "5"})


def test_times_come_before_offsets() -> None:
    given = {**SERVERS, "subscribe": "a", "startingOffsets": '{"a": {"0": 5}}'}
    by_partition = {**given, "startingOffsetsByTimestamp": '{"a": {"0": 1000}}'}
    assert parse_options(by_partition).starting == TimeBounds(
        by_partition={TopicPartition("a", 0): 1000},
        elsewhere=OffsetBounds(default=EARLIEST, by_partition={TopicPartition("a", 0): 5}),
        no_match=NoMatch.ERROR,
    )
    everywhere = {**by_partition, "startingTimestamp": "2000", "startingOffsetsByTimestampStrategy": "latest"}
    assert parse_options(everywhere).starting == TimeBounds(default=2000, no_match=NoMatch.LATEST)


def test_a_query_is_admitted_so_much_at_a_time() -> None:
    given = {**SERVERS, "subscribe": "a", "maxOffsetsPerTrigger": "500", "minOffsetsPerTrigger": "100"}
    admission = parse_options({**given, "maxTriggerDelay": "2m"}, streaming=True).admission
    assert (admission.offsets_max, admission.offsets_min, admission.delay_max_ms) == (500, 100, 120_000)
    with pytest.raises(ConfigurationError, match="is more than maxOffsetsPerTrigger"):
        parse_options({**given, "minOffsetsPerTrigger": "501"}, streaming=True)
    with pytest.raises(ConfigurationError, match="not a time span"):
        parse_options({**given, "maxTriggerDelay": "soon"}, streaming=True)
    alone = {**SERVERS, "subscribe": "a", "maxTriggerDelay": "2m"}
    assert parse_options(alone, streaming=True).admission.offsets_min is None, "as `kafka` has it"


def test_a_fetch_may_wait_for_nothing() -> None:
    options = {**SERVERS, "subscribe": "a", "kafka.fetch.min.bytes": "0", "kafka.fetch.max.wait.ms": "0"}
    terms = parse_options(options).terms
    assert (terms.fetch_min_bytes, terms.fetch_max_wait_ms) == (0, 0)


def test_settings_of_javas_consumer_that_mean_nothing_here_are_let_pass() -> None:
    passing = {"kafka.max.poll.records": "10000", "kafka.session.timeout.ms": "1"}
    assert parse_options({**SERVERS, "subscribe": "a", **passing}) == parse_options(
        {**SERVERS, "subscribe": "a"}
    )


def test_the_reader_goes_by_the_name_of_its_group() -> None:
    given = {**SERVERS, "subscribe": "a"}
    assert parse_options({**given, "groupIdPrefix": "nightly"}).cluster.client_id == "nightly"
    both = {**given, "groupIdPrefix": "nightly", "kafka.group.id": "load"}
    assert parse_options(both).cluster.client_id == "load"


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
    assert options.cluster.security.tls is not None
    assert isinstance(options.cluster.security.credentials, PlainCredentials)
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
