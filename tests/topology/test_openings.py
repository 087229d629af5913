"""How the names begin that patterns match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.topology.openings import OPENINGS_MAX, UNKNOWN, Opening, openings_of

PATTERNS = (
    *(
        "flights",
        r"jfk\.flights",
        "flights.*",
        ".*",
        "a?b",
        "(jfk|ewr)[.]x",
        r"(?:a|b.)c",
        "x{2}y",
        "(?i)abc",
    ),
    *("a|b|", "", r"(a(b|c))\d", "(?P<n>ab)c", r"(a)\1", "[ab]c", "ab+", "(?=a)ab", "^ab$"),
)


@given(st.data())
def test_a_name_that_matches_has_one_of_the_openings(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(PATTERNS))
    name = data.draw(st.from_regex(pattern, fullmatch=True))
    found = openings_of(pattern)
    assert any(name == each.text if each.is_whole else name.startswith(each.text) for each in found)
    assert any(Opening(text=name, is_whole=True).may_be(each) for each in found)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("flights", ["flights$"]),
        ("flights.*", ["flights"]),
        ("(jfk|ewr).x", ["jfk", "ewr"]),
        ("ab?c", ["a"]),
        ("(?i)abc", [""]),
    ],
)
def test_openings_are_as_long_as_they_are_known(pattern: str, texts: list[str]) -> None:
    assert [f"{each.text}{'$' * each.is_whole}" for each in openings_of(pattern)] == texts


def test_many_openings_are_as_good_as_none() -> None:
    assert openings_of("(ac|bd)" * 5) != [UNKNOWN]
    assert openings_of("(ac|bd)" * OPENINGS_MAX) == [UNKNOWN]


@pytest.mark.parametrize(
    ("one", "other", "may_be"),
    [
        ("ab$", "ab$", True),
        ("ab$", "abc$", False),
        ("ab$", "a", True),
        ("ab$", "abc", False),
        ("ab", "abc", True),
        ("ab", "b", False),
        ("", "b$", True),
    ],
)
def test_two_may_be_one_where_a_name_could_begin_with_both(one: str, other: str, may_be: bool) -> None:
    first, second = (Opening(text=each.rstrip("$"), is_whole=each.endswith("$")) for each in (one, other))
    assert first.may_be(second) is second.may_be(first) is may_be
