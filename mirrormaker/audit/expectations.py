"""What a route should make of each partition of its source, as the topology and its clusters say. Pure."""

from __future__ import annotations

from dataclasses import replace

from broker.types import TopicPartition
from mirrormaker.audit.expectation import Expectation, LanePlaces
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.route_view import RouteView
from mirrormaker.flow.obstacles import Aside
from mirrormaker.flow.transit import PartitionSteps
from mirrormaker.steps.topic_steps import TopicSteps, compile_steps
from mirrormaker.topology.further_topics import is_for
from mirrormaker.topology.model import CallFunction, PartitionPolicy
from mirrormaker.topology.naming import compile_naming


class Expectations:
    """Of one route; the steps of a topic are compiled once."""

    def __init__(self, view: RouteView, *, with_sums: bool = False) -> None:
        """`with_sums`: records have checksums."""
        self._view = view
        self._with_sums = with_sums
        self._naming = compile_naming(view.route.source, view.route.topics)
        self._steps: dict[str, TopicSteps] = {}

    def of(
        self,
        source: TopicPartition,
        to: TopicPartition,
        number: int,
        *,
        is_wide: bool = False,
        tells_filtered: bool = False,
        known: Pass | None = None,
        told_to: int = 0,
    ) -> Expectation:
        """What the lane of that number should have of the source; `is_wide`: with the others to its topic.
        `tells_filtered`, `known`, `told_to`: see `Expectation`.
        """
        view = self._view
        route = view.route
        steps = self._steps_of(source.topic)
        is_aside = number > 0  # to which only steps, or what they cannot process, lead
        is_spread = route.topics.partitions is not PartitionPolicy.SAME or view.lanes[source].is_spread()

        def compiled(steps: TopicSteps) -> PartitionSteps:
            return PartitionSteps(steps, view.lanes[source], route.topics.partitions, source.partition)

        return Expectation(
            lane=number,
            is_wide=is_wide,
            steps=compiled(steps) if is_aside or is_spread or not steps.is_empty else None,
            unfiltered=compiled(replace(steps, wanted=None)) if steps.wanted is not None else None,
            tells_filtered=tells_filtered,
            has_function=any(
                isinstance(each.step, CallFunction) and is_for(each.topics, source.topic)
                for each in route.transforms
            ),
            letters=self._letters(source),
            letters_of=view.letters,
            notes=view.notes_of(source),
            returned=view.returned.get(source, ()),
            carried_ids=view.carried_ids,
            copied_to=view.copied_to(source),
            with_time=to.topic not in view.timed_destinations,
            with_sums=self._with_sums,
            known=known,
            told_to=told_to,
            copied=[
                each for _, there in view.data_lanes(source) for each in view.passes.get((source, there), ())
            ],
            parked=[
                each
                for number, there in view.data_lanes(source)
                if number == view.lanes[source].parked_lane
                for each in view.passes.get((source, there), ())
            ],
            places=self._places(source) if is_spread else None,
        )

    def _letters(self, source: TopicPartition) -> Aside | None:
        route, parked_lane = self._view.route, self._view.lanes[source].parked_lane
        if parked_lane is None:
            return None
        return Aside(route=route.name, source=source, policies=route.on, parked_lane=parked_lane)

    def _places(self, source: TopicPartition) -> LanePlaces:
        view = self._view
        passes = {
            number: view.passes[source, to]
            for number, to in view.data_lanes(source)
            if (source, to) in view.passes
        }
        return LanePlaces(view.lanes[source].targets.values(), passes)

    def _steps_of(self, topic: str) -> TopicSteps:
        if topic not in self._steps:
            self._steps[topic] = compile_steps(self._view.route, self._naming, topic)
        return self._steps[topic]
