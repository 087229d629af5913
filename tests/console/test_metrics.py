"""The names under which Prometheus gets the daemon's metrics, and those that the documentation gives them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirrormaker.console.metrics import metrics_text
from mirrormaker.route_description import starting_route

ROOT = Path(__file__).parents[2]
IDLE = {
    "topology": {"generation": 1, "problem": None, "reloads": 0, "reload_failures": 0},
    "at_ms": 0,
    "resident_bytes": 0,
    "cpu_seconds": 0.0,
    "workers": [],
    "routes": {},
}
NO_METRICS = {"mirrormaker_batches"}  # a table that sinks make


@pytest.mark.parametrize("pages", ["ops/docs", "ops/runbooks"])
def test_metrics_have_the_names_that_the_documentation_gives_them(pages: str) -> None:
    exported = set(re.findall(r"^# TYPE (\w+)", metrics_text(IDLE).decode(), re.MULTILINE))
    for page in (ROOT / pages).glob("*.md"):
        named = set(re.findall(r"`(mirrormaker_\w*[a-z])\b(?!\.py)", page.read_text()))
        assert named - NO_METRICS <= exported, page


def test_what_audits_found_may_become_less_and_is_no_counter() -> None:
    """A partition that another process copies by now is that one's to tell of."""
    exported = metrics_text(IDLE).decode()
    assert "# TYPE mirrormaker_audited_records gauge" in exported
    assert "# TYPE mirrormaker_audit_differences gauge" in exported


def test_a_control_topic_that_cannot_be_read_is_told_of_every_route_that_leads_there() -> None:
    routes = {
        name: {**starting_route(), "control_problem": problem} for name, problem in (("a", None), ("b", "x"))
    }
    exported = metrics_text({**IDLE, "routes": routes}).decode()
    told = re.findall(r'^mirrormaker_control_unread{route="(\w)"} (\d)', exported, re.MULTILINE)
    assert told == [("a", "0"), ("b", "1")]


def test_a_partition_that_could_not_be_begun_is_told_with_what_it_stands_for() -> None:
    standing = {"state": "halted", "reason": "unauthorized", "problem": "it may not be read"}
    route = {**starting_route(), "not_begun": {"flights-10-2": standing}}
    exported = metrics_text({**IDLE, "routes": {"a": route}}).decode()
    place = 'partition="2",{}route="a",{}topic="flights-10"'
    halted = place.format('reason="unauthorized",', "")
    state = place.format("", 'state="halted",')
    assert f"mirrormaker_partition_halted{{{halted}}} 1.0\n" in exported
    assert f"mirrormaker_partition_state{{{state}}} 1.0\n" in exported
