"""Takes those steps about a cluster's topics that a daemon takes by itself, and tells of what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from broker.client.admin import Admin
from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, SettingChange, TopicStep
from mirrormaker.reconcile.drift import Drift, News, split_steps, tell_news
from mirrormaker.reconcile.topic_steps import StepResult, take_topic_steps
from mirrormaker.topology.model import RepairKind, SyncSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What came of one look."""

    results: tuple[StepResult[TopicStep], ...]
    drift: tuple[Drift, ...]
    """What still differs."""


class LoggedNews:
    """News that go to the log alone."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log

    def note(self, event: str, **details: object) -> None:
        """See `News`."""
        self._log.warning(event, **details)

    def note_end(self, event: str, **details: object) -> None:
        """The same."""
        self._log.info(event, **details)


class Repairer:
    """Takes steps at one cluster and keeps in mind what differs there."""

    def __init__(self, log: FilteringBoundLogger, news: News) -> None:
        """`news`: who is told of what comes and goes; steps that are taken go to the log."""
        self.drift: tuple[Drift, ...] = ()
        self._log = log
        self._news = news

    async def repair(
        self, admin: Admin, steps: Iterable[TopicStep], sync: SyncSpec, *, is_unseen: Callable[[str], bool]
    ) -> Repair:
        """Take what may be taken. `is_unseen`: nothing is known anew about the settings of a topic, and what
        differed there goes on to. Raises ConnectionFailedError, RequestTimedOutError.
        """
        taken, left = split_steps(steps, sync)
        results = await take_topic_steps(admin, taken)
        for result in results:
            self._tell(result)
            if result.error is not None:
                left.append(Drift(step=result.step, reason=result.error))
            left += _refused_settings(result)
        left += [
            one
            for one in self.drift
            if one.kind is RepairKind.CONFIG and is_unseen(one.name) and one not in left
        ]
        tell_news(self._news, self.drift, left)
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
        if result.is_own:
            self._log.info(event, topic=step.name, **details)
        elif result.error is not None:
            self._log.warning("topic_step_failed", step=event, topic=step.name, error=result.error, **details)
        for setting, answer in result.refused.items():
            self._log.warning("topic_setting_refused", topic=step.name, setting=setting, error=answer)


def _refused_settings(result: StepResult[TopicStep]) -> Iterator[Drift]:
    """What a step left undone, setting by setting."""
    match result.step:
        case ChangeSettings() as step:
            changes = step.changes
        case CreateTopic() as step:
            changes = {name: SettingChange(old=None, new=value) for name, value in step.config.items()}
        case AddPartitions():
            return
    for setting, answer in result.refused.items():
        left = ChangeSettings(cluster=step.cluster, name=step.name, changes={setting: changes[setting]})
        yield Drift(step=left, reason=f"{setting}: {answer}")
