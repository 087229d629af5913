"""What the source is about to delete goes first where bandwidth is short."""

from __future__ import annotations

from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.bandwidth.link import DANGER_WEIGHT, LinkBandwidth, RouteBandwidth, RouteTerms
from mirrormaker.flow.chunk import Chunk, Frame
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.room import Kind

SIZE = 1_000


def chunk() -> Chunk:
    return Chunk(
        records=bytearray(),
        batches=1,
        frame=Frame(SIZE),
        first_offset=0,
        next_offset=1,
        first_timestamp=0,
        max_timestamp=0,
        count=1,
        size=SIZE,
    )


class Sender:
    """A partition with a lane that always has something to send."""

    def __init__(self, topic: str) -> None:
        at = TopicPartition(topic, 0)
        self.partition = Partition(at, [at], 0, 0, 1 << 20)
        self.lane: Lane = self.partition.lanes[0]
        self.lane.leader, self.lane.state = BrokerId(1), LaneState.COPYING
        self.lane.queue.append(chunk())
        self.sent = 0


def run(route: RouteBandwidth, senders: list[Sender], until_ms: int) -> None:
    for now_ms in range(0, until_ms, 10):
        lanes = {sender.lane: sender for sender in senders}
        asked = list(lanes)
        while asked:
            for lane in asked:
                while route.may_send(lane, lane.queue[0], now_ms):
                    lanes[lane].sent += SIZE
            asked = route.take_admitted(now_ms)


def test_of_one_route_it_gets_several_times_what_others_get() -> None:
    endangered, usual = Sender("endangered"), Sender("usual")
    terms = RouteTerms(limit=100 * SIZE, is_in_danger=lambda partition: partition is endangered.partition)
    route = LinkBandwidth(0).join("r", terms, lambda: None)
    route.change(terms, 0)
    run(route, [endangered, usual], 10_000)
    assert endangered.sent > 0.9 * DANGER_WEIGHT * usual.sent
    assert usual.sent > 0


def test_the_limit_for_old_records_is_not_for_it() -> None:
    endangered, old = Sender("endangered"), Sender("old")
    terms = RouteTerms(
        catch_up_limit=10 * SIZE,
        limit=100 * SIZE,
        is_behind=lambda _partition, _now_ms: True,
        is_in_danger=lambda partition: partition is endangered.partition,
    )
    route = LinkBandwidth(0).join("r", terms, lambda: None)
    route.change(terms, 0)
    run(route, [endangered, old], 10_000)
    assert old.sent <= 10 * SIZE * 11
    assert endangered.sent >= 80 * SIZE * 10
    assert route.kind(endangered.partition, 0) is Kind.ENDANGERED
    assert route.kind(old.partition, 0) is Kind.OLD
