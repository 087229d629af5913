"""Where a route begins in partitions of which its group has no position; its source is stood in for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker.client.group_offsets import OffsetAndMetadata, OffsetsRefusedError
from broker.client.offsets import Listed, OffsetAndTimestamp
from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow import start
from mirrormaker.flow.books import Written
from mirrormaker.flow.delivery import AtLeast
from mirrormaker.flow.group_positions import GroupPositions, StartingPoint
from mirrormaker.flow.lane_note import noted_place
from mirrormaker.flow.passed_over import Moves
from mirrormaker.flow.position_note import Led, read_note, write_note
from mirrormaker.flow.positions import Place
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.topology.model import PartitionPolicy, Start, StartAtTime, StartPosition
from tests.client.running import run

FLIGHTS, PLANES, GATES = (TopicPartition(topic, 0) for topic in ("flights", "planes", "gates"))
LEADERLESS = TopicPartition("flights", 1)


class Group:
    """A member that stores positions but for those that are refused, and what a person was told."""

    def __init__(self, start_at: StartPosition = Start.EARLIEST, **refused: ErrorCode) -> None:
        self.kept = {GATES: OffsetAndMetadata(offset=7)}
        self.refused = refused
        self.troubles: list[Trouble] = []
        self.events: list[Mapping[str, object]] = []
        self.passed_over: dict[TopicPartition, tuple[int, int]] = {}
        self.notes_refused = False
        self.led: dict[str, Led] = {}
        self.written = Written()
        self.source: Any = SimpleNamespace(topics={}, name="jfk")
        self.positions = GroupPositions(
            self.source,
            self,
            start_at,
            self._take_event,
            self._find_written,
            self.troubles.append,
            lambda topic: self.led.get(topic),
            self._note_forgotten,
        )

    def _take_event(self, name: str, **details: object) -> None:
        self.events.append({"name": name, **details})

    async def _find_written(self, *_: object) -> Written:
        return self.written

    async def _note_forgotten(self, moves: Moves) -> None:
        if moves and self.notes_refused:
            raise ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert not moves.keys() & self.kept.keys(), "notes come before positions"
        self.passed_over |= moves

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        refused = {each: self.refused[each.topic] for each in offsets if each.topic in self.refused}
        self.kept |= {each: at for each, at in offsets.items() if each not in refused}
        if refused:
            raise OffsetsRefusedError({each: ProtocolError(code) for each, code in refused.items()})

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each: self.kept[each] for each in partitions if each in self.kept}


def forgotten(**details: object) -> Mapping[str, object]:
    return {"name": "position_forgotten", "partition": "flights-0", **details}


@pytest.fixture(autouse=True)
def _offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    async def list_offsets_found(
        _: object, wanted: Collection[TopicPartition], *, timeout_ms: float
    ) -> Listed:
        led = dict.fromkeys(wanted, OffsetAndTimestamp(offset=3))
        error = ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE)
        return Listed(led, {} if led.pop(LEADERLESS, None) is None else {LEADERLESS: error})

    monkeypatch.setattr(start, "list_offsets_found", list_offsets_found)


def test_what_is_passed_over_where_a_position_was_forgotten_is_noted_before_another_is_stored() -> None:
    async def main() -> None:
        group = Group()
        group.written, group.notes_refused = Written(forgotten={FLIGHTS: 1}), True
        points = await group.positions.starting_points([FLIGHTS, PLANES])
        assert (points.keys(), group.kept.keys()) == ({PLANES}, {PLANES, GATES})
        assert group.positions.not_started.keys() == {FLIGHTS}
        group.notes_refused = False
        points = await group.positions.starting_points([FLIGHTS, PLANES])
        assert (points[FLIGHTS].lanes, group.kept[FLIGHTS].offset) == ((3,), 3)
        assert group.passed_over == {FLIGHTS: (1, 3)}
        assert group.events == [forgotten(copied_to=1, goes_on="start")]
        assert group.positions.not_started == {}

    run(main)


def test_what_may_not_be_read_is_told_of_and_left_out_and_the_others_begin() -> None:
    async def main() -> None:
        group = Group(flights=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        points = await group.positions.starting_points([FLIGHTS, PLANES, GATES])
        assert points == {PLANES: StartingPoint((3,)), GATES: StartingPoint((7,))}
        (trouble,) = group.troubles
        assert (trouble.kind, trouble.source, trouble.position) == (TroubleKind.UNAUTHORIZED, FLIGHTS, 3)
        assert trouble.problem.endswith("lacks the right to Read topic 'flights' at 'jfk'")
        group.refused = {}
        assert await group.positions.starting_points([FLIGHTS]) == {FLIGHTS: StartingPoint((3,))}

    run(main)


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_a_refusal_of_the_member_is_an_error(code: ErrorCode) -> None:
    async def main() -> None:
        with pytest.raises(OffsetsRefusedError, match=code.name):
            await Group(flights=code, planes=code).positions.starting_points([FLIGHTS, PLANES])

    run(main)


@pytest.mark.parametrize("start_at", [Start.LATEST, StartAtTime(timestamp_ms=5)])
def test_a_partition_without_a_leader_is_told_of_once_and_holds_back_no_other(
    start_at: StartPosition,
) -> None:
    async def main() -> None:
        group = Group(start_at)
        for _ in range(2):
            points = await group.positions.starting_points([LEADERLESS, FLIGHTS, GATES])
            assert points == {FLIGHTS: StartingPoint((3,)), GATES: StartingPoint((7,))}
            group.kept.pop(FLIGHTS)
        (event,) = group.events
        assert (event["name"], event["partition"]) == ("partition_not_started", str(LEADERLESS))
        assert "LEADER_NOT_AVAILABLE" in str(event["error"])

    run(main)


def test_where_copies_go_is_stored_before_anything_is_copied_there_and_told_where_it_changed() -> None:
    async def main() -> None:
        group = Group()
        group.led = {topic: Led(f"new.{topic}", "c") for topic in ("flights", "planes", "gates")}
        old = write_note(NO_TOPIC_ID, "5", Led("old.planes", "c"))
        group.kept[PLANES] = OffsetAndMetadata(offset=9, metadata=old)
        points = await group.positions.starting_points([FLIGHTS, PLANES, GATES])
        assert points[PLANES] == StartingPoint((9,), "5")
        assert {source: (at.offset, at.metadata) for source, at in group.kept.items()} == {
            FLIGHTS: (3, "- - new.flights@c"),
            PLANES: (9, "- 5 new.planes@c"),
            GATES: (7, "- - new.gates@c"),
        }
        expected = {
            "name": "copies_go_elsewhere",
            "topic": "planes",
            "before": "old.planes",
            "now": "new.planes",
        }
        assert group.events == [expected]
        group.refused = {"planes": ErrorCode.GROUP_AUTHORIZATION_FAILED}
        await group.positions.starting_points([FLIGHTS, PLANES, GATES])

    run(main)


def test_a_position_tells_by_which_policy_records_were_spread() -> None:
    async def main() -> None:
        group = Group()
        group.led = {"planes": Led("planes", "c", PartitionPolicy.KEY)}
        await group.positions.starting_points([PLANES])
        assert group.kept[PLANES].metadata == "- - planes/key@c"
        assert not (await group.positions.starting_points([PLANES]))[PLANES].was_spread
        group.led = {"planes": Led("planes", "c", PartitionPolicy.ROUND_ROBIN)}
        assert (await group.positions.starting_points([PLANES]))[PLANES].was_spread
        group.led = {"planes": Led("planes", "c")}
        assert (await group.positions.starting_points([PLANES]))[PLANES].was_spread

    run(main)


def test_what_another_delivery_left_at_the_destination_is_of_the_topic_that_the_group_names() -> None:
    async def main() -> None:
        group, topic_id = Group(), TopicId(UUID(int=1))
        group.source.topics["flights"] = SimpleNamespace(topic_id=topic_id)
        group.kept[FLIGHTS] = OffsetAndMetadata(offset=3, metadata=write_note(topic_id, "", None))
        points = await group.positions.go_on({FLIGHTS: AtLeast(Place((5,)))})
        assert (points[FLIGHTS].lanes, points[FLIGHTS].names_topic) == ((5,), True)

    run(main)


def test_where_a_partition_was_copied_last_goes_before_where_a_route_starts_and_is_stored() -> None:
    async def main() -> None:
        group, topic_id = Group(Start.LATEST), TopicId(UUID(int=1))
        group.source.topics["flights"] = SimpleNamespace(topic_id=topic_id)
        copies = tuple(TopicPartition("jfk.flights", number) for number in range(2))
        group.written = Written({}, {FLIGHTS: Place((11, 8), destinations=copies)})
        points = await group.positions.starting_points([FLIGHTS, PLANES, GATES])
        stood = StartingPoint((11, 8), destinations=copies, names_topic=True)
        assert points == {FLIGHTS: stood, PLANES: StartingPoint((3,)), GATES: StartingPoint((7,))}
        assert {source: at.offset for source, at in group.kept.items()} == {FLIGHTS: 8, PLANES: 3, GATES: 7}
        assert group.events == [forgotten(copied_to=8, goes_on="there")]
        stored = group.kept[FLIGHTS]
        lanes = noted_place(stored.offset, read_note(stored.metadata).note, copies, PartitionPolicy.SAME)
        assert lanes is not None
        assert lanes.lanes == (11, 8)

    run(main)


def test_a_position_that_somebody_has_set_names_no_topic_before_more_is_copied() -> None:
    async def main() -> None:
        group, topic_id = Group(), TopicId(UUID(int=1))
        group.source.topics |= dict.fromkeys(("gates", "planes"), SimpleNamespace(topic_id=topic_id))
        group.led = {topic: Led(f"new.{topic}", "c") for topic in ("gates", "planes")}
        group.kept[PLANES] = OffsetAndMetadata(offset=9, metadata=write_note(topic_id, "", None))
        for _ in range(2):
            points = await group.positions.starting_points([PLANES, GATES])
            assert (points[PLANES].names_topic, points[GATES].names_topic) == (True, False)

    run(main)
