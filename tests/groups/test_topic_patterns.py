"""Regular expressions for topics: what they match, what is refused, and that none of them takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ErrorCode, ProtocolError
from broker.groups.consumer_groups.patterns import Pattern


@pytest.mark.parametrize(
    ("expression", "matching", "others"),
    [
        ("flights", ["flights"], ["flight", "flights-2", ""]),
        ("flights.*", ["flights", "flights.jfk"], ["my.flights"]),
        ("a|b.c|", ["a", "bxc", ""], ["ab", "b.cc"]),
        ("[a-c_]+", ["abc_", "c"], ["", "d", "abcd"]),
        ("[^a]x", ["bx", "-x"], ["ax", "x"]),
        ("[]a]", ["a"], ["]", "b"]),
        ("[a-]+", ["a-a"], ["b"]),
        (r"\d{2,3}", ["12", "123"], ["1", "1234", "ab"]),
        (r"x{2}y{1,}z{0,1}", ["xxy", "xxyyz"], ["xy", "xxz"]),
        ("^a$", ["a"], ["aa"]),
        ("a^b", [], ["ab", "a^b"]),
        (r"\Aa\z", ["a"], [""]),
        ("(?i)jFk[a]", ["JFKA", "jfka"], ["jf"]),
        ("(?i:a)b", ["Ab", "ab"], ["aB"]),
        ("(?P<name>ab)+?(?:c)*?", ["ab", "ababcc"], ["c"]),
        (r"\Qa.b\E.", ["a.bc"], ["axbc", "a.b"]),
        (r"[[:alpha:]][[:^digit:]][\d.]", ["ab1", "a_."], ["1b1", "a11"]),
        (r"\x61\x{62}\.\t*", ["ab."], ["ab", "abx"]),
        ("a{,2}", [], ["a", "aa"]),
    ],
)
def test_whole_names_match(expression: str, matching: list[str], others: list[str]) -> None:
    pattern = Pattern(expression)
    assert [name for name in matching + others if pattern.matches(name)] == matching


@pytest.mark.parametrize(
    "expression",
    [
        "(", ")", "a)", "[a", "[z-a]", "*a", "+", "a|?", "a{1001}", "a{3,2}", "(?=a)", "(?Pa)", "(?P<>a)",
        "(?P<a b>c)", r"\b", r"\pL", "\\", r"\xzz", r"\x{1", "[[:nothing:]]", "(" * 200 + ")" * 200,
        "(((a{1000}){1000}){1000})", "(((){1000}){1000}){1000}", "((a{0}){1000}){1000}",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused_and_named(expression: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        Pattern(expression)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert expression in caught.value.message


def test_expressions_that_ruin_others_are_matched_in_a_moment() -> None:
    name = "a" * 249
    assert not Pattern("(a+)+b").matches(name)
    assert not Pattern("(a|aa)*c").matches(name)
    assert not Pattern("(.*)(.*)(.*)(.*)(.*)x").matches(name)


expressions = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", "-"]),
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{})*".format, inner),
        st.builds("(?:{})?".format, inner),
        st.builds("({}){{1,2}}".format, inner),
    ),
    max_leaves=6,
)


@given(expressions, st.lists(st.text("ab1.-", max_size=6), max_size=10))
def test_names_match_as_other_engines_say(expression: str, names: list[str]) -> None:
    pattern = Pattern(expression)
    for name in names:
        assert pattern.matches(name) == (re.fullmatch(expression, name) is not None)
