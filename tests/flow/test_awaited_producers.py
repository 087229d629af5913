"""A destination that gives no producer ids for want of a right, or takes no note of them: partitions that
await one say so, and go on by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.errors import BrokerError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.types import BrokerId, TopicPartition
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from mirrormaker.flow.exchange import Assignment, FlowConfig
from mirrormaker.flow.facts import Fact, PartitionPaused, PartitionRecovered
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey, ProducerProblem
from mirrormaker.flow.standing import Standing, standing_of
from mirrormaker.flow.trouble import TroubleKind
from mirrormaker.flow.writer import DestinationWriter
from mirrormaker.topology.model import FailurePolicies, FailurePolicy
from tests.client.leaders import ProducingPeer
from tests.client.peers import serving
from tests.client.running import QUICK, run, until
from tests.flow.test_arbiter import SOURCE, Scene

SOURCES = [TopicPartition("flights", number) for number in range(2)]
COPIES = [TopicPartition("t", number) for number in range(2)]
POSITION = 5
COPYING = Standing(state="copying")
NO_RIGHT = "CLUSTER_AUTHORIZATION_FAILED: the mirror lacks the right to IdempotentWrite cluster 'a cluster'"
ORIGINS = "topic __mirrormaker_origins"
Obtain = Callable[[ProducerKey], Awaitable[ProducerIdentity]]
Introduce = Callable[[int, Callable[[str], None]], Awaitable[None]]


class Writing:
    """Two partitions and their writer, toward a scripted node."""

    def __init__(
        self,
        cluster: Cluster,
        tasks: asyncio.TaskGroup,
        obtain: Obtain | None = None,
        introduce: Introduce | None = None,
    ) -> None:
        self.facts: list[Fact] = []
        self.machine = FlowMachine(FlowConfig())
        self.writer = DestinationWriter(
            cluster,
            self.machine,
            tasks,
            SystemClock(),
            on_acknowledged=lambda: None,
            on_fact=self.facts.append,
            obtain_identity=obtain,
            introduce=introduce,
        )
        self.machine.set_leaders(dict.fromkeys(COPIES, BrokerId(1)))
        self.machine.assign(
            Assignment(source=source, destinations=(copy,), bucket=0, position=POSITION)
            for source, copy in zip(SOURCES, COPIES, strict=True)
        )
        self.writer.pump()
        self.performing = tasks.create_task(self.writer.perform())

    @property
    def standings(self) -> set[Standing]:
        return {standing_of(partition) for partition in self.machine.partitions.values()}


def paused(said: str, code: ErrorCode) -> list[Fact]:
    return [
        PartitionPaused(source=source, destination=copy, error=code, offset=POSITION, said=said)
        for source, copy in zip(SOURCES, COPIES, strict=True)
    ]


def test_a_missing_right_to_producer_ids_is_told_once_of_each_partition_and_so_is_its_end() -> None:
    async def main() -> None:
        peer, refusals = ProducingPeer(), []

        def refuse(request: InitProducerIdRequest) -> InitProducerIdResponse:
            refusals.append(request)
            return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        peer.on(InitProducerIdRequest, refuse)
        async with (
            serving([peer], partitions=2) as scripted,
            Cluster(scripted.bootstrap, backoff=QUICK, name="a cluster") as cluster,
            asyncio.TaskGroup() as tasks,
        ):
            writing = Writing(cluster, tasks)
            await until(lambda: len(refusals) > 3)
            assert writing.facts == paused(NO_RIGHT, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            problem = f"destination: {NO_RIGHT}"
            assert writing.standings == {Standing(state="halted", reason="unauthorized", problem=problem)}
            writing.facts.clear()
            peer.on(InitProducerIdRequest, lambda _: InitProducerIdResponse(producer_id=7))
            await until(lambda: writing.standings == {COPYING} and bool(writing.facts))
            failures = len(refusals)
            assert writing.facts == [
                PartitionRecovered(source=source, failures=failures) for source in SOURCES
            ]
            writing.performing.cancel()

    with capture_logs() as logs:
        run(main)
    assert [each["failures"] for each in logs if each["event"] == "producer_id_not_obtained"] == [1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ORIGINS), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS, ORIGINS), None),
        (RequestTimedOutError(f"{ORIGINS}: not written within 60000 ms"), None),
    ],
    ids=["a right", "another refusal", "no answer"],
)
def test_an_id_that_cannot_be_registered_is_shown_and_told_where_a_right_is_missing(
    error: BrokerError, code: ErrorCode | None
) -> None:
    """`code`: the one that is told."""
    tries: list[ProducerKey] = []

    async def main() -> None:
        mended = asyncio.Event()

        async def obtain(key: ProducerKey) -> ProducerIdentity:
            tries.append(key)
            if not mended.is_set():
                raise error
            return ProducerIdentity(7, 0)

        async with (
            serving([ProducingPeer()], partitions=2) as scripted,
            Cluster(scripted.bootstrap, backoff=QUICK) as cluster,
            asyncio.TaskGroup() as tasks,
        ):
            writing = Writing(cluster, tasks, obtain)
            await until(lambda: len(tries) > 3)
            assert writing.facts == ([] if code is None else paused(str(error), code))
            shown = ("awaiting_producer", None) if code is None else ("halted", "unauthorized")
            standing = Standing(state=shown[0], reason=shown[1], problem=f"destination: {error}")
            assert writing.standings == {standing}
            mended.set()
            await until(lambda: writing.standings == {COPYING})
            writing.performing.cancel()

    run(main)


def test_why_an_id_is_not_noted_yet_is_shown_while_its_partitions_wait_for_that() -> None:
    """As where the destination has no room."""

    async def main() -> None:
        mended = asyncio.Event()

        async def introduce(_: int, on_failure: Callable[[str], None]) -> None:
            on_failure("not written within 10000 ms")
            await mended.wait()

        async with (
            serving([ProducingPeer()], partitions=2) as scripted,
            Cluster(scripted.bootstrap, backoff=QUICK) as cluster,
            asyncio.TaskGroup() as tasks,
        ):
            writing = Writing(cluster, tasks, introduce=introduce)
            waiting = Standing(state="awaiting_producer", problem="destination: not written within 10000 ms")
            await until(lambda: writing.standings == {waiting})
            mended.set()
            await until(lambda: writing.standings == {COPYING})
            assert writing.facts == []
            writing.performing.cancel()

    run(main)


@pytest.mark.parametrize("policy", [FailurePolicy.PAUSE_PARTITION, FailurePolicy.FAIL])
def test_the_policy_for_missing_rights_is_about_producer_ids_too(policy: FailurePolicy) -> None:
    scene = Scene(FailurePolicies(unauthorized=policy))
    machine = scene.machine
    machine.rewind([SOURCE])
    (key,) = machine.ready(0).producers
    machine.producer_failed(key, ProducerProblem(NO_RIGHT, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 1))
    for fact in machine.ready(0).facts:
        scene.run(lambda fact=fact: scene.arbiter.take_fact(fact))
    assert machine.counts.troubles == {TroubleKind.UNAUTHORIZED: 1}
    refusal = scene.arbiter.failure if policy is FailurePolicy.FAIL else scene.arbiter.refusal(SOURCE)
    assert refusal is not None
    assert refusal.problem == f"destination: {NO_RIGHT}"
    assert scene.ends == (policy is FailurePolicy.FAIL)
    machine.set_producer(key, ProducerIdentity(8, 0))
    for fact in machine.ready(0).facts:
        scene.run(lambda fact=fact: scene.arbiter.take_fact(fact))
    assert scene.arbiter.refusal(SOURCE) is None
