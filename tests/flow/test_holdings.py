"""What a copier has of its group; what is around it is stood in for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.types import TopicPartition
from mirrormaker.flow.holdings import Holdings
from tests.plan.worlds import route
from tests.storage.samples import ManualClock

SOURCE, OTHER = TopicPartition("flights", 0), TopicPartition("planes", 0)


def ignore(*_: object) -> None:
    pass


def test_the_share_is_what_the_group_gave_last_also_while_nothing_of_it_is_copied() -> None:
    engine: Any = SimpleNamespace(
        machine=SimpleNamespace(partitions={}, assign=ignore, release=ignore),
        reader=SimpleNamespace(spread=ignore),
        writer=SimpleNamespace(look_up_leaders=ignore, pump=ignore),
        mode=SimpleNamespace(joined=ignore, leaving=ignore),
        crossing=SimpleNamespace(outgrown=ignore),
        arbiter=SimpleNamespace(joined=ignore, left=ignore),
    )
    parts: Any = SimpleNamespace(books=None, halts=None, events=SimpleNamespace(note=ignore))
    member: Any = SimpleNamespace(assignment=frozenset(), subscribe=ignore)
    source: Any = None
    holdings = Holdings(route(), source, engine, parts, ManualClock(), ignore)
    holdings.begin(member, ["flights", "planes"])
    assert holdings.share is None
    member.assignment = frozenset({SOURCE, OTHER})
    holdings.take((), {})
    member.assignment = frozenset()
    holdings.release([SOURCE, OTHER])
    assert holdings.share == {SOURCE, OTHER}
    holdings.set_topics(["flights"])
    assert holdings.share == {SOURCE}
    holdings.take((), {})
    assert holdings.share == frozenset()
