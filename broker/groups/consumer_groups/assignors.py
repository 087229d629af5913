"""How a coordinator hands out partitions: `uniform` and `range`. Pure, and the same for the same input.

Both give every partition of a topic to exactly one of the members that want the topic, and both leave with a
member what it had where they can.

uniform: as evenly as the subscriptions allow. Members that all want the same topics differ by one partition
at most; where they want different ones, no chain of hand-overs would even it out further.

range: each topic in runs of neighbouring partitions, in the same order of members for all topics that are
wanted by the same members, so that partitions of equal number meet at one member (as joins need it).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from broker.groups.consumer_groups.members import NOTHING, Partitions, TopicIdPartition
from broker.groups.consumer_groups.topics import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """A member as an assignor sees it: the topics it wants, and what it was to have before."""

    topics: frozenset[Topic]
    before: Partitions = NOTHING
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]
Assignments = dict[str, Partitions]
Assignor = Callable[[Members], Assignments]


def assign_uniformly(members: Members) -> Assignments:
    """The `uniform` assignor."""
    wanted = {member.topics for member in members.values()}
    if len(wanted) == 1:
        return _assign_equals(members, _all_partitions(wanted.pop()))
    return _Balance(members).assignments()


def _all_partitions(topics: frozenset[Topic]) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic.topic_id, number)
        for topic in sorted(topics, key=lambda each: each.name)
        for number in range(topic.partition_count)
    ]


def _assign_equals(members: Members, partitions: Sequence[TopicIdPartition]) -> Assignments:
    """Everyone wants the same: each keeps up to its share, the rest fills up those who have less."""
    existing = frozenset(partitions)
    share, larger_shares = divmod(len(partitions), len(members))
    kept: dict[str, list[TopicIdPartition]] = {}
    # Those who had most come first, so that the larger shares go where they cost no move.
    for member_id in sorted(members, key=lambda each: (-len(members[each].before & existing), each)):
        had = sorted(members[member_id].before & existing, key=_order)
        room = share + 1 if larger_shares and len(had) > share else share
        larger_shares -= room > share
        kept[member_id] = had[:room]
    taken = {partition for partitions_kept in kept.values() for partition in partitions_kept}
    left = iter([partition for partition in partitions if partition not in taken])
    for member_id in sorted(kept, key=lambda each: (len(kept[each]), each)):
        has = kept[member_id]
        while len(has) < share:
            has.append(next(left))
    for partition, member_id in zip(
        left, sorted(each for each in kept if len(kept[each]) == share), strict=False
    ):
        kept[member_id].append(partition)
    return {member_id: frozenset(has) for member_id, has in kept.items()}


def _order(partition: TopicIdPartition) -> tuple[int, int]:
    return partition.topic_id.int, partition.partition


class _Balance:
    """Members that want different topics: partitions go from hand to hand until nothing gets more even."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._subscribers: dict[Topic, list[str]] = defaultdict(list)
        for member_id in sorted(members):
            for topic in members[member_id].topics:
                self._subscribers[topic].append(member_id)
        self._held: dict[str, dict[Topic, list[int]]] = {
            member_id: {topic: [] for topic in members[member_id].topics} for member_id in sorted(members)
        }
        self._load = dict.fromkeys(self._held, 0)
        self._before = {
            partition: member_id for member_id, member in members.items() for partition in member.before
        }

    def assignments(self) -> Assignments:
        """Keep, hand out what is left, and even out."""
        # Topics that few can take come first: who wants many can make up for it with the others.
        for topic in sorted(self._subscribers, key=lambda each: (len(self._subscribers[each]), each.name)):
            self._hand_out(topic)
        while any(self._relieve(member_id) for member_id in self._held):
            pass
        return {
            member_id: frozenset(
                TopicIdPartition(topic.topic_id, number)
                for topic, numbers in held.items()
                for number in numbers
            )
            for member_id, held in self._held.items()
        }

    def _hand_out(self, topic: Topic) -> None:
        subscribers = self._subscribers[topic]
        for number in range(topic.partition_count):
            owner = self._before.get(TopicIdPartition(topic.topic_id, number))
            if owner is None or topic not in self._held[owner]:
                owner = min(subscribers, key=lambda each: self._load[each])
            self._held[owner][topic].append(number)
            self._load[owner] += 1

    def _relieve(self, member_id: str) -> bool:
        """Pass a partition of this member on, through others if need be, to one that has two fewer."""
        came_from: dict[str, tuple[str, Topic]] = {}
        reached = deque([member_id])
        while reached:
            giver = reached.popleft()
            for topic, numbers in self._held[giver].items():
                if not numbers:
                    continue
                for taker in self._subscribers[topic]:
                    if taker == member_id or taker in came_from:
                        continue
                    came_from[taker] = giver, topic
                    if self._load[taker] <= self._load[member_id] - 2:
                        self._pass_on(taker, came_from, member_id)
                        return True
                    reached.append(taker)
        return False

    def _pass_on(self, taker: str, came_from: Mapping[str, tuple[str, Topic]], first: str) -> None:
        self._load[first] -= 1
        self._load[taker] += 1
        while taker != first:
            giver, topic = came_from[taker]
            self._held[taker][topic].append(self._held[giver][topic].pop())
            taker = giver


def assign_ranges(members: Members) -> Assignments:
    """The `range` assignor."""
    subscribers: dict[Topic, list[str]] = defaultdict(list)
    for member_id in sorted(members):
        for topic in members[member_id].topics:
            subscribers[topic].append(member_id)
    alike: dict[tuple[str, ...], list[Topic]] = defaultdict(list)
    for topic, wanting in subscribers.items():
        alike[tuple(wanting)].append(topic)
    given: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    for wanting_alike, topics in alike.items():
        order = _range_order(members, wanting_alike, topics)
        for topic in topics:
            _assign_range(topic, order, given)
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _range_order(members: Members, wanting: Sequence[str], topics: Sequence[Topic]) -> list[str]:
    """Members by where their runs began before, so that runs grow and shrink but do not jump; new ones last,
    by instance id or member id.
    """
    topic_ids = {topic.topic_id for topic in topics}

    def place(member_id: str) -> tuple[float, str]:
        member = members[member_id]
        begins = min((each.partition for each in member.before if each.topic_id in topic_ids), default=None)
        name = member.instance_id if member.instance_id is not None else member_id
        return float("inf") if begins is None else begins, name

    return sorted(wanting, key=place)


def _assign_range(topic: Topic, order: Sequence[str], given: Mapping[str, set[TopicIdPartition]]) -> None:
    share, larger_shares = divmod(topic.partition_count, len(order))
    begin = 0
    for index, member_id in enumerate(order):
        end = begin + share + (index < larger_shares)
        given[member_id].update(TopicIdPartition(topic.topic_id, number) for number in range(begin, end))
        begin = end


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By the names that members ask for them with."""
