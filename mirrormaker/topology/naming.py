"""Which topics a route takes, and what they are called at the destination.

Patterns match the whole name. Internal topics are never matched: those that start with two underscores, as
Kafka's own do, and those that the cluster itself marks as internal (the caller leaves them out).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from re import _constants, _parser  # type: ignore[attr-defined]
from string import Formatter
from typing import Any

from mirrormaker.topology.model import TopicSelection
from mirrormaker.topology.openings import names_in

INTERNAL_PREFIX = "__"
TOPIC_NAME_SIZE_MAX = 249
EMPTY_REPEATS_MAX = 1000
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
INTERNAL_REFUSAL = f"topics that begin with {INTERNAL_PREFIX} are those of clusters and mirrors"
FIELDS = ("cluster", "topic")
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*")


def is_internal(topic: str) -> bool:
    """Whether the name is one that clusters keep for themselves."""
    return topic.startswith(INTERNAL_PREFIX)


def name_problem(name: str, size_max: int) -> str | None:
    """What is wrong with the name of a cluster, a route or a pipeline, or None when nothing is."""
    if _NAME.fullmatch(name) and len(name) <= size_max:
        return None
    return f"{name!r} is not a name: up to {size_max} letters, digits, '.', '_' and '-', no sign first"


def is_legal_topic(name: str) -> bool:
    """Kafka's rule for topic names."""
    return len(name) <= TOPIC_NAME_SIZE_MAX and name not in (".", "..") and _LEGAL.fullmatch(name) is not None


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a regular expression for topics, or None when nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(pattern)
            if _repeats_nothing(_parser.parse(pattern)):
                return f"{pattern!r} repeats more than {EMPTY_REPEATS_MAX:,} times what may be empty"
    except (re.error, OverflowError, FutureWarning) as error:
        return f"{pattern!r} is not a regular expression: {error}"
    except RecursionError:
        return "not a regular expression: nested too deeply"
    return None


def _repeats_nothing(parsed: Any) -> bool:
    """Whether matching takes ages without getting anywhere."""
    if isinstance(parsed, _parser.SubPattern | list | tuple):
        if len(parsed) == 2 and parsed[0] in _REPEATS:
            least, _, repeated = parsed[1]
            if least > EMPTY_REPEATS_MAX and repeated.getwidth()[0] == 0:
                return True
        return any(map(_repeats_nothing, parsed))
    return False


def template_problem(template: str) -> str | None:
    """What is wrong with a topic name template, or None when nothing is."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        return f"not a template: {error}"
    fields = [field for _, field, _, _ in parts if field is not None]
    for _, field, specification, conversion in parts:
        if field is not None and (specification or conversion):
            return f"{{{field}}} takes no conversion and no format"
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        return f"unknown field {{{unknown[0]}}}: there are {{cluster}} and {{topic}}"
    if "topic" not in fields:
        return "lacks {topic}: all topics would get the same name"
    if not is_legal_topic(template.format(cluster="c", topic="t")):
        return "topic names hold only letters, digits, '.', '_' and '-'"
    return INTERNAL_REFUSAL if is_internal(template) else None


def target_problem(target: str) -> str | None:
    """What is wrong with a topic of a destination, or a template of such, that records are sent to; None when
    nothing is.
    """
    if "{" in target or "}" in target:
        return template_problem(target)
    if not is_legal_topic(target):
        legal = f"up to {TOPIC_NAME_SIZE_MAX} letters, digits, '.', '_' and '-'"
        return f"{target!r} is not a topic's name: {legal}"
    return INTERNAL_REFUSAL if is_internal(target) else None


@dataclass(frozen=True, slots=True)
class TopicNaming:
    """The topic rules of one route, compiled. Build it with `compile_naming`."""

    cluster: str
    template: str
    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]

    def selects(self, topic: str) -> bool:
        """Whether the route takes `topic` of the source."""
        if is_internal(topic) or not any(pattern.fullmatch(topic) for pattern in self.include):
            return False
        return not any(pattern.fullmatch(topic) for pattern in self.exclude)

    def unseen(self, topics: Collection[str]) -> frozenset[str]:
        """Topics that patterns name one by one which match none of `topics`."""
        named = (
            names_in(pattern.pattern) for pattern in self.include if not any(map(pattern.fullmatch, topics))
        )
        return frozenset(
            name for names in named for name in names if is_legal_topic(name) and self.selects(name)
        )

    def destination_of(self, topic: str) -> str:
        """The name of the source's `topic` at the destination; too long a one may be illegal there."""
        return self.template.format(cluster=self.cluster, topic=topic)


def compile_naming(cluster: str, selection: TopicSelection) -> TopicNaming:
    """Compile the rules of a route from `cluster`. Raises re.error for a pattern that does not compile."""
    return TopicNaming(
        cluster=cluster,
        template=selection.name,
        include=tuple(re.compile(pattern) for pattern in selection.include),
        exclude=tuple(re.compile(pattern) for pattern in selection.exclude),
    )
