"""Access rules that a route carries over. Pure.

Nobody gets a right to anything but a copy of what it may see at the source. So whoever may read or describe a
topic may do so with its copy, and nobody may write there, since the mirror alone writes; the same holds for
groups that are carried. Rules for all names, and for names that begin alike, become rules for each copy:
there may be other topics at the destination.

A migration is different: what is at the source moves, and others are to write it in the end. There rules
are carried as they are, those for names that begin alike too, as long as the route only puts something
before names.

Rules are added, never taken away: whose they are cannot be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from broker.client.access_rule import GROUP, LITERAL, PREFIXED, TOPIC, AccessRule
from broker.client.operations import DESCRIBE, DESCRIBE_CONFIGS, EVERYTHING, READ

_CARRIED = {TOPIC: frozenset({READ, DESCRIBE, DESCRIBE_CONFIGS}), GROUP: frozenset({READ, DESCRIBE})}
_ANY_NAME = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleScope:
    """What rules are carried for."""

    topics: Mapping[str, str]
    """Source topics and what they become."""
    groups: tuple[str, ...] = ()
    moves: bool = False
    """Everything moves: rights to write are carried too."""
    names: Mapping[int, Mapping[str, str]] = field(init=False)
    """By resource."""

    def __post_init__(self) -> None:
        same = {group: group for group in self.groups}
        object.__setattr__(self, "names", {TOPIC: self.topics, GROUP: same})


def lacking_rules(
    source: Iterable[AccessRule], destination: Iterable[AccessRule], scope: RuleScope
) -> tuple[AccessRule, ...]:
    """Rules that the destination lacks."""
    wanted = {rule for given in source for rule in _carried(given, scope)}
    return tuple(sorted(wanted - set(destination)))


def _carried(rule: AccessRule, scope: RuleScope) -> Iterator[AccessRule]:
    names = scope.names.get(rule.resource)
    if names is None:
        return
    for name, pattern_type in _renamed(rule, names, keeps_patterns=scope.moves):
        there = replace(rule, name=name, pattern_type=pattern_type)
        if scope.moves:
            yield there
            continue
        carried = _CARRIED[rule.resource]
        for operation in carried if rule.operation == EVERYTHING else carried & {rule.operation}:
            yield replace(there, operation=operation)


def _renamed(
    rule: AccessRule, names: Mapping[str, str], *, keeps_patterns: bool
) -> Iterator[tuple[str, int]]:
    """What the rule is about at the destination, with pattern types."""
    if rule.pattern_type == LITERAL and rule.name != _ANY_NAME:
        if rule.name in names:
            yield names[rule.name], LITERAL
        return
    prefix = "" if rule.pattern_type == LITERAL else rule.name
    covered = [name for name in names if name.startswith(prefix)]
    added = {names[name].removesuffix(name) for name in covered if names[name].endswith(name)}
    is_alike = len(added) == 1 and all(names[name].endswith(name) for name in covered)
    if keeps_patterns and prefix and is_alike:
        yield min(added) + prefix, PREFIXED
    else:
        yield from ((names[name], LITERAL) for name in covered)
