"""`links` of a topology file."""

from __future__ import annotations

from mirrormaker.topology.kinds.collections import ListOf
from mirrormaker.topology.kinds.records import Key, Record
from mirrormaker.topology.kinds.scalars import Text
from mirrormaker.topology.model import LinkSpec
from mirrormaker.topology.readers.simulation import SIMULATED_LINK
from mirrormaker.topology.readers.windows import SPEED, WINDOWS

LINKS = ListOf(
    Record(
        LinkSpec,
        {
            "from": Key(Text(), "source"),
            "to": Key(Text(), "destination"),
            "bytes_per_second": SPEED,
            "windows": WINDOWS,
            "simulate": SIMULATED_LINK,
        },
    ),
    keeps_numbers=True,
)
