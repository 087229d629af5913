"""A plan for people: `+` is made, `~` changes, `-` goes away, `!` wants attention. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from broker.client.access_rule import DENY, GROUP, PREFIXED, AccessRule
from broker.client.operations import OPERATION_NAMES
from mirrormaker.plan.plan import Plan
from mirrormaker.plan.safety import dangers_of
from mirrormaker.plan.standing import RouteEstimate
from mirrormaker.plan.steps import (
    AddPartitions,
    AddRules,
    AdoptTopic,
    ChangeRoute,
    ChangeSettings,
    CreateTopic,
    RestartRoute,
    StartRoute,
    Step,
    StopRoute,
)
from mirrormaker.sizes import format_bytes


def render_plan(plan: Plan) -> Iterator[str]:
    """The plan in lines."""
    for step in plan.steps:
        yield from render_step(step)
    for notice in plan.notices:
        yield f"! {notice.line}"
    if plan.routes:
        yield ""
        yield from _estimates(plan.routes)
    yield ""
    yield _summary(plan)


def render_step(step: Step) -> Iterator[str]:
    """One step in lines, its dangers below."""
    yield describe_step(step)
    match step:
        case CreateTopic():
            for name, value in step.config.items():
                yield f"    + {name} = {value}"
        case ChangeSettings():
            for name, change in step.changes.items():
                yield f"    ~ {name} = {change.old} -> {change.new}"
        case AddRules():
            for rule in step.rules:
                yield f"    + {describe_rule(rule)}"
    for danger in dangers_of(step):
        yield f"    ! {danger}"


def describe_rule(rule: AccessRule) -> str:
    """A rule in a line."""
    what = "group" if rule.resource == GROUP else "topic"
    names = f"{what}s {rule.name}*" if rule.pattern_type == PREFIXED else f"{what} {rule.name}"
    may = "may not" if rule.permission == DENY else "may"
    where = "" if rule.host == "*" else f" from {rule.host}"
    operation = OPERATION_NAMES.get(rule.operation, f"operation {rule.operation}")
    return f"{rule.principal}{where} {may} {operation} {names}"


def describe_step(step: Step) -> str:
    """One step in a line."""
    match step:
        case CreateTopic():
            replicas = _count(step.replication_factor, "replica")
            return f"+ {step.cluster}: topic {step.name}, {_count(step.partitions, 'partition')}, {replicas}"
        case AddPartitions():
            return f"~ {step.cluster}: topic {step.name}, {step.have} -> {step.partitions} partitions"
        case ChangeSettings():
            return f"~ {step.cluster}: topic {step.name}, {_count(len(step.changes), 'setting')}"
        case AddRules():
            return f"+ {step.cluster}: {_count(len(step.rules), 'access rule')}"
        case AdoptTopic():
            return f"~ {step.cluster}: topic {step.name} is taken over by the route {step.route}"
        case StartRoute():
            return f"+ route {step.route}"
        case ChangeRoute():
            return f"~ route {step.route}, which goes on"
        case RestartRoute():
            return f"~ route {step.route}, which starts anew"
        case StopRoute():
            return f"- route {step.route}"


def _estimates(routes: tuple[RouteEstimate, ...]) -> Iterator[str]:
    width = max(len(route.route) for route in routes)
    for route in routes:
        groups = f", {_count(len(route.groups), 'group')}" if route.groups else ""
        yield (
            f"  {route.route:<{width}}  {route.source} -> {route.destination}: "
            f"{_count(route.topics, 'topic')}, {_count(route.partitions, 'partition')}{groups}, "
            f"{_bytes(route.bytes_per_day)} a day, {_bytes(route.bytes_behind)} to copy"
        )


def describe_emptiness(plan: Plan) -> str:
    """What a plan without steps says, in a line."""
    return "nothing to do" if plan.is_whole else "nothing to do where it could be seen; see above"


def _summary(plan: Plan) -> str:
    if not plan.steps:
        return describe_emptiness(plan)
    forced = ": wants --force" if plan.dangers else ""
    return f"{_count(len(plan.steps), 'step')}, {_count(len(plan.dangers), 'danger')}{forced}"


def _count(number: int, noun: str) -> str:
    if number < 0:
        return f"{noun}s as the cluster gives them"
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _bytes(size: float | None) -> str:
    return "an unknown size" if size is None else format_bytes(size)
