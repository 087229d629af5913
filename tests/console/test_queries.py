"""Parameters that a request has, and those that it has not."""

from __future__ import annotations

import pytest
from multidict import MultiDict

from broker.errors import ConfigurationError
from mirrormaker.console.queries import check_query


def query(names: list[str]) -> MultiDict[str]:
    return MultiDict((name, "1") for name in names)


@pytest.mark.parametrize("given", [[], ["partition"], ["topic", "topic", "partition"]])
def test_what_a_request_has_is_taken(given: list[str]) -> None:
    check_query(query(given), once={"partition"}, several={"topic"})


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (["topik"], ["there is no parameter 'topik': known are partition, topic"]),
        (["partition", "partition"], ["partition: given 2 times"]),
        (
            ["to", "to", "Topic"],
            [
                "there is no parameter 'to': known are partition, topic",
                "there is no parameter 'Topic': known are partition, topic",
            ],
        ),
    ],
)
def test_what_it_has_not_is_refused_by_name(given: list[str], problems: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_query(query(given), once={"partition"}, several={"topic"})
    assert refused.value.problems == problems


def test_a_request_without_parameters_takes_none() -> None:
    with pytest.raises(ConfigurationError, match="there is no parameter 'x': none is known"):
        check_query(query(["x"]))
