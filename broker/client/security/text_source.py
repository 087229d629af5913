"""A text that may be secret: given as it is, or by where it stands.

References keep secrets out of settings: `file:/run/secrets/jfk` and `env:JFK_PASSWORD` are read when a
connection is opened, so a secret that changes holds from the next connection on. Pure: `disclosure` reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Self


class Place(Enum):
    """Where a text stands."""

    INLINE = "inline"
    FILE = "file"
    ENVIRONMENT = "env"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TextSource:
    """A text, and the option that gave it; never shown."""

    option: str
    place: Place
    given: str = field(repr=False)
    """The text itself, the path of its file, or the name of its variable."""

    @classmethod
    def parse(cls, option: str, text: str, folder: Path | None = None) -> Self:
        """`file:PATH` (a relative one is below `folder`), `env:NAME`, or the text itself."""
        prefix, separator, rest = text.partition(":")
        if separator and rest and prefix == Place.FILE.value:
            return cls.of_file(option, Path(rest), folder)
        if separator and rest and prefix == Place.ENVIRONMENT.value:
            return cls(option=option, place=Place.ENVIRONMENT, given=rest)
        return cls(option=option, place=Place.INLINE, given=text)

    @classmethod
    def of_file(cls, option: str, path: Path, folder: Path | None = None) -> Self:
        """The text of a file."""
        return cls(option=option, place=Place.FILE, given=str(path if folder is None else folder / path))

    @property
    def where(self) -> str:
        """Option and place, for messages."""
        return self.option if self.place is Place.INLINE else f"{self.option}: {self._reference}"

    @property
    def _reference(self) -> str:
        return f"{self.place.value}:{self.given}"

    def __repr__(self) -> str:
        shown = "(hidden)" if self.place is Place.INLINE else self._reference
        return f"TextSource({self.option}, {shown})"


def text_sources(settings: object) -> Iterator[TextSource]:
    """All texts that settings, or settings in them, name."""
    if isinstance(settings, TextSource):
        yield settings
    elif is_dataclass(settings):
        for each in fields(settings):
            yield from text_sources(getattr(settings, each.name))
