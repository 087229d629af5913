"""Failover groups as `status` tells people of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirrormaker.status import Status
from mirrormaker.timing_report import describe_time

NAMED_MAX = 5
"""Topics that are named."""


def switch_lines(status: Status) -> list[str]:
    """A line for each failover group that is not at home, or on its way, and for each with a tail."""
    switches = {route.switch["group"]: route.switch for route in status.routes if route.switch is not None}
    lines = [_switch_line(switch) for switch in switches.values() if _is_news(switch)]
    return lines + [_tail_line(name, told) for name, told in status.failover_groups.items() if told["tail"]]


def _is_news(switch: Mapping[str, Any]) -> bool:
    return (switch["side"], switch["stage"]) != ("home", "settled")


def _switch_line(switch: Mapping[str, Any]) -> str:
    where = "on its way to" if switch["stage"] in ("draining", "switching") else "at"
    line = f"failover group {switch['group']}: {where} {switch['cluster']}"
    line += f" since {describe_time(switch['at_ms'])}"
    if switch["stage"] != "settled":
        line += f", {switch['stage']}"
    if switch["stage"] == "away":
        back = switch["standby"] if switch["side"] == "home" else switch["home"]
        line += f": nothing is copied until {back} is back: {switch['again']}"
    line += f", by {switch['by']}"
    if switch["fenced"]:
        line += f"; {switch['fenced_at']} is fenced, its topics refuse producers: {_names(switch['fenced'])}"
    return line if switch["problem"] is None else f"{line}; {switch['problem']}"


def _names(topics: Sequence[str]) -> str:
    more = len(topics) - NAMED_MAX
    return ", ".join(topics[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _tail_line(group: str, told: Mapping[str, Any]) -> str:
    partitions = ", ".join(
        f"{each['topic']}-{each['partition']}: offsets {each['first']} to {each['last']}"
        for each in told["tail"]
    )
    return (
        f"failover group {group}: {told['idle']} has {told['tail_records']:,} records that never came to the"
        f" other side ({partitions}); the next switch asks what becomes of them"
    )
