"""What daemons tell each other of a pipeline that they share: records of the control topic of its cluster.
Pure.

    {"pipeline": NAME}                   {"generation", "digest", "daemon", "host", "at_ms"}
    {"pipeline": NAME, "run": "last"}    {"due_ms", "is_over", "daemon", "host", "at_ms"}

The first is the claim of the daemon that has the newest file, as there is one for each route. The second is
the mark of the last run: one that is not over was cut short, unless it is under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.flow.kept_view import Document
from mirrormaker.reconcile.control import (
    Claim,
    Standing,
    describe_superseding,
    digest_of_spec,
    standing_of,
)
from mirrormaker.topology.model import PipelineName, PipelineSpec

_OF_A_PROCESS = frozenset(
    {"master", "spark", "alert", "owner", "sinks", "tables", "quarantine", "checkpoint", "retry"}
)
"""What may differ between the daemons of a pipeline: paths are below the folder of each file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMark:
    """How the last run of a pipeline stands, whichever daemon's it is."""

    due_ms: int
    """The point of the schedule that it is for."""
    is_over: bool
    """It needs not be run again: it succeeded, or no attempt is left."""
    daemon: str
    host: str
    at_ms: int


def claim_key(pipeline: PipelineName) -> Document:
    """Key of the claim on a pipeline."""
    return {"pipeline": pipeline}


def mark_key(pipeline: PipelineName) -> Document:
    """Key of the mark of its last run."""
    return {"pipeline": pipeline, "run": "last"}


def read_mark(value: Document | None) -> RunMark | None:
    """None for what is no mark."""
    match value:
        case {
            "due_ms": int(due_ms),
            "is_over": bool(is_over),
            "daemon": str(daemon),
            "host": str(host),
            "at_ms": int(at_ms),
        }:
            return RunMark(due_ms=due_ms, is_over=is_over, daemon=daemon, host=host, at_ms=at_ms)
    return None


def digest_of(pipeline: PipelineSpec) -> str:
    """The same for pipelines that do the same, on whichever machines."""
    return digest_of_spec(pipeline, without=_OF_A_PROCESS)


def is_bound(pipeline: PipelineSpec) -> bool:
    """Whether only the daemon that has run it can go on: what it has loaded is noted in its `data_dir`."""
    return pipeline.job is None and pipeline.checkpoint is None


def why_to_stand_by(own: Claim, found: Claim | None, mark: RunMark | None, *, bound: bool) -> str | None:
    """Why the daemon that would claim `own` must not run it, whether or not another does; None: it may."""
    if found is not None and standing_of(own, found) is Standing.SUPERSEDED:
        return describe_superseding(own, found)
    if bound and mark is not None and mark.daemon != own.daemon:
        return (
            f"what it has loaded is noted in the data_dir of the daemon {mark.daemon} on {mark.host}: say a"
            " 'checkpoint' that all daemons reach"
        )
    return None
