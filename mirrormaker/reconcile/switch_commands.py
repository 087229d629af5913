"""Which command is at work on a failover group: it says so in the control topics of both clusters, again and
again (`failover/hold`). Pure.

    {"failover_group": NAME, "command": true}    {"id", "by", "pid", "host", "to", "beats"}

The record goes when the command ends. One that stays as it is for `DEAD_MS` is of a command that was killed,
or stopped. Clocks of hosts are not compared: whoever looks sees the record change, or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mirrormaker.flow.kept_view import Document

BEAT_MS = 1_000
DEAD_MS = 4_000


def command_key(group: str) -> Document:
    """Key of the record about a group."""
    return {"failover_group": group, "command": True}


def read_commands(records: Iterable[tuple[Document, Document]]) -> dict[str, Document]:
    """What the records of a control topic say, by group."""
    return {
        str(key["failover_group"]): value
        for key, value in records
        if "failover_group" in key and key.get("command") is True
    }


def name_command(told: Mapping[str, object]) -> str:
    """For people."""
    return f"a command of {told.get('by')} (process {told.get('pid')} on {told.get('host')})"


class CommandWatch:
    """What a control topic says of commands, and since when it has said just that."""

    def __init__(self) -> None:
        self._told: dict[str, Document] = {}
        self._since_ms: dict[str, int] = {}

    def take(self, records: Iterable[tuple[Document, Document]], now_ms: int) -> None:
        """What it says now. Times are monotonic."""
        told = read_commands(records)
        for group in self._told.keys() | told.keys():
            if self._told.get(group) != told.get(group):
                self._since_ms[group] = now_ms
        self._told = told

    def told(self, group: str) -> Document | None:
        """The command that is said to be at work."""
        return self._told.get(group)

    def is_alive(self, group: str, now_ms: int) -> bool:
        """Whether it is."""
        return group in self._told and now_ms - self._since_ms[group] < DEAD_MS
