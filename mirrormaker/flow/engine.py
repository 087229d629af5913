"""What copies, from a start of a route in this process to its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mirrormaker.flow.arbiter import Arbiter
from mirrormaker.flow.crossing import Crossing
from mirrormaker.flow.delivery import DeliveryMode
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.reader import SourceReader
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.writer import DestinationWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The machine and what drives it, as tasks of one group; the machine is stepped only there."""

    machine: FlowMachine
    reader: SourceReader
    writer: DestinationWriter
    mode: DeliveryMode
    crossing: Crossing
    arbiter: Arbiter
    tasks: asyncio.TaskGroup
    acknowledged: Signal = field(default_factory=Signal)
    """Set when the destination has answered something."""
