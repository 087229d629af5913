"""Filters of records: what they mean, how they are written, and what is said of those that are not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ConfigurationError
from broker.records.record_filter import RecordFilter

LATE = json.dumps(
    {"carrier": "UA", "delay": 15, "legs": [{"to": "ORD"}, {"to": "LAX"}], "a b": None, "on": True}
).encode()
HEADERS = [("kind", b"late"), ("kind", b"night"), ("empty", None), ("parked.error", b"x")]


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('key starts with "JFK"', True),
        ("key starts with 'EWR'", False),
        ('key = "JFK-1"', True),
        ('key contains "K-"', True),
        ('key > "JFK"', True),
        ('value contains "\\"UA\\""', True),
        ('header.kind = "late"', True),
        ('header.kind = "night"', True),
        ('header.kind != "night"', True),
        ('not header.kind = "night"', False),
        ('header["parked.error"] exists', True),
        ("header.empty exists", True),
        ('header.empty = ""', False),
        ("header.none exists", False),
        ('header.none != "x"', False),
        ('$.carrier in ("AA", "UA")', True),
        ("$.delay >= 15 and $.delay < 15.5", True),
        ("$.delay = 15.0", True),
        ('$.delay = "15"', False),
        ('$.delay != "15"', True),
        ("$.on = true", True),
        ("$.on = 1", False),
        ('$["a b"] = null', True),
        ("$['a b'] exists", True),
        ('$.legs[1].to = "LAX"', True),
        ("$.legs[2].to exists", False),
        ("$.carrier.code exists", False),
        ('$.delay > 100 or key = "JFK-1" and not ($.on = false)', True),
        ("not not $.on = true", True),
        ("$ exists", True),
    ],
)
def test_filters_look_at_keys_values_headers_and_fields_of_values(text: str, matches: bool) -> None:
    assert RecordFilter.parse(text).matches(b"JFK-1", LATE, HEADERS) is matches


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[" * 100_000, b"9" * 10_000 + b",", b"{"])
def test_what_is_not_json_has_no_fields(value: bytes | None) -> None:
    assert not RecordFilter.parse("$.a exists or $ exists").matches(None, value, [])
    assert RecordFilter.parse("not $.a = 1").matches(None, value, [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", 'column 1: expected "key", "value", "header.NAME" or "$.NAME", not the end'),
        ("key", 'column 4: expected a relation, "in" or "exists", not the end'),
        ("key = 5", "column 7: expected a string, not '5'"),
        ("key = 'a' key", 'column 11: expected "and", "or" or the end, not \'key\''),
        ("$.a starts with 5", "column 17: expected a string, not '5'"),
        ("$.a starts 'x'", 'column 12: expected "with"'),
        ("$.a = word", "column 7: expected a string, a number, true, false or null, not 'word'"),
        ("(key exists", 'column 12: expected ")", not the end'),
        ("key in ('a' 'b')", 'column 13: expected ")"'),
        ("  ~", "column 3: cannot read '~'"),
        ("key = 'a", "column 7: cannot read"),
        (r"key = '\x'", "escape"),
        (r'key = "\ud800"', "escape"),
        ("$.a[99999999999] exists", "digits"),
        ("key = '" + "a" * 5_000 + "'", "more than 4096"),
        ("not " * 50 + "key exists", "within each other"),
        ("(" * 50 + "key exists", "within each other"),
    ],
)
def test_what_is_wrong_with_a_filter_is_told_with_its_column(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        RecordFilter.parse(text)
    assert told in str(raised.value)


@given(st.text(alphabet="key$.ahedrin()[]<>=!\"' 10,\\xost", max_size=40))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        found = RecordFilter.parse(text)
    except ConfigurationError:
        return
    found.matches(b"k", b"{}", [("a", None)])


@given(st.text(), st.sampled_from("\"'"))
def test_any_string_can_be_written(text: str, quote: str) -> None:
    written = json.dumps(text)[1:-1]
    if quote == "'":
        written = written.replace('\\"', '"').replace("'", "\\'")
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return
    assert RecordFilter.parse(f"key = {quote}{written}{quote}").matches(encoded, None, [])
