"""Times of the week in which another limit holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

DAY_MINUTES = 24 * 60


class Day(Enum):
    """A day of the week."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"

    @property
    def following(self) -> Day:
        """The next day."""
        days = list(Day)
        return days[(days.index(self) + 1) % len(days)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of some days, and the limit that holds in it. One that ends before it starts goes on into the
    next day, and belongs to the day on which it starts. The first window that holds counts.
    """

    bytes_per_second: int
    """The limit while the window is open; 0 lets nothing pass."""
    days: tuple[Day, ...] = tuple(Day)
    """Days on which it starts."""
    start_minute: int = 0
    """When it starts, as `HH:MM`."""
    end_minute: int = DAY_MINUTES
    """When it ends, as `HH:MM`; `24:00` is the end of the day."""
    zone: str = "UTC"
    """Time zone of days and times, such as `Europe/Berlin`."""

    def holds(self, day: Day, minute: int) -> bool:
        """Whether it is open at `minute` (0 to 1439) of `day`, in its own time zone."""
        if self.start_minute < self.end_minute:
            return day in self.days and self.start_minute <= minute < self.end_minute
        if minute >= self.start_minute:
            return day in self.days
        return minute < self.end_minute and any(begun.following is day for begun in self.days)
