"""What a job can know of the run that it is, if it has a parameter `run`."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import BY_HAND, RunRecord
from mirrormaker.topology.model import PipelineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One attempt; its pipeline's lock is held."""

    pipeline: PipelineSpec
    folder: PipelineFolder
    record: RunRecord
    """As it was noted when the attempt began."""

    @property
    def due_ms(self) -> int | None:
        """The point of the schedule that it is for, the same for all attempts; None by hand."""
        return None if self.record.trigger == BY_HAND else self.record.due_ms
