"""Words and numbers that YAML 1.1 reads oddly."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.topology.model import FailurePolicy
from tests.topology.files import CLUSTERS, load, load_route, problem_of_route, problems_of


def test_on_is_a_key_like_any_other(tmp_path: Path) -> None:
    assert load_route(tmp_path, "on: {source_gap: fail}").on.source_gap is FailurePolicy.FAIL
    assert load_route(tmp_path, "'on': {source_gap: fail}").on.source_gap is FailurePolicy.FAIL


def test_yes_no_and_dates_are_names_like_any_other(tmp_path: Path) -> None:
    text = """\
clusters: {no: {bootstrap: ["no:1"]}, yes: {bootstrap: ["yes:1"]}}
routes: [{from: no, to: yes, topics: {include: [2013-01-01, 1:30, off]}}]
"""
    topology = load(tmp_path, text)
    assert list(topology.clusters) == ["no", "yes"]
    assert topology.routes[0].name == "no-to-yes"
    assert topology.routes[0].topics.include == ("2013-01-01", "1:30", "off")


@pytest.mark.parametrize(
    ("said", "buckets"), [("1_0", 10), ("0x10", 16), ("0o10", 8), ("+7", 7), ("1024", 1024)]
)
def test_whole_numbers_are_read_in_every_way_that_is_clear(tmp_path: Path, said: str, buckets: int) -> None:
    assert load_route(tmp_path, f"buckets: {said}").buckets == buckets


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("buckets: 010", "buckets: 010 starts with 0, which some read as octal: write it without"),
        ("buckets: 1:30", "buckets: expected a whole number, found text (1:30)"),
        ("buckets: 1e3", "buckets: expected a whole number, found a number with a fraction (1e3)"),
        ("buckets: -3", "buckets: -3 is not between 1 and 1024"),
        ("buckets: true", "buckets: expected a whole number, found true or false (true)"),
        ("buckets: null", "buckets: expected a whole number, found nothing"),
        ("enabled: yes", "enabled: expected true or false, found text (yes): write true or false"),
        ("enabled: !!bool yes", "enabled: expected true or false, found true or false (yes)"),
        ("enabled: 'true'", "enabled: expected true or false, found text (true)"),
        (
            "commit_interval_ms: 1:30",
            "commit_interval_ms: expected a duration such as 1500, 90s or 5m, found text (1:30)",
        ),
        ("commit_interval_ms: 5ms", "commit_interval_ms: 5ms is not between 10 and 1h"),
        (
            "objectives: {audit_window: 300}",
            "objectives.audit_window: expected a duration such as 90s or 5m, found a whole number (300)",
        ),
        (
            "objectives: {audit_window: 5 weeks}",
            "objectives.audit_window: expected a duration such as 90s or 5m, found text (5 weeks)",
        ),
        (
            "resources: {fetch_bytes: 1 mb}",
            "resources.fetch_bytes: expected a size such as 1048576, 64KiB, 8MiB or 50MB, found text (1 mb)",
        ),
        ("resources: {fetch_bytes: 3TiB}", "resources.fetch_bytes: 3TiB is not between 1024 and 1073741824"),
        (
            "resources: {windows: [{bytes_per_second: 1, from: 8:00}]}",
            "resources.windows[0].from: expected a time of the day such as 08:00, found text (8:00)",
        ),
        (
            "resources: {windows: [{bytes_per_second: 1, from: 10:00, to: 10:00}]}",
            "resources.windows[0]: starts and ends at the same time: a whole day is from 00:00 to 24:00",
        ),
        (
            "resources: {windows: [{bytes_per_second: 1, from: 24:00, to: 00:00}]}",
            "resources.windows[0]: starts and ends at the same time: a whole day is from 00:00 to 24:00",
        ),
        (
            "resources: {windows: [{bytes_per_second: 1, days: [monday]}]}",
            "resources.windows[0].days[0]: "
            "'monday' is not one of mon, tue, wed, thu, fri, sat, sun; did you mean 'mon'?",
        ),
        (
            "resources: {windows: [{bytes_per_second: 1, zone: Mars/Base}]}",
            "resources.windows[0].zone: 'Mars/Base' is not a time zone; one is 'Europe/Berlin'",
        ),
        (
            "resources: {windows: [{bytes_per_second: 1, zone: Europe/Oslow}]}",
            "resources.windows[0].zone: 'Europe/Oslow' is not a time zone; did you mean 'Europe/Oslo'?",
        ),
    ],
)
def test_what_could_be_read_in_two_ways_is_told(tmp_path: Path, keys: str, told: str) -> None:
    assert problem_of_route(tmp_path, keys) == told


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ("4096", 4096),
        ("8MiB", 8 << 20),
        ("8 MiB", 8 << 20),
        ("0.5MB", 500_000),
        ("1GiB", 1 << 30),
        ("64KB", 64_000),
    ],
)
def test_sizes_may_have_a_unit(tmp_path: Path, said: str, size: int) -> None:
    route = load_route(tmp_path, f"resources: {{produce_bytes: {said}}}")
    assert route.resources.produce_bytes == size


@pytest.mark.parametrize(
    ("said", "span_ms"), [("250", 250), ("250ms", 250), ("1.5s", 1500), ("5 m", 300_000)]
)
def test_durations_may_have_a_unit(tmp_path: Path, said: str, span_ms: int) -> None:
    assert load_route(tmp_path, f"commit_interval_ms: {said}").commit_interval_ms == span_ms


NINES = "9" * 400


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (f"commit_interval_ms: {NINES}s", "commit_interval_ms: expected a duration such as 1500, 90s or 5m"),
        (f"resources: {{fetch_bytes: {NINES}MB}}", "resources.fetch_bytes: expected a size such as"),
        (f"resources: {{fetch_bytes: {NINES[:300]}TB}}", "resources.fetch_bytes: expected a size such as"),
        (f"start: {{offsets: {{x: {{? {NINES * 13} : 5}}}}}}", f"start.offsets.x.{NINES * 13}: 99999"),
    ],
)
def test_numbers_beyond_all_measure_are_told(tmp_path: Path, keys: str, told: str) -> None:
    assert problem_of_route(tmp_path, keys).startswith(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('clusters: {}\ndata_dir: "\\UFFFFFFFF"\n', "2: not YAML: "),
        (f"%YAML 1.{NINES * 13}\n---\nclusters: {{}}\n", "1: not YAML: "),
        ('clusters: {}\ndata_dir: "a\\ud800"\n', "2: 'a\\ud800' holds half of a character"),
        ('clusters:\n  "\\udfff": {}\n', "2: '\\udfff' holds half of a character"),
        ("clusters: &all\n  a: *all\n", "1: an alias stands inside of what it repeats"),
    ],
)
def test_what_no_text_can_say_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = problems_of(tmp_path, text)
    assert problem.startswith(told)


def test_aliases_stand_for_no_more_than_can_be_read(tmp_path: Path) -> None:
    filters = ["drop: &c0 {any: [{key_prefix: a}, {key_prefix: b}]}"]
    filters += [f"drop: &c{i} {{any: [{', '.join([f'*c{i - 1}'] * 4)}]}}" for i in range(1, 10)]
    assert len(load_route(tmp_path, f"filters: [{{{'}, {'.join(filters[:4])}}}]").filters) == 4
    route = f"{{from: a, to: b, topics: {{include: [x]}}, filters: [{{{'}, {'.join(filters)}}}]}}"
    told = problems_of(tmp_path, f"{CLUSTERS}routes: [{route}]")
    assert told == [" aliases repeat more than 50,000 values"]


def test_a_path_that_leads_round_is_told(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    (problem,) = problems_of(tmp_path, f"{CLUSTERS}data_dir: round/data\n")
    assert problem.startswith("2: data_dir: 'round/data' is not a path: ")
