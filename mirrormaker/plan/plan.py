"""A plan as data: what is to be done so that the world is as a topology asks, and what there is to know about
that. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.safety import large_parts, told_dangers
from mirrormaker.plan.standing import RouteEstimate
from mirrormaker.plan.steps import Step
from mirrormaker.topology.model import ClusterName


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in the order in which they are taken."""

    digest: str
    """Of the file that it was made for."""
    generation: int
    clusters: Mapping[ClusterName, str | None]
    """The real ids of those that answered."""
    steps: tuple[Step, ...] = ()
    notices: tuple[Notice, ...] = ()
    routes: tuple[RouteEstimate, ...] = ()

    @property
    def dangers(self) -> tuple[str, ...]:
        """Why it wants `--force`, each with the topic or route that it is about; nothing for most."""
        return (
            *large_parts(self.steps),
            *(danger for step in self.steps for danger in told_dangers(step)),
            *(notice.line for notice in self.notices if notice.is_danger),
        )

    @property
    def is_whole(self) -> bool:
        """Whether every cluster answered, and nothing makes it a bad plan."""
        return not any(notice.blocks or notice.kind is NoticeKind.UNREACHABLE for notice in self.notices)
