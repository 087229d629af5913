"""Which topics a route takes and what they become."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.topology.examples import EXAMPLES_MAX, examples_of
from mirrormaker.topology.model import TopicSelection
from mirrormaker.topology.naming import compile_naming, is_legal_topic, pattern_problem, template_problem
from mirrormaker.topology.overlaps import shared_names


def test_patterns_match_whole_names_and_excludes_win() -> None:
    naming = compile_naming(
        "jfk", TopicSelection(include=("flights.*", "planes"), exclude=("flights-test.*",))
    )
    taken = ["flights", "flights-2013", "planes"]
    left = ["planes2", "myflights", "flights-test-1", "weather"]
    assert [topic for topic in taken + left if naming.selects(topic)] == taken


def test_topics_that_patterns_name_one_by_one_are_known_where_none_is_seen() -> None:
    patterns = ("planes", r"a\.b", "c.d", "(ee|ff)g", "h.*", "[ij]", "k.+l", "__m", "n", "o o")
    naming = compile_naming("jfk", TopicSelection(include=patterns, exclude=("n",)))
    assert naming.unseen(()) == {"planes", "a.b", "c.d", "eeg", "ffg"}
    assert naming.unseen(["planes", "c-d", "eeg", "z"]) == {"a.b"}


def test_internal_topics_are_never_taken() -> None:
    naming = compile_naming("jfk", TopicSelection(include=(".*",)))
    assert not naming.selects("__consumer_offsets")
    assert naming.selects("_schemas")


def test_the_template_names_the_destination_topic() -> None:
    assert compile_naming("jfk", TopicSelection(include=("x",))).destination_of("flights") == "jfk.flights"
    kept = TopicSelection(include=("x",), name="{topic}")
    assert compile_naming("jfk", kept).destination_of("flights") == "flights"


@pytest.mark.parametrize(
    ("pattern", "examples"),
    [
        ("orders", {"orders"}),
        ("(eu-)?(orders|sales)", {"orders", "sales", "eu-orders", "eu-sales"}),
        ("[a-z]{2}-.*", {"xx-x"}),
    ],
)
def test_there_is_an_example_of_every_choice(pattern: str, examples: set[str]) -> None:
    assert set(examples_of(pattern)) == examples


def test_of_many_choices_each_has_an_example_before_they_are_combined() -> None:
    examples = examples_of("".join(f"(a{number}|b{number})" for number in range(40)))
    assert len(examples) == EXAMPLES_MAX
    assert all(any(f"b{number}" in example for example in examples) for number in range(40))


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["orders.*", ".*-eu"], ["orders-eu"]),
        (["o[a-z]{3,9}", "[a-f]rders?|.{6}"], ["oxxxxx"]),
        (["a+", "b+"], []),
        (["a+", "aa"], []),
        (["((a{9}){9}){9}.*", "a.*", "(?:){1000}b*"], []),
    ],
)
def test_patterns_share_names(patterns: list[str], names: list[str]) -> None:
    assert list(shared_names(patterns)) == names


def test_a_pattern_that_repeats_nothing_has_an_example_at_once() -> None:
    patterns = ("(?:){400000000}", "(?:(?:){4}){400000000}x")
    assert [examples_of(pattern) for pattern in patterns] == [("",), ("x",)]


@pytest.mark.parametrize("pattern", ["(?:){400000000}", "a|(?=(b?){5000})c", "(?i:(?:x*){2000,})"])
def test_a_pattern_that_nobody_could_match_to_its_end_has_a_problem(pattern: str) -> None:
    assert "what may be empty" in str(pattern_problem(pattern))
    assert pattern_problem("(?:x?){1000}(?:x){50000}") is None


@pytest.mark.parametrize("template", ["{topic}", "{cluster}.{topic}", "{cluster}-{topic}-copy", "x{topic}"])
def test_good_templates_have_no_problem(template: str) -> None:
    assert template_problem(template) is None


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{}",
        "x",
        "{cluster}",
        "{topic!r}",
        "{topic:>9}",
        "{topic",
        "a{b}{topic}",
        "{topic} x",
        "{0}{topic}",
        "__{topic}",
        "__{cluster}.{topic}",
    ],
)
def test_bad_templates_have_a_problem(template: str) -> None:
    assert template_problem(template)


def test_names_over_249_characters_are_illegal() -> None:
    assert is_legal_topic("a" * 249)
    assert not is_legal_topic("a" * 250)
    assert not is_legal_topic(".")
    assert not is_legal_topic("")


@given(
    pattern=st.sampled_from(
        [
            "a.*",
            "[a-z]+-[0-9]{3}",
            "(orders|sales)(\\.[a-z]+)?",
            "[^x]y",
            "\\w\\d-?",
            "(?:a|b){2,4}",
            "x*?y+?",
            "(?>ab)c",
            ".",
            "[^\\d.]+",
        ]
    )
)
def test_examples_match_their_pattern(pattern: str) -> None:
    assert all(re.fullmatch(pattern, example) for example in examples_of(pattern))
