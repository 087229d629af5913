"""Differences that a daemon sees and leaves alone; each is told when it comes and when it has gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mirrormaker.plan.render import describe_step
from mirrormaker.plan.safety import dangers_of
from mirrormaker.plan.steps import TopicStep, repair_kind
from mirrormaker.topology.model import RepairKind, SyncSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A step that is not taken, and why."""

    step: TopicStep
    reason: str

    @property
    def kind(self) -> RepairKind:
        return repair_kind(self.step)

    @property
    def line(self) -> str:
        """For people."""
        return f"{describe_step(self.step)}: {self.reason}"

    def describe(self) -> Mapping[str, str]:
        """As plain data."""
        return {"kind": self.kind.value, "topic": self.step.name, "line": self.line}


def split_steps(steps: Iterable[TopicStep], sync: SyncSpec) -> tuple[list[TopicStep], list[Drift]]:
    """The steps that a daemon takes by itself, and the others."""
    taken: list[TopicStep] = []
    left: list[Drift] = []
    for step in steps:
        reason = _reason_against(step, sync)
        if reason is None:
            taken.append(step)
        else:
            left.append(Drift(step=step, reason=reason))
    return taken, left


def _reason_against(step: TopicStep, sync: SyncSpec) -> str | None:
    if repair_kind(step) not in sync.repair:
        return "'sync.repair' leaves it to `mirrormaker apply`"
    dangers = dangers_of(step)
    return f"{'; '.join(dangers)}: `mirrormaker apply --force` does it" if dangers else None


def news(before: Sequence[Drift], now: Sequence[Drift]) -> tuple[list[Drift], list[Drift]]:
    """What has come, and what has gone."""
    return [one for one in now if one not in before], [one for one in before if one not in now]
