"""What is left on the file system of a log directory, and whether clients may still write there.

Clients are refused while less than `log.dir.min.free.bytes` would be left, so that the node itself, its
internal topics and whatever frees room always have some. Where the setting is not given, of a small file
system only a part is kept free. The file system is asked in two cases: now and then, as others write there
too, and when the appends since then would have used up what was found. Once full, a directory stays so until
a tenth more than the minimum is free (`RESUME_BYTES_MIN` at least), so that it does not waver. Owned by the
event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.errors import StorageError
from broker.storage.disk import Space
from broker.telemetry import logger

RESUME_BYTES_MIN = 1 << 20
MINIMUM_BYTES = 100 << 20
MINIMUM_PART = 20
"""By default this part of the file system is kept free (5 %), at most `MINIMUM_BYTES`."""

_log = logger("free_space")


class FreeSpace:
    """See the module's description; sizes in bytes. `measure` asks the file system and may raise
    StorageError; `minimum` None goes by the size of the file system.
    """

    __slots__ = ("_given", "_left", "_measure", "_minimum", "_name", "is_full", "refused_count")

    def __init__(self, name: str, measure: Callable[[], Space], *, minimum: int | None) -> None:
        self.is_full = False
        self.refused_count = 0
        """Appends refused since the node started."""
        self._name = name
        self._measure = measure
        self._given = minimum
        self._minimum = minimum or 0
        self._left = 0

    def admits(self, size: int) -> bool:
        """Whether clients may write so much; then it counts as written."""
        if size > self._left and not self._admits_after_look(size):
            self.refused_count += 1
            return False
        self._left -= size
        return True

    def measured(self, space: Space) -> None:
        """What the file system said just now."""
        if self._given is None:
            self._minimum = min(space.total // MINIMUM_PART, MINIMUM_BYTES)
        needed = self._minimum + (max(self._minimum // 10, RESUME_BYTES_MIN) if self.is_full else 0)
        self._set_full(space.usable < needed, space.usable)
        self._left = 0 if self.is_full else space.usable - self._minimum

    def ran_out(self) -> None:
        """A write found no room: full until the next look finds some."""
        self._left = 0
        self._set_full(True, 0)

    def _admits_after_look(self, size: int) -> bool:
        if self.is_full:  # until a look that is not made for every request
            return False
        try:
            space = self._measure()
        except StorageError:
            return True  # the write itself will tell
        self.measured(space)
        if size > self._left:
            self._left = 0
            self._set_full(True, space.usable)
        return not self.is_full

    def _set_full(self, is_full: bool, usable: int) -> None:
        if is_full is self.is_full:
            return
        self.is_full = is_full
        facts = {"log_directory": self._name, "usable_bytes": usable, "minimum_free_bytes": self._minimum}
        if is_full:
            _log.warning("log_directory_full", **facts)
        else:
            _log.info("log_directory_has_room", refused=self.refused_count, **facts)
