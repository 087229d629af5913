"""The topology file under a running daemon: seen when it changes, read when told to, replaced as a whole.

A change that is only noticed counts once the file has stood still from one look to the next: what an editor
has written half of, or has moved away for a moment, is not taken for a wish. Who asks for it (`read`) means
the file as it is. Blocks on the disk: called in a thread. Not safe to be called by several at once.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from broker.errors import ConfigurationError
from mirrormaker.topology.document import read_text
from mirrormaker.topology.loader import parse_topology
from mirrormaker.topology.model import Topology

_Signature = tuple[int, int, int, int]
"""Times of modification and change in nanoseconds, inode, size: as long as these stay, the file is not read
again.
"""
_NEVER_READ: _Signature = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyText:
    """What a file held at one moment."""

    text: str
    file: Path

    @property
    def digest(self) -> str:
        """The same for the same text, and for no other."""
        return sha256(self.text.encode()).hexdigest()[:16]

    def parse(self) -> Topology:
        """Raises ConfigurationError with every problem."""
        return parse_topology(self.text, self.file)

    def parse_routes(self) -> Topology:
        """The same without pipelines, and what is wrong with these."""
        return parse_topology(self.text, self.file, pipelines=False)


class TopologyFile:
    """See the module."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._settled: _Signature | None = _NEVER_READ
        """That of what was given last."""
        self._seen: _Signature | None = _NEVER_READ
        """That of the last look."""

    def read(self) -> TopologyText:
        """The file now. Raises ConfigurationError when it cannot be read."""
        self._settled = self._seen = self._signature()
        return TopologyText(text=read_text(self.path), file=self.path)

    def look(self) -> TopologyText | None:
        """The file if it has changed since it was given last, and not since the look before; else None.

        Raises ConfigurationError, once, when it cannot be read any more.
        """
        before, self._seen = self._seen, self._signature()
        if self._seen == self._settled or self._seen != before:
            return None
        return self.read()

    def held(self) -> TopologyText | None:
        """The file now, which does not count as given; None when it cannot be read."""
        try:
            return TopologyText(text=read_text(self.path), file=self.path)
        except ConfigurationError:
            return None

    def replace(self, text: str) -> TopologyText:
        """Have the file hold `text`: whoever reads it meets the old or the new whole, also after a crash.

        Raises ConfigurationError when that cannot be.
        """
        target = self.path.resolve()  # a link goes on pointing there
        aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(aside.unlink, missing_ok=True)
                _write_through(aside, text, mode=target.stat().st_mode & 0o777 if target.exists() else 0o644)
                aside.replace(target)
            _flush_folder(target.parent)
        except OSError as error:
            raise ConfigurationError(
                [f"{self.path}: cannot be written: {error.strerror or error}"]
            ) from error
        written = self.read()
        if written.text != text:  # somebody was quicker: that is a change like any other
            self._settled = _NEVER_READ
        return written

    def _signature(self) -> _Signature | None:
        """None while there is no file."""
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_size


def _write_through(file: Path, text: str, mode: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "w", encoding="utf-8", newline="") as stream:
        os.fchmod(descriptor, mode)
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
