"""All that is done to the records of one source topic: filters first, then the changes in their order. Pure,
but for what is loaded from outside when it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.records.filter_terms import Term
from broker.records.record import Record
from mirrormaker.steps.changes import Change, compile_change
from mirrormaker.steps.conditions import compile_filters, filter_text
from mirrormaker.steps.outside import CallWatch, load_function, read_secret
from mirrormaker.steps.record import RecordAtWork, RecordError
from mirrormaker.topology.further_topics import is_for, topics_elsewhere
from mirrormaker.topology.model import CallFunction, RouteSpec
from mirrormaker.topology.naming import TopicNaming


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSteps:
    """See the module."""

    topic: str
    """At the destination, for records that no step sends elsewhere."""
    elsewhere: tuple[str, ...]
    """Topics that steps may send records to."""
    wanted: Term | None
    changes: tuple[Change, ...]
    text_for_nodes: str
    """The filters, as far as the source's nodes can apply them."""
    called_ns: Callable[[], int] | None
    """How long the functions among the changes have taken until now; None: there are none."""

    @property
    def is_empty(self) -> bool:
        """Nothing is done."""
        return self.wanted is None and not self.changes

    def apply(self, record: Record, partition: int) -> list[RecordAtWork]:
        """What becomes of a record. Raises RecordError."""
        work = RecordAtWork(record, self.topic, partition)
        try:
            if self.wanted is not None and not self.wanted.holds(work):
                return []
            works = [work]
            for change in self.changes:
                works = [made for each in works for made in change(each)]
        except RecursionError:
            raise RecordError("the value is nested too deeply to be written") from None
        return works


def compile_steps(route: RouteSpec, naming: TopicNaming, topic: str) -> TopicSteps:
    """For the source's `topic`. Raises ConfigurationError for functions and secrets that are not there."""
    filters = [each for each in route.filters if is_for(each.topics, topic)]
    steps = [(at, each.step) for at, each in enumerate(route.transforms) if is_for(each.topics, topic)]

    def name(template: str) -> str:
        return template.format(cluster=naming.cluster, topic=topic)

    watch = CallWatch()

    def load(step: CallFunction) -> Change:
        return load_function(step, topic, watch)

    return TopicSteps(
        topic=naming.destination_of(topic),
        elsewhere=topics_elsewhere(route, naming, topic),
        wanted=compile_filters(filters),
        changes=tuple(
            compile_change(
                step,
                names=name,
                function_of=load,
                salt_of=partial(read_secret, f"transforms[{at}].mask.salt"),
            )
            for at, step in steps
        ),
        text_for_nodes=filter_text(filters),
        called_ns=watch.spent_ns if any(isinstance(step, CallFunction) for _, step in steps) else None,
    )
