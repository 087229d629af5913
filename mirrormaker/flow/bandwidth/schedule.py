"""Which limit holds when: windows of the week, each in its own time zone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from mirrormaker.topology.model import Day, LinkSpec, Resources, Window

_DAYS = tuple(Day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A limit, and others in windows. A day has the hours that it has in the window's zone: one that is
    skipped as clocks go forward is skipped, one that comes twice counts twice.
    """

    bytes_per_second: int | None = None
    """Outside all windows; None: no limit."""
    windows: Sequence[Window] = ()
    """The first that holds counts."""

    @classmethod
    def of(cls, spec: LinkSpec | Resources) -> Schedule:
        """What the topology says of a link or a route."""
        return cls(bytes_per_second=spec.bytes_per_second, windows=spec.windows)

    def limit_at(self, wall_ms: int) -> int | None:
        """Bytes a second that may pass at this moment, in ms since the epoch; None: no limit."""
        if self.windows:
            moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
            for window in self.windows:
                local = moment.astimezone(ZoneInfo(window.zone))
                if window.holds(_DAYS[local.weekday()], local.hour * 60 + local.minute):
                    return window.bytes_per_second
        return self.bytes_per_second
