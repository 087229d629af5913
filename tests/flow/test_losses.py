"""What at most once may have lost is noted by one task, however much is lost at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import random
from types import SimpleNamespace
from typing import Any

import pytest

from broker.client.backoff import Backoff
from broker.errors import ConnectionFailedError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.flow import losses
from mirrormaker.flow.losses import Loss, LossNotes
from mirrormaker.topology.model import RouteName
from tests.client.running import run, until
from tests.storage.samples import ManualClock


class Notes(LossNotes):
    """Refused once, then written."""

    def __init__(self) -> None:
        destination: Any = SimpleNamespace(backoff=Backoff(initial_ms=1, max_ms=1), random=random)
        super().__init__(RouteName("a"), destination, ManualClock())
        self.written: list[list[Loss]] = []
        self.failures = 1

    async def write(self, losses: Iterable[Loss]) -> None:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise ConnectionFailedError("away")
        self.written.append(list(losses))


def test_what_is_lost_at_once_is_noted_together_once_that_can_be() -> None:
    lost = [Loss(TopicPartition("flights", number), 5, 9) for number in range(1200)]

    async def main() -> None:
        notes = Notes()
        async with asyncio.TaskGroup() as tasks:
            for loss in lost:
                notes.keep(loss, tasks)
            await until(lambda: sum(map(len, notes.written)) == len(lost))
            assert list(map(len, notes.written)) == [500, 500, 200]
            notes.keep(lost[0], tasks)
        assert notes.written[-1] == lost[:1]

    run(main)


def refusing(monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> LossNotes:
    """Of a destination that has no topic for notes, and answers so where one is made."""

    class Refused:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def __aenter__(self) -> None:
            raise ProtocolError(code, "no such topics here")

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(losses, "KeptTopic", Refused)
    destination: Any = None
    return LossNotes(RouteName("a"), destination, ManualClock())


@pytest.mark.parametrize("code", [ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REPLICATION_FACTOR])
def test_a_topic_for_notes_that_is_refused_for_good_keeps_no_route_from_going_on(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = refusing(monkeypatch, code)
    run(lambda: notes.write([Loss(TopicPartition("t", 0), 1, 2)]))


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_where_a_note_may_be_taken_later_the_loss_is_not_passed_over(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = refusing(monkeypatch, code)
    with pytest.raises(ProtocolError, match="no such topics here"):
        run(lambda: notes.write([Loss(TopicPartition("t", 0), 1, 2)]))
