"""Differences that a daemon sees and leaves alone; each is told when it comes and when it has gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mirrormaker.plan.render import describe_rule, describe_step
from mirrormaker.plan.safety import dangers_of, parted
from mirrormaker.plan.steps import AddRules, ClusterStep, TopicStep, repair_kind
from mirrormaker.topology.model import RepairKind, SyncSpec

LEFT_TO_APPLY = "'sync.repair' leaves it to `mirrormaker apply`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A step that is not taken, and why."""

    step: ClusterStep
    reason: str

    @property
    def name(self) -> str:
        """The topic that it is about, or what the first of the access rules is."""
        return self.step.rules[0].name if isinstance(self.step, AddRules) else self.step.name

    @property
    def kind(self) -> RepairKind:
        return repair_kind(self.step)

    @property
    def line(self) -> str:
        """For people."""
        if isinstance(self.step, AddRules):
            rules = ", ".join(map(describe_rule, self.step.rules))
            return f"+ {self.step.cluster}: {rules}: {self.reason}"
        return f"{describe_step(self.step)}: {self.reason}"

    def describe(self) -> Mapping[str, str]:
        """As plain data."""
        return {"kind": self.kind.value, "topic": self.name, "line": self.line}


class News(Protocol):
    """Whoever wants to hear of what has come and gone."""

    def note(self, event: str, **details: object) -> None:
        """This happened."""
        ...

    def note_end(self, event: str, **details: object) -> None:
        """The same, of something that is well again."""
        ...


def tell_news(news: News, before: Sequence[Drift], now: Sequence[Drift]) -> None:
    """Tell what has come and what has gone. What differs otherwise than before has not gone."""
    came, went = _news(before, now)
    for one in came:
        news.note("drift_found", kind=one.kind.value, topic=one.name, difference=one.line)
    for one in went:
        if all(one.name != other.name or one.kind is not other.kind for other in now):
            news.note_end("drift_gone", kind=one.kind.value, topic=one.name)


def split_steps(steps: Iterable[TopicStep], sync: SyncSpec) -> tuple[list[TopicStep], list[Drift]]:
    """The steps that a daemon takes by itself, and the others. Of a topic's settings each is for itself."""
    taken: list[TopicStep] = []
    left: list[Drift] = []
    for step in steps:
        if repair_kind(step) not in sync.repair:
            left.append(Drift(step=step, reason=LEFT_TO_APPLY))
            continue
        harmless, risky = parted(step)
        if harmless is not None:
            taken.append(harmless)
        if risky is not None:
            dangers = "; ".join(dangers_of(risky))
            left.append(Drift(step=risky, reason=f"{dangers}: `mirrormaker apply --force` does it"))
    return taken, left


def _news(before: Sequence[Drift], now: Sequence[Drift]) -> tuple[list[Drift], list[Drift]]:
    """What has come, and what has gone."""
    return [one for one in now if one not in before], [one for one in before if one not in now]
