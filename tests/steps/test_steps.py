"""Filters and transforms of single records."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ConfigurationError
from broker.records.filter_terms import LookedAt
from broker.records.record import Header, Record
from broker.records.record_filter import RecordFilter
from mirrormaker.steps.conditions import any_filter_text, compile_condition, compile_filters, filter_text
from mirrormaker.steps.record import RecordError, TransitRecord
from mirrormaker.steps.topic_steps import TopicSteps, compile_steps
from mirrormaker.topology.model import (
    AllOf,
    AnyOf,
    Condition,
    FilterAction,
    FilterSpec,
    HeaderTest,
    JsonTest,
    KeyMatches,
    KeyPrefix,
    Not,
    RouteSpec,
    Where,
)
from mirrormaker.topology.naming import compile_naming
from tests.topology.files import load_route

ORDER = {
    "id": 7,
    "customer": {"name": "Ann", "country": "de"},
    "lines": [{"card": "1"}, {"card": "2"}],
    "rate": 1.5,
}


def record(value: Any = ORDER, key: bytes | None = b"order-7", headers: Sequence[Header] = ()) -> Record:
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return Record(7, 1_000, 0, key, data, headers)


def steps(folder: Path, transforms: str = "[]", filters: str = "[]", topic: str = "orders") -> TopicSteps:
    keys = f"topics: {{include: ['.*']}}, filters: {filters}, transforms: {transforms}"
    route: RouteSpec = load_route(folder, keys)
    return compile_steps(route, compile_naming(route.source, route.topics), topic)


def done(made: TopicSteps, given_record: Record) -> list[Record]:
    return [work.record() for work in made.apply(given_record, 3)]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (KeyPrefix(prefix="order-"), True),
        (KeyPrefix(prefix="test-"), False),
        (KeyMatches(pattern=r"order-\d"), True),
        (KeyMatches(pattern=r"order"), False),
        (Where(expression="$.id > 6 and key starts with 'o'"), True),
        (HeaderTest(name="kind"), True),
        (HeaderTest(name="kind", one_of=("late", "early")), True),
        (HeaderTest(name="kind", matches="l.*"), True),
        (HeaderTest(name="kind", one_of=("late",), matches="x"), False),
        (HeaderTest(name="other"), False),
        (JsonTest(field="customer.country", one_of=("de",)), True),
        (JsonTest(field="customer.country", matches="d."), True),
        (JsonTest(field="id", matches="7"), False),
        (JsonTest(field="id", one_of=(7.0,)), True),
        (JsonTest(field="customer.city"), False),
        (Not(condition=JsonTest(field="customer.city")), True),
        (AnyOf(conditions=(KeyPrefix(prefix="x"), HeaderTest(name="kind"))), True),
        (AllOf(conditions=(KeyPrefix(prefix="x"), HeaderTest(name="kind"))), False),
    ],
)
def test_conditions_mean_what_they_say(condition: Condition, holds: bool) -> None:
    order = record(headers=[("kind", b"late")])
    looked_at = LookedAt(order.key, order.value, order.headers)
    assert compile_condition(condition).holds(looked_at) is holds


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("$.kind = 'late'", True),
        ("$.id exists", True),
        ("$.id > 1e300", True),
        ("$.id = 5", False),
        ("not $.kind = 'late'", False),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32-le"])
def test_a_number_of_more_digits_than_python_reads_hides_no_other_field(
    expression: str, holds: bool, encoding: str
) -> None:
    """Neither here nor at nodes, which have the same terms."""
    value = f'{{"id":{"7" * 5_000},"kind":"late"}}'.encode(encoding)
    assert RecordFilter.parse(expression).matches(None, value, ()) is holds


NAMES = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=4).filter(
    lambda name: "." not in name
)
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | NAMES
LEAVES = st.one_of(
    st.builds(KeyPrefix, prefix=NAMES),
    st.builds(KeyMatches, pattern=st.just("k.*")),
    st.builds(Where, expression=st.sampled_from(["key = 'a' or $.a exists", "not $.b = 1"])),
    st.builds(HeaderTest, name=NAMES, one_of=st.lists(NAMES, max_size=2).map(tuple)),
    st.builds(JsonTest, field=NAMES, one_of=st.lists(SCALARS, max_size=2).map(tuple)),
    st.builds(JsonTest, field=NAMES, matches=st.just("a")),
)
CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, condition=inner),
        st.builds(AnyOf, conditions=st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(AllOf, conditions=st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)
FILTERS = st.lists(
    st.builds(FilterSpec, action=st.sampled_from(FilterAction), condition=CONDITIONS), min_size=1, max_size=3
)


@given(
    filters=FILTERS,
    key=st.none() | st.sampled_from([b"a", b"kk"]) | NAMES.map(str.encode),
    value=st.none()
    | st.sampled_from([b"", b"null", b"7", b'{"a": 1', b"\xff"])
    | st.dictionaries(NAMES | st.sampled_from("ab"), SCALARS, max_size=3).map(json.dumps).map(str.encode),
    headers=st.lists(st.tuples(NAMES, NAMES.map(str.encode)), max_size=2),
)
def test_nodes_never_leave_out_what_passes_here_or_cannot_be_processed(
    filters: list[FilterSpec], key: bytes | None, value: bytes | None, headers: list[Header]
) -> None:
    passes = compile_filters(filters)
    assert passes is not None
    try:
        is_wanted = passes.holds(LookedAt(key, value, headers))
    except RecordError:
        is_wanted = True  # whatever becomes of it, it has to come here
    if is_wanted and (text := filter_text(filters)):
        assert RecordFilter.parse(text).matches(key, value, headers)


@pytest.mark.parametrize(
    "keys",
    [
        {"filters": "[{keep: {json: {field: id, equals: 7}}}]"},
        {"filters": "[{drop: {json: {field: id}}}]"},
        {"filters": "[{keep: {any: [{key_prefix: x}, {not: {json: {field: id}}}]}}]"},
        {"transforms": "[{route: {to: seven, when: {json: {field: id, equals: 7}}}}]"},
    ],
    ids=["keep", "drop", "not", "route"],
)
def test_a_value_that_is_no_json_is_a_record_error_where_a_condition_asks_for_a_field(
    tmp_path: Path, keys: dict[str, str]
) -> None:
    made = steps(tmp_path, **keys)
    for value in (b'{"id": 7', b"", b"\xff", b"[" * 100_000):
        with pytest.raises(RecordError, match="no JSON"):
            made.apply(record(value), 3)
    for value in (None, b"null", b"7", b"[]"):
        made.apply(record(value), 3)


def test_a_value_is_read_as_json_only_where_nothing_else_decides_before(tmp_path: Path) -> None:
    by_key = steps(tmp_path, filters="[{keep: {any: [{key_prefix: order}, {json: {field: id}}]}}]")
    assert done(by_key, record(b"no JSON"))
    where = steps(tmp_path, filters="[{keep: {where: $.id exists}}]")
    assert not done(where, record(b"no JSON"))


def test_nodes_are_told_all_of_what_their_language_can_say() -> None:
    drop = FilterSpec(action=FilterAction.DROP, condition=HeaderTest(name="a b", one_of=("x",)))
    keep = FilterSpec(action=FilterAction.KEEP, condition=JsonTest(field="a.b", one_of=(1, None)))
    unsaid = FilterSpec(action=FilterAction.KEEP, condition=KeyMatches(pattern="x"))
    text = filter_text([drop, unsaid, keep])
    told = 'not header["a b"] in ("x") and $["a"]["b"] in (1, null)'
    assert text == f"({told}) or (value exists and not $ exists)"
    assert filter_text([drop, unsaid]) == 'not header["a b"] in ("x")'
    assert any_filter_text([text, text]) == text
    assert any_filter_text([text, ""]) == ""
    assert any_filter_text(["key = 'a'", "key = 'b'"]) == "(key = 'a') or (key = 'b')"
    assert filter_text([FilterSpec(action=FilterAction.KEEP, condition=KeyPrefix(prefix="x" * 5000))]) == ""


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [
        ("[{drop: {fields: [customer.name, absent.x]}}]", {**ORDER, "customer": {"country": "de"}}),
        ("[{drop: {fields: [lines.card]}}]", {**ORDER, "lines": [{}, {}]}),
        ("[{mask: {fields: [lines.card], with: x}}]", {**ORDER, "lines": [{"card": "x"}, {"card": "x"}]}),
        ("[{mask: {fields: [id], hash: true}}]", {**ORDER, "id": hashlib.sha256(b"7").hexdigest()}),
        (
            "[{rename: {fields: {customer.name: who}}}]",
            {**ORDER, "customer": {"who": "Ann", "country": "de"}},
        ),
        (
            "[{rename: {fields: {id: rate}}}]",
            {key: ORDER[{"rate": "id"}.get(key, key)] for key in ["rate", "customer", "lines"]},
        ),
        (
            "[{rename: {fields: {id: rate, rate: id}}}]",
            {**ORDER, "id": ORDER["rate"], "rate": ORDER["id"]},
        ),
        (
            "[{rename: {fields: {customer: client, customer.name: country, customer.country: land}}}]",
            {"client" if key == "customer" else key: value for key, value in ORDER.items()}
            | {"client": {"country": "Ann", "land": "de"}},
        ),
        ("[{topics: [others], drop: {fields: [id]}}]", ORDER),
    ],
)
def test_fields_are_dropped_masked_and_renamed(tmp_path: Path, transforms: str, expected: Any) -> None:
    (made,) = done(steps(tmp_path, transforms), record())
    assert json.loads(made.value or b"") == expected
    assert (made.offset, made.timestamp, made.key) == (7, 1_000, b"order-7")


@pytest.mark.parametrize("step", ["drop: {fields: [user.card]}", "mask: {fields: [user.card], with: x}"])
@pytest.mark.parametrize(
    "value",
    [
        b'{"user": {"card": 4711}, "user": {"name": "a"}}',
        b'{"user": {"c\\u0061rd": 4711}, "user": {"name": "a"}}',
        '{"user": {"card": 4711}, "user": {"name": "a"}}'.encode("utf-16"),
    ],
)
def test_what_is_taken_out_is_not_left_behind_a_name_that_comes_twice(
    tmp_path: Path, step: str, value: bytes
) -> None:
    (made,) = done(steps(tmp_path, f"[{{{step}}}]"), record(value))
    assert made.value == b'{"user":{"name":"a"}}'


def test_names_that_come_twice_and_are_not_asked_for_stay(tmp_path: Path) -> None:
    value = b'{"user": {"name": "a"}, "user": {"name": "b"}}'
    (made,) = done(steps(tmp_path, "[{drop: {fields: [user.card]}}]"), record(value))
    assert made.value == value


def test_values_that_no_step_changes_stay_byte_by_byte(tmp_path: Path) -> None:
    value = b'{ "id": 1e2 }'
    (made,) = done(steps(tmp_path, "[{drop: {fields: [absent]}}, {mask: {headers: [h]}}]"), record(value))
    assert made.value == value


@pytest.mark.parametrize(
    "number",
    [
        "0.1234567890123456789012345",
        "12345678901234567890.5",
        "12345678901234567890",
        "-1234567890123456e5",
        "1e400",
        "4e-330",
        "1.5",
        "9" * 5_000,
        "-" + "1" * 20_000,
    ],
)
def test_numbers_of_a_value_that_is_changed_keep_their_value(tmp_path: Path, number: str) -> None:
    """Those that a `float` cannot hold, too."""
    value = b'{"id":7,"ratio":[%s,"",0.25,"?"],"again":%s}' % ((number.encode(),) * 2)
    made = steps(tmp_path, "[{drop: {fields: [id]}}, {rename: {fields: {again: more}}}]")
    (changed,) = done(made, record(value))
    assert changed.value == b'{"ratio":[%s,"",0.25,"?"],"more":%s}' % ((number.encode(),) * 2)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_numbers_keep_their_value_however_a_value_is_encoded(tmp_path: Path, encoding: str) -> None:
    numbers = f'"ratio":0.12345678901234567890,"id":{"9" * 5_000}'
    made = steps(tmp_path, "[{drop: {fields: [a]}}]")
    (changed,) = done(made, record(f'{{"a":1,{numbers}}}'.encode(encoding)))
    assert changed.value == f"{{{numbers}}}".encode()


def test_equal_numbers_have_one_hash_however_long_they_are_spelt(tmp_path: Path) -> None:
    made = steps(tmp_path, "[{mask: {fields: [id], hash: true}}]")
    short, long = (
        done(made, record(b'{"id":%s}' % number)) for number in (b"1.5", b"1.50000000000000000000")
    )
    assert short == long
    numbers = ({"b": b"1" * 5_000}, {"b": b"1" * 4_999 + b"2"})
    one, other = (done(made, record(b'{"id":{"b":%s}}' % number["b"])) for number in numbers)
    assert one != other
    (masked,) = done(made, record(b'{"id":{"b":12345678901234567890.5,"a":1}}'))
    told = hashlib.sha256(b'{"a":1,"b":1.2345678901234567e+19}').hexdigest()
    assert json.loads(masked.value or b"") == {"id": told}


def test_a_number_that_is_spelt_out_is_compared_after_a_change(tmp_path: Path) -> None:
    made = steps(
        tmp_path,
        "[{rename: {fields: {id: number}}}, {route: {to: '{topic}.big', when: {where: '$.number > 5'}}}]",
    )
    assert [work.to for work in made.apply(record(b'{"id":5.0000000000000001e1}'), 0)] == ["orders.big"]


def test_headers_and_keys_are_changed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SALT", "pepper")
    made = steps(
        tmp_path,
        "[{drop: {headers: [trace]}}, {rename: {headers: {kind: type}}}, {mask: {headers: [type], with: x}},"
        " {mask: {key: true, hash: true, salt: 'env:SALT'}}]",
    )
    first, again = (
        done(made, record(headers=[("kind", b"a"), ("trace", b"1"), ("none", None)]))[0] for _ in "ab"
    )
    assert list(first.headers) == [("type", b"x"), ("none", None)]
    assert first.key == again.key != b"order-7"
    assert first.key != hashlib.sha256(b"order-7").hexdigest().encode()


def test_a_secret_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="env:NOWHERE"):
        steps(tmp_path, "[{mask: {key: true, hash: true, salt: 'env:NOWHERE'}}]")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"no JSON", "Expecting value: line 1 column 1"),
        (b"7", "it is a single value"),
        (b"7" * 5_000, "it is a single value"),
        (b'{"id": %s, }' % (b"7" * 5_000), "line 1 column 5010"),
        (b"\xff", "can't decode byte 0xff"),
        (b'{"a":' * 100_000, "it is nested too deeply"),
    ],
)
def test_a_value_that_is_no_object_is_an_error_where_fields_are_named(
    tmp_path: Path, value: bytes, why: str
) -> None:
    with pytest.raises(RecordError, match=f"no JSON object: .*{why}"):
        done(steps(tmp_path, "[{mask: {fields: [card]}}]"), record(value))
    (passed,) = done(steps(tmp_path, "[{mask: {headers: [card]}}]"), record(value))
    assert passed.value == value


def test_a_value_that_can_be_read_and_is_nested_too_deeply_to_be_written_is_an_error(tmp_path: Path) -> None:
    def called_deeply(function: Callable[[], Record], frames: int = 20) -> Record:
        return called_deeply(function, frames - 1) if frames else function()

    renaming, problems = steps(tmp_path, "[{rename: {fields: {id: number}}}]"), set()
    for depth in range(500, sys.getrecursionlimit()):
        try:
            (work,) = renaming.apply(record(b'{"id":1,"a":' + b"[" * depth + b"]" * depth + b"}"), 3)
            called_deeply(work.record)
        except RecordError as error:
            problems.add(str(error))
    assert "the value is nested too deeply to be written" in problems


def test_a_value_that_is_nested_too_deeply_to_be_masked_is_an_error(tmp_path: Path) -> None:
    """As one that names numbers which are kept exactly, by a producer that tries every depth."""
    masking, problems = steps(tmp_path, "[{mask: {fields: [card]}}]"), set()
    for depth in range(700, sys.getrecursionlimit()):
        number = b"[" * depth + b"1.00000000000000000000001" + b"]" * depth
        try:
            masking.apply(record(b'{"card":' + number + b"}"), 3)
        except RecordError as error:
            problems.add(str(error))
    assert "the value is nested too deeply to be written" in problems


def test_a_record_without_a_value_passes(tmp_path: Path) -> None:
    (made,) = done(steps(tmp_path, "[{mask: {fields: [card]}}]"), record(None))
    assert made.value is None


def test_deletions_cross_a_filter_of_fields_where_it_says_so(tmp_path: Path) -> None:
    of_germany = "{json: {field: customer.country, equals: de}}"
    alone = steps(tmp_path, filters=f"[{{keep: {of_germany}}}]")
    made = steps(tmp_path, filters=f"[{{keep: {{any: [{of_germany}, {{not: {{where: value exists}}}}]}}}}]")
    deletion = record(None)
    assert done(alone, record()) == done(made, record()) == [record()]
    assert (done(alone, deletion), done(made, deletion)) == ([], [deletion])
    assert done(made, record({"customer": {"country": "fr"}})) == []


def test_text_that_utf8_cannot_hold_stays_escaped(tmp_path: Path) -> None:
    (made,) = done(steps(tmp_path, "[{drop: {fields: [id]}}]"), record(b'{"id": 1, "half": "\\ud800"}'))
    assert made.value == b'{"half":"\\ud800"}'


def test_records_are_routed_by_what_earlier_steps_made_of_them(tmp_path: Path) -> None:
    made = steps(
        tmp_path,
        "[{rename: {fields: {id: number}}}, {route: {to: '{topic}.big', when: {where: '$.number > 5'}}}]",
    )
    assert [work.to for work in made.apply(record(), 0)] == ["orders.big"]
    assert [work.to for work in made.apply(record({"id": 1}), 0)] == ["a.orders"]
    assert made.elsewhere == ("orders.big",)


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("functions_of_a_route")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (lambda made: made, [b"order-7"]),
        (lambda made: None, []),
        (lambda made: made._replace(key=b"a"), [b"a"]),
        (lambda made: [made, made._replace(key=None)], [b"order-7", None]),
    ],
)
def test_functions_return_the_record_others_or_none(
    tmp_path: Path, functions: ModuleType, outcome: Any, expected: list[bytes | None]
) -> None:
    seen: list[TransitRecord] = []

    def change(made: TransitRecord) -> Any:
        seen.append(made)
        return outcome(made)

    functions.change = change  # type: ignore[attr-defined]
    made = steps(tmp_path, "[{drop: {fields: [id]}}, {function: 'functions_of_a_route:change'}]")
    assert [each.key for each in done(made, record())] == expected
    assert (seen[0].topic, seen[0].partition, seen[0].offset, seen[0].to) == ("orders", 3, 7, "a.orders")
    assert b'"id"' not in (seen[0].value or b"")


def raising(error: BaseException) -> Callable[[TransitRecord], None]:
    def change(_: TransitRecord) -> None:
        raise error

    return change


class UnspeakableError(Exception):
    def __str__(self) -> str:
        return 1 / 0  # type: ignore[return-value]


class OwnEnd(BaseException):
    pass


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (lambda made: 1 / 0, "ZeroDivisionError"),
        (lambda made: "text", "returned str"),
        (lambda made: [None], "returned NoneType for a record"),
        (lambda made: made._replace(value="text"), "the value is str"),
        (lambda made: made._replace(headers=[("a", "b")]), "a header has"),
        (lambda made: made._replace(headers=3), "headers are pairs"),
        (lambda made: made._replace(to=None), "'to' the name"),
        (lambda made: made._replace(timestamp_ms=1 << 70), "not milliseconds since 1970"),
        (lambda made: made._replace(timestamp_ms=-2), "not milliseconds since 1970"),
        (lambda made: made._replace(headers=[("\ud800", b"")]), "half of a surrogate pair"),
        (lambda made: sys.exit("enough"), "SystemExit: enough"),
        (raising(asyncio.CancelledError()), "CancelledError"),
        (raising(KeyboardInterrupt("no")), "KeyboardInterrupt: no"),
        (raising(GeneratorExit()), "GeneratorExit"),
        (raising(OwnEnd("over")), "OwnEnd: over"),
        (raising(OwnEnd("in\n  lines")), "OwnEnd: in lines$"),
        (raising(OwnEnd("x" * 100_000)), "OwnEnd: x{1000}$"),
        (raising(OwnEnd("half \ud83d")), r"OwnEnd: half \\ud83d$"),
        (raising(UnspeakableError()), "functions_of_a_route:change: UnspeakableError$"),
        (lambda made: made._replace(headers=({}[name] for name in "a")), "KeyError: 'a'"),
    ],
)
def test_what_a_function_does_wrong_is_an_error_of_the_record(
    tmp_path: Path, functions: ModuleType, outcome: Any, told: str
) -> None:
    functions.change = outcome  # type: ignore[attr-defined]
    with pytest.raises(RecordError, match=told):
        done(steps(tmp_path, "[{function: 'functions_of_a_route:change'}]"), record())


def test_what_a_function_is_given_changes_nothing_but_by_what_it_returns(
    tmp_path: Path, functions: ModuleType
) -> None:
    def change(made: TransitRecord) -> TransitRecord:
        made.headers.append(("a", "b"))  # type: ignore[attr-defined]
        return made

    functions.change = change  # type: ignore[attr-defined]
    made = steps(tmp_path, "[{drop: {headers: [trace]}}, {function: 'functions_of_a_route:change'}]")
    with pytest.raises(RecordError, match="AttributeError"):
        done(made, record(headers=(("kind", b"late"),)))


def test_a_function_may_return_names_of_headers_that_are_not_utf_8(
    tmp_path: Path, functions: ModuleType
) -> None:
    functions.change = lambda made: made._replace(value=b"")  # type: ignore[attr-defined]
    given = record(headers=((b"\xffname".decode(errors="surrogateescape"), b"late"),))
    (made,) = done(steps(tmp_path, "[{function: 'functions_of_a_route:change'}]"), given)
    assert made.headers == given.headers


@pytest.mark.parametrize("path", ["nowhere_at_all:change", "json:nothing", "sys:version"])
def test_a_function_that_is_not_there_is_told_when_the_route_starts(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigurationError, match=path):
        steps(tmp_path, f"[{{function: '{path}'}}]")


@pytest.mark.parametrize("end", ["SystemExit", "KeyboardInterrupt"])
def test_a_module_that_ends_the_program_when_it_is_imported_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    (tmp_path / "module_that_ends.py").write_text(f"raise {end}('not configured')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=f"module_that_ends:change: {end}: not configured"):
        steps(tmp_path, "[{function: 'module_that_ends:change'}]")
