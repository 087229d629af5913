"""Takes those steps about a cluster's topics that a daemon takes by itself, and tells of what it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from broker.client.admin import Admin
from mirrormaker.plan.steps import AddPartitions, CreateTopic, TopicStep
from mirrormaker.reconcile.drift import Drift, news, split_steps
from mirrormaker.reconcile.topic_steps import StepResult, take_topic_steps
from mirrormaker.topology.model import RepairKind, SyncSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What came of one look."""

    results: tuple[StepResult[TopicStep], ...]
    drift: tuple[Drift, ...]
    """What still differs."""


class Repairer:
    """Takes steps at one cluster and keeps in mind what differs there."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self.drift: tuple[Drift, ...] = ()
        self._log = log

    async def repair(
        self, admin: Admin, steps: Iterable[TopicStep], sync: SyncSpec, *, saw_settings: bool
    ) -> Repair:
        """Take what may be taken. Without `saw_settings` nothing is known anew about settings, and what
        differed there goes on to. Raises ConnectionFailedError, RequestTimedOutError.
        """
        taken, left = split_steps(steps, sync)
        results = await take_topic_steps(admin, taken)
        for result in results:
            self._tell(result)
            if result.error is not None:
                left.append(Drift(step=result.step, reason=result.error))
        if not saw_settings:
            left += [one for one in self.drift if one.kind is RepairKind.CONFIG and one not in left]
        self._tell_news(left)
        self.drift = tuple(left)
        return Repair(results=tuple(results), drift=self.drift)

    def _tell(self, result: StepResult[TopicStep]) -> None:
        match result.step:
            case CreateTopic() as step:
                event, details = "topic_created", {"partitions": step.partitions}
            case AddPartitions() as step:
                event, details = "partitions_added", {"partitions": step.partitions}
            case step:
                event, details = "settings_changed", {}
        if result.error is None:
            self._log.info(event, topic=step.name, **details)
        else:
            self._log.warning("topic_step_failed", step=event, topic=step.name, error=result.error, **details)

    def _tell_news(self, now: Sequence[Drift]) -> None:
        came, went = news(self.drift, now)
        for one in came:
            self._log.warning("drift_found", kind=one.kind.value, topic=one.name, difference=one.line)
        for one in went:
            if all(one.name != other.name or one.kind is not other.kind for other in now):
                self._log.info("drift_gone", kind=one.kind.value, topic=one.name)
