"""The ledger of a daemon between real clusters: what it says is what is there, also after kill -9."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.embedded import EmbeddedCluster
from broker.errors import AuthenticationError, RequestTimedOutError
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.books import BooksStanding, ReadSoFar
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Entry
from mirrormaker.flow.read_epochs import ReadEpochs
from mirrormaker.flow.returned import Returned
from mirrormaker.ledger import route_ledger
from mirrormaker.ledger.lane_id import LEDGER_TOPIC, LaneId, page_record
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.producer_note import ProducerNote
from mirrormaker.ledger.reading import find_ledger
from mirrormaker.ledger.route_ledger import RouteLedger
from mirrormaker.ledger.view import LedgerView
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import RouteSpec
from tests.client.reading_members import Brokers
from tests.client.running import until
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, mirrormaker, wait_until
from tests.daemon.test_mirror import consume, create, produce, producer
from tests.programs import run_program


def ledgers_at(destination: EmbeddedCluster) -> dict[int, LaneLedger]:
    """What the ledger says, by partition."""
    return {lane.partition: ledger for lane, ledger in lanes_at(destination).items()}


def lanes_at(destination: EmbeddedCluster) -> dict[LaneId, LaneLedger]:
    """What the ledger says, by lane."""
    return dict(asyncio.run(read_at(destination))[0].lanes)


async def read_at(destination: EmbeddedCluster) -> tuple[LedgerView, TopicId]:
    """The ledger, and which topic that is; nothing where there is none."""
    async with Cluster(destination.bootstrap) as client:
        view = await find_ledger(client)
        known = client.topics.get(LEDGER_TOPIC)
        return view, NO_TOPIC_ID if known is None else known.topic_id


def translated(file: str, *arguments: str) -> list[str]:
    """What `translate` says of one place."""
    done = mirrormaker("translate", file, "jfk-to-aggregate", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n").split("\t")[3:]


def wait_recorded(destination: EmbeddedCluster, ends: Sequence[int]) -> dict[int, LaneLedger]:
    """Until the ledger reaches these source offsets."""
    found: dict[int, LaneLedger] = {}

    def reaches() -> bool:
        found.clear()
        found.update(ledgers_at(destination))
        return all(number in found and found[number].next == end for number, end in enumerate(ends))

    wait_until(reaches, f"the ledger reaches {ends}")
    return found


def test_a_partition_copied_as_it_is_has_one_page_that_grows(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    running = mirror(source, destination)
    running.start()
    for first in range(0, 2000, 500):
        produce(source, "flights", range(first, first + 500), 2)
        ledgers = wait_recorded(destination, [(first + 500) // 2] * 2)
        assert [len(ledger) for ledger in ledgers.values()] == [1, 1]
    file = str(running.file)
    assert translated(file, "flights", "1", "617") == ["jfk.flights", "1", "617", "copied", "exact"]
    assert translated(file, "flights", "1", "1000")[2:] == ["1000", "end", "exact"]
    assert translated(file, "flights", "0", "1005")[2:] == ["1000", "beyond", "careful"]
    assert translated(file, "jfk.flights", "0", "3", "--back") == ["flights", "0", "3", "copied", "exact"]
    refused = mirrormaker("translate", file, "jfk-to-aggregate", "flights", "7", "1")
    assert (refused.returncode, refused.stderr) == (1, "nothing of flights-7 is in the ledger\n")
    places = "flights:1:617\nflights:7:1\nplanes:0:1\nflights:7:2\nflights:0:3\n"
    words = ["translate", file, "jfk-to-aggregate"]
    several = run_program("mirrormaker", *words, stdin=places, seconds=PATIENCE_SECONDS)
    assert [line.split("\t")[1:6:4] for line in several.stdout.splitlines()] == [["1", "617"], ["0", "3"]]
    assert several.stderr.splitlines() == [
        "nothing of flights-7 is in the ledger",
        "the route does not take the topic 'planes'",
    ]
    assert several.returncode == 1
    for ledger in ledgers.values():
        (page,) = ledger.pages()
        assert (page.first, page.next, page.to_first, page.to_next, page.count) == (0, 1000, 0, 1000, 1000)
        assert ledger.forward(617).offset == ledger.back(617).offset == 617


def test_no_record_is_sent_before_it_is_noted_by_whom_however_long_that_takes(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_ledger, "READ_TIMEOUT_MS", 0)  # as where it takes longer to reach the ledger
    monkeypatch.setattr(route_ledger, "RETRY_MS", 100)
    put, late = KeptTopic.put, iter([True])
    read_to_end, early = KeptTopic.read_to_end, iter([True])

    async def read_late(topic: KeptTopic, *, awaits_transactions: bool = True) -> None:
        if next(early, False):
            raise RequestTimedOutError("not read in time")
        await read_to_end(topic, awaits_transactions=awaits_transactions)

    async def put_late(topic: KeptTopic, entries: Iterable[Entry]) -> None:
        if next(late, False):  # as in a process that stood still for longer than that may take
            raise RequestTimedOutError("not written in time")
        await put(topic, entries)

    monkeypatch.setattr(KeptTopic, "put", put_late)
    monkeypatch.setattr(KeptTopic, "read_to_end", read_late)
    (route,) = load_topology(mirror(*clusters).file).routes
    told: list[str] = []
    assert asyncio.run(introduced(route, *clusters, told.append)) == {7, 8}
    assert told == ["not written in time"]


def test_a_ledger_that_is_on_its_way_is_not_read_yet(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group that is carried by half a ledger is put to the first record."""
    read_to_end, may_end = KeptTopic.read_to_end, asyncio.Event()

    async def read_slowly(topic: KeptTopic, **_: bool) -> None:
        await may_end.wait()
        await read_to_end(topic)

    async def main(route: RouteSpec) -> None:
        source, destination = clusters
        async with Cluster(source.bootstrap) as near, Cluster(destination.bootstrap) as far:
            ledger = RouteLedger(route, near, far, SystemClock())
            running = asyncio.create_task(ledger.run())
            await ledger.introduce(7, pytest.fail)
            assert not ledger.is_read
            may_end.set()
            await until(lambda: ledger.is_read)
            running.cancel()
            await asyncio.wait([running])
            assert not ledger.is_read

    monkeypatch.setattr(KeptTopic, "read_to_end", read_slowly)
    (route,) = load_topology(mirror(*clusters).file).routes
    asyncio.run(main(route))


def test_an_exactly_once_route_keeps_its_ledger_again_a_while_after_it_was_refused(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic is at hand all the while: nothing but another attempt tells that the right is there again."""
    source = TopicPartition("flights", 0)

    async def main(route: RouteSpec) -> None:
        near_by, far_off = clusters
        async with Cluster(near_by.bootstrap) as near, Cluster(far_off.bootstrap) as far:
            ledger = RouteLedger(route, near, far, SystemClock())
            bucket = ledger.of_bucket(lambda: None)
            copy = TopicPartition("copy", 0)
            assignment = Assignment(source=source, destinations=(copy,), bucket=0, position=0)
            ledger.begin([assignment], {source: ReadSoFar(ReadEpochs(0, -1), Returned())})
            async with at_work(ledger):
                await until(lambda: bucket.standing is BooksStanding.KEPT)
                bucket.refused()
                assert bucket.standing is BooksStanding.REFUSED
                ledger.lose(source, TopicPartition("copy", 0), 1, 2)
                ledger.lose(source, TopicPartition("copy", 0), 3, 4)
                assert (ledger.recorder.pending_pages, ledger.pages_given_up) == (3, 0)
                monkeypatch.setattr(route_ledger, "PENDING_PAGES_MAX", 2)
                monkeypatch.setattr(route_ledger, "REFUSED_MS", 0)
                bucket.refused()
                assert bucket.standing is BooksStanding.KEPT
                assert (ledger.recorder.pending_pages, ledger.pages_given_up) == (1, 2), "it is bounded"
                assert "lacks the right to Write" in (ledger.problem or ""), "not before it has been written"
                assert bucket.due({source: (5,)})
                bucket.settled()
                assert ledger.problem is None

    (route,) = load_topology(mirror(*clusters, delivery="exactly_once").file).routes
    asyncio.run(main(route))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_ledger_whose_following_has_failed_for_good_is_taken_up_anew(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    monkeypatch: pytest.MonkeyPatch,
    delivery: str,
) -> None:
    read_on = KeptTopic._read_on
    passwords = iter([False])

    async def refuse_once(topic: KeptTopic) -> None:
        if not next(passwords, True):
            raise AuthenticationError("another password is set")
        await read_on(topic)

    async def main(route: RouteSpec) -> None:
        source, destination = clusters
        async with Cluster(source.bootstrap) as near, Cluster(destination.bootstrap) as far:
            ledger, told = RouteLedger(route, near, far, SystemClock()), list[str]()
            ledger.note = lambda event, **_: told.append(event)
            async with at_work(ledger):
                await until(lambda: ledger.is_read)
                monkeypatch.setattr(KeptTopic, "_read_on", refuse_once)
                await until(lambda: told == ["ledger_not_kept"])
                async with KeptTopic(far, LEDGER_TOPIC) as another:
                    await another.put([ProducerNote(near.cluster_id, 9).record(0)])
                await until(lambda: ledger.is_read and 9 in ledger.view.producers(near.cluster_id))
                assert ledger.problem is None
                assert ledger.standing is BooksStanding.KEPT

    monkeypatch.setattr(route_ledger, "RETRY_MS", 100)
    (route,) = load_topology(mirror(*clusters, delivery=delivery).file).routes
    asyncio.run(main(route))


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once", "exactly_once"])
def test_a_ledger_is_kept_small_though_the_copies_of_a_former_topic_are_gone(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    monkeypatch: pytest.MonkeyPatch,
    delivery: str,
) -> None:
    """As after the name of copies was changed, or where the copy was made anew with fewer partitions."""
    source, copy = TopicPartition("flights", 0), TopicPartition("copy", 0)
    places = [copy, TopicPartition("copy", 9), TopicPartition("absent", 0)]

    async def main(route: RouteSpec) -> None:
        near_by, far_off = clusters
        async with Cluster(near_by.bootstrap) as near, Cluster(far_off.bootstrap) as far:
            await near.refresh([source.topic])
            ledger = RouteLedger(route, near, far, SystemClock())
            own = ledger.lane(source, copy)
            former = [
                own._replace(topic_id="another", to=each.topic, to_partition=each.partition)
                for each in places
            ]
            assignment = Assignment(source=source, destinations=(copy,), bucket=0, position=30)
            ledger.begin([assignment], {source: ReadSoFar(ReadEpochs(30, -1), Returned())})
            async with at_work(ledger):
                await until(lambda: ledger.is_read)
                await ledger.put([page_record(lane, page_of(0, 10)) for lane in former])
                await ledger.put([page_record(own, page_of(first, first + 10)) for first in (0, 10, 20)])
                if delivery == "exactly_once":  # transactions bring them
                    await until(lambda: len(ledger.upkeep.get(source, ())) == 4)
                    await ledger.put(ledger.upkeep[source])
                await until(lambda: ledger.view.lanes.keys() == {own, former[0]})
                assert [page.next for page in ledger.view.lanes[own].pages()] == [20, 30]

    monkeypatch.setattr(route_ledger, "UPKEEP_MS", 0)
    monkeypatch.setattr(route_ledger, "STARTS_TIMEOUT_MS", 100)
    create(clusters[0], source.topic, 1)
    create(clusters[1], copy.topic, 1)
    (route,) = load_topology(mirror(*clusters, delivery=delivery).file).routes
    asyncio.run(main(route))


def page_of(first: int, following: int) -> Page:
    """A page of records that are at the same offsets there."""
    page = Page(first)
    page.add_run(first, first, following - first)
    return page


@asynccontextmanager
async def at_work(ledger: RouteLedger) -> AsyncIterator[None]:
    """For some time: what is waited for within comes, or fails."""
    running = asyncio.create_task(ledger.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def introduced(
    route: RouteSpec, source: EmbeddedCluster, destination: EmbeddedCluster, on_failure: Callable[[str], None]
) -> set[int]:
    """The producers that the ledger tells of as soon as one has been introduced by a process that has just
    begun, and another by one that has lost the ledger once.
    """
    async with Cluster(source.bootstrap) as near, Cluster(destination.bootstrap) as far:
        ledger = RouteLedger(route, near, far, SystemClock())
        running = asyncio.create_task(ledger.run())
        await ledger.introduce(7, on_failure)
        await until(lambda: ledger.problem is not None)
        await ledger.introduce(8, on_failure)
        running.cancel()
        return set((await find_ledger(far)).producers(near.cluster_id))


def test_whose_copies_there_are_is_noted_also_in_a_ledger_that_was_made_anew(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    running = mirror(source, destination)
    running.start()
    produce(source, "flights", range(10), 1)
    wait_recorded(destination, [10])
    view, first_id = asyncio.run(read_at(destination))
    (lane,) = view.lanes
    producers = set(view.producers(lane.cluster))
    assert producers
    admin = AdminClient({"bootstrap.servers": ",".join(map(str, destination.bootstrap))})
    for deleted in admin.delete_topics([LEDGER_TOPIC]).values():
        deleted.result(PATIENCE_SECONDS)

    def is_noted() -> bool:
        view, topic_id = asyncio.run(read_at(destination))
        return topic_id not in (NO_TOPIC_ID, first_id) and set(view.producers(lane.cluster)) == producers

    running.until(is_noted, "they are noted again")


def test_markers_and_aborted_records_are_between_and_a_killed_daemon_leaves_no_hole(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    running = mirror(source, destination, commit_interval_ms=300)
    running.start()
    for number in range(12):
        produce_transaction(source, range(number * 10, number * 10 + 10), is_committed=number % 3 != 1)
        if number in (4, 8):  # when it has recorded something: what was copied before that is before all
            wait_until(lambda: bool(ledgers_at(destination)), "something is in the ledger")
            running.kill()
            running.start()
    ledger = wait_recorded(destination, [12 * 11])[0]
    there = [
        (message.offset(), int(message.value() or b"")) for message in consume(destination, "jfk.flights", 1)
    ]
    wanted = {number for number in range(120) if number // 10 % 3 != 1}
    assert {number for _, number in there} == wanted
    for offset in range(12 * 11):
        told = ledger.forward(offset)
        assert told.offset is not None
        number = offset // 11 * 10 + offset % 11
        left = {each for at, each in there if at >= told.offset}
        assert {each for each in wanted if each >= number} <= left
    assert all(ledger.back(at).offset is not None for at, _ in there)


def produce_transaction(source: Brokers, numbers: range, *, is_committed: bool) -> None:
    writer = producer(source, **{"transactional.id": "writer"})
    writer.init_transactions(30)
    writer.begin_transaction()
    for number in numbers:
        writer.produce("flights", b"%d" % number, partition=0)
    if is_committed:
        writer.commit_transaction(30)
    else:
        writer.flush(30)
        writer.abort_transaction(30)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_each_way_of_a_partition_that_is_spread_has_a_ledger(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    create(destination, "jfk.flights", 3)
    running = mirror(
        source, destination, topics={"include": ["flights"], "partitions": "key"}, delivery=delivery
    )
    running.start()
    produce(source, "flights", range(300), 2)
    here = {
        int(each.value() or b""): (each.partition(), each.offset()) for each in consume(source, "flights", 2)
    }
    running.wait_copied()
    ends = [sum(partition == number for partition, _ in here.values()) for number in range(2)]

    def reaches() -> bool:
        nexts = [(lane.partition, ledger.next) for lane, ledger in lanes_at(destination).items()]
        return len(nexts) == 6 and all(at == ends[partition] for partition, at in nexts)

    wait_until(reaches, "the ledger tells of everything")
    lanes = {(lane.partition, lane.to_partition): ledger for lane, ledger in lanes_at(destination).items()}
    for message in consume(destination, "jfk.flights", 3, 300):
        partition, offset = here[int(message.value() or b"")]
        ledger = lanes[partition or 0, message.partition() or 0]
        forward, back = ledger.forward(offset or 0), ledger.back(message.offset() or 0)
        assert (forward.offset, back.offset) == (message.offset(), offset)
        assert forward.is_exact
        assert back.is_exact


@pytest.mark.long
def test_a_partition_that_is_read_ahead_is_copied_once_in_order_without_aborted_records(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    for number in range(60):
        produce_transaction(source, range(number * 10, number * 10 + 10), is_committed=number % 3 != 1)
    running = mirror(source, destination, resources={"fetch_bytes": 2000, "fetch_partition_bytes": 2000})
    topology = yaml.safe_load(running.file.read_text())
    topology["clusters"]["jfk"]["round_trip_ms"] = 150  # so it is asked as one that is far
    running.file.write_text(yaml.safe_dump(topology))
    running.start()
    wait_recorded(destination, [60 * 11])
    there = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1)]
    assert there == [number for number in range(600) if number // 10 % 3 != 1]
    running.wait_for(lambda told: told["link"]["fetches_at_a_time"] == 3, "asked as one that is far")
    assert running.stop() == 0
