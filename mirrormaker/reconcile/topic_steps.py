"""Takes steps about the topics of one cluster; each can be taken again without harm. A setting that the
cluster does not take, as hosted ones bound the size of batches, keeps neither the topic nor the topic's other
settings from it. Which one it is, is found out by trying: answers name it in words alone, if at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from broker.client.admin import Admin, NewTopic
from broker.client.operations import ALTER, ALTER_CONFIGS, CREATE
from broker.errors import ErrorCode, ProtocolError, WireError
from mirrormaker.missing_rights import explained
from mirrormaker.plan.settings import CLEANUP, CREATED_SETTINGS
from mirrormaker.plan.steps import (
    AddPartitions,
    ChangeSettings,
    CreateTopic,
    SettingChange,
    Step,
    TopicStep,
)

STEPS_A_REQUEST = 100
_ESSENTIAL = frozenset({CLEANUP, *CREATED_SETTINGS})
"""No topic is made without them: what it holds would be other than at its source."""
_REFUSED_CODES = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION})
_CHANGE_REFUSED_CODES = _REFUSED_CODES | {ErrorCode.INVALID_REQUEST}
"""INVALID_REQUEST: Apache Kafka with ZooKeeper, of values that cannot be."""
StepType = TypeVar("StepType", bound=Step)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult(Generic[StepType]):
    """What came of a step."""

    step: StepType
    error: str | None
    """None when it is done."""
    code: ErrorCode | None = None
    """The cluster's, where there is an error, or where it was done already."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Settings that the cluster did not take, each with its answer, where the rest is done."""

    @property
    def is_own(self) -> bool:
        """Whether it was done, and by this."""
        return self.error is None and self.code is None

    @property
    def shortfall(self) -> str | None:
        """What is lacking of it, None when all is done."""
        if self.error is not None or not self.refused:
            return self.error
        return f"done, but for {_said(self.refused)}"


async def take_topic_steps(admin: Admin, steps: Sequence[TopicStep]) -> list[StepResult[TopicStep]]:
    """Take the steps: creations first, then growth, then settings. Each succeeds or fails by itself.

    Raises ConnectionFailedError and RequestTimedOutError when nobody answers in time.
    """
    results: list[StepResult[TopicStep]] = []
    creations = [step for step in steps if isinstance(step, CreateTopic)]
    for some in _portions(creations):
        results += await _create_topics(admin, some)
    growths = [step for step in steps if isinstance(step, AddPartitions)]
    for few in _portions(growths):
        grown = await admin.create_partitions({step.name: step.partitions for step in few})
        results += [_result(step, grown.get(step.name)) for step in few]
    for step in steps:
        if isinstance(step, ChangeSettings):
            results.append(await _change_settings(admin, step))
    return results


async def _create_topics(admin: Admin, steps: Sequence[CreateTopic]) -> list[StepResult[TopicStep]]:
    made = await admin.create_topics([_new_topic(step) for step in steps])
    failed = [step for step in steps if _is_refused(made.get(step.name)) and step.config.keys() - _ESSENTIAL]
    try:
        refused = await _find_refused(admin, failed) if failed else {}
    except WireError:  # a cluster before Kafka 0.10.2 makes what it is asked about
        refused = {}
    left = [_without(step, refused[step.name]) for step in failed if step.name in refused]
    if left:
        made |= await admin.create_topics([_new_topic(step) for step in left])
    return [_result(step, made.get(step.name), refused.get(step.name)) for step in steps]


async def _find_refused(admin: Admin, steps: Sequence[CreateTopic]) -> dict[str, dict[str, str]]:
    """By topic, the settings that the cluster does not take beside those that it does; without topics that it
    does not take without them either.
    """
    taken = {step.name: _without(step, step.config.keys() - _ESSENTIAL) for step in steps}
    answers = await _try_creating(admin, list(taken.values()))
    refused = {name: dict[str, str]() for name in taken if not _is_refused(answers.get(name))}
    wanted = {step.name: step.config for step in steps if step.name in refused}
    for setting in sorted(set().union(*wanted.values()) - _ESSENTIAL):
        tried = [
            replace(taken[name], config={**taken[name].config, setting: config[setting]})
            for name, config in wanted.items()
            if setting in config
        ]
        answers = await _try_creating(admin, tried)
        for step in tried:
            error = answers.get(step.name)
            if _is_refused(error):
                refused[step.name][setting] = str(error)
            else:
                taken[step.name] = step
    return refused


async def _change_settings(admin: Admin, step: ChangeSettings) -> StepResult[TopicStep]:
    """All at once, else one by one: clusters take all of a topic or nothing."""
    error = await _alter(admin, step.name, step.changes)
    if error is None or error.code not in _CHANGE_REFUSED_CODES:
        return _result(step, error)
    answers: dict[str, ProtocolError | None] = dict.fromkeys(step.changes, error)
    if len(answers) > 1:
        for name, change in step.changes.items():
            answers[name] = await _alter(admin, step.name, {name: change})
    refused = {name: str(answer) for name, answer in answers.items() if answer is not None}
    if len(refused) == len(answers):
        return StepResult(step=step, error=_said(refused), code=error.code)
    return _result(step, None, refused)


async def _alter(admin: Admin, topic: str, changes: Mapping[str, SettingChange]) -> ProtocolError | None:
    try:
        await admin.alter_topic_configs(topic, {name: change.new for name, change in changes.items()})
    except ProtocolError as error:
        return error
    return None


async def _try_creating(admin: Admin, steps: Sequence[CreateTopic]) -> Mapping[str, ProtocolError | None]:
    """What the cluster would answer, by topic."""
    return await admin.create_topics([_new_topic(step) for step in steps], validate_only=True)


def _is_refused(error: ProtocolError | None) -> bool:
    return error is not None and error.code in _REFUSED_CODES


def _without(step: CreateTopic, settings: Iterable[str]) -> CreateTopic:
    left = frozenset(settings)
    return replace(step, config={name: value for name, value in step.config.items() if name not in left})


def _said(refused: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {answer}" for name, answer in refused.items())


def _new_topic(step: CreateTopic) -> NewTopic:
    return NewTopic(
        name=step.name,
        partitions=step.partitions,
        replication_factor=step.replication_factor,
        configs=step.config,
    )


def _result(
    step: StepType, error: ProtocolError | None, refused: Mapping[str, str] | None = None
) -> StepResult[StepType]:
    """Somebody else's having done it is no failure."""
    if error is None:
        return StepResult(step=step, error=None, refused=refused or {})
    is_there = error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    has_as_many = error.code is ErrorCode.INVALID_PARTITIONS and isinstance(step, AddPartitions)
    if is_there or has_as_many:
        return StepResult(step=step, error=None, code=error.code)
    return StepResult(step=step, error=str(_explained(step, error)), code=error.code)


def _explained(step: Step, error: ProtocolError) -> ProtocolError:
    match step:
        case CreateTopic():
            return explained(error, step.cluster, step.name, CREATE)
        case AddPartitions():
            return explained(error, step.cluster, step.name, ALTER)
        case ChangeSettings():
            return explained(error, step.cluster, step.name, ALTER_CONFIGS)
    return error


def _portions(steps: Sequence[StepType]) -> Iterable[Sequence[StepType]]:
    return (steps[start : start + STEPS_A_REQUEST] for start in range(0, len(steps), STEPS_A_REQUEST))
