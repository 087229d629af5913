"""Access rules of topics that a route carries over. Pure.

Who may read or describe a source topic may do so with its copy; nobody gets the right to write there, since
the mirror alone writes. Rules for one topic by its name are carried, and those for names that begin alike as
long as the route only puts something before them. Rules are added, never taken away: whose they are cannot
be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.client.operations import DESCRIBE, DESCRIBE_CONFIGS, EVERYTHING, READ
from broker.client.topic_rule import LITERAL, PREFIXED, TopicRule

_CARRIED = frozenset({READ, DESCRIBE, DESCRIBE_CONFIGS})
_ANY_TOPIC = "*"


def lacking_rules(
    source: Iterable[TopicRule], destination: Iterable[TopicRule], names: Mapping[str, str]
) -> tuple[TopicRule, ...]:
    """Rules that the destination lacks for the copies; `names` are source topics and what they become."""
    wanted = {rule for given in source for rule in _carried(given, names)}
    return tuple(sorted(wanted - set(destination)))


def _carried(rule: TopicRule, names: Mapping[str, str]) -> Iterable[TopicRule]:
    topic = _renamed(rule, names)
    if topic is None:
        return
    for operation in _CARRIED if rule.operation == EVERYTHING else _CARRIED & {rule.operation}:
        yield TopicRule(
            topic=topic,
            pattern_type=rule.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=operation,
            permission=rule.permission,
        )


def _renamed(rule: TopicRule, names: Mapping[str, str]) -> str | None:
    """What the rule is about at the destination; None where nothing is copied that it is about."""
    if rule.pattern_type == LITERAL and rule.topic != _ANY_TOPIC:
        return names.get(rule.topic)
    if rule.pattern_type == PREFIXED:
        covered = [name for name in names if name.startswith(rule.topic)]
        if covered and all(names[name].endswith(name) for name in covered):
            added = {names[name].removesuffix(name) for name in covered}
            return min(added) + rule.topic if len(added) == 1 else None
    return None
