"""When cleaning may run: the minutes that a cron expression names, in the node's local time."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

_FIELDS = 5
_MINUTE = timedelta(minutes=1)


class CleaningSchedule:
    """`* 1-5 * * *` allows every minute from 1:00 to 5:59; the empty expression allows all."""

    __slots__ = ("expression",)

    def __init__(self, expression: str) -> None:
        """Raises ValueError for what is no cron expression of five fields, or one that no minute matches."""
        self.expression = expression.strip()
        if not self.expression:
            return
        if len(self.expression.split()) != _FIELDS:
            raise ValueError(
                f"expected a cron expression (minute hour day month weekday), not {self.expression!r}"
            )
        try:
            next(CronSim(self.expression, datetime(2000, 1, 1)))
        except CronSimError as error:
            raise ValueError(f"{self.expression!r} is no cron expression: {error}") from error
        except StopIteration:
            raise ValueError(f"{self.expression!r} names no minute that ever comes") from None

    def allows(self, now_ms: int) -> bool:
        """Whether cleaning may run at this time (milliseconds since the epoch)."""
        if not self.expression:
            return True
        minute = datetime.fromtimestamp(now_ms / 1000).replace(second=0, microsecond=0)
        return next(CronSim(self.expression, minute - _MINUTE), None) == minute
