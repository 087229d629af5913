"""Routes, writers and faults drawn by chance: readers of committed records find at the destination what its
delivery promises, and both audits agree.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Message

from broker.embedded import EmbeddedCluster
from tests.chaos.disturbance import Disturbance
from tests.chaos.random_routes import CopiedTopic, RandomRoute, RandomWriter, create_topics, draw_route, id_of
from tests.daemon.audits import audit, found
from tests.daemon.conftest import MirrorFactory, MirrorProcess
from tests.daemon.killed_mirrors import read

pytestmark = pytest.mark.timeout(900)
SCENARIOS = 6
SCENARIO_SECONDS = 15.0
AUDIT_SECONDS = 300.0
RECORD = tuple[str, bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
"""Id, key, value, time, headers."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MirrorFactory]:
    """Mirrors that end with the scenario."""
    with ExitStack() as stack:
        yield MirrorFactory(tmp_path, stack)


@pytest.mark.parametrize("scenario", range(SCENARIOS))
def test_every_route_delivers_what_it_promises(
    node: EmbeddedCluster,
    other_node: EmbeddedCluster,
    make: MirrorFactory,
    chance: random.Random,
    scenario: int,
) -> None:
    route = draw_route(chance)
    create_topics(route, node, other_node, chance)
    writers = [
        RandomWriter(node, route.topics, f"writer-{number}", random.Random(chance.random()))
        for number in range(chance.choice([1, 2, 3]))
    ]
    mirrors = [make(node, other_node, **route.settings) for _ in range(chance.choice([1, 1, 2]))]
    for writer in writers:
        writer.start()
    disturbance = Disturbance(chance, seconds=SCENARIO_SECONDS)
    disturbance.pause(0.0, 3.0)
    for mirror in mirrors:
        mirror.start()
    for _ in disturbance:
        disturb(disturbance, mirrors, node, other_node)
    for writer in writers:
        writer.finish()
    partitions = sum(topic.partitions for topic in route.topics)
    for mirror in mirrors:
        mirror.wait_for(
            lambda told: (
                bool(told["lag"]) and (told["lag"]["messages"], len(told["partitions"])) == (0, partitions)
            ),
            f"everything copied by {route.settings}",
        )
    for topic in route.topics:
        check(route, topic, node, other_node)
    for options in ([], ["--deep"]):
        code, told = audit(mirrors[0].file, *options, seconds=AUDIT_SECONDS)
        assert (code, found(told)) == (0, []), (route.settings, options, told["outcomes"], found(told)[:20])


def disturb(
    disturbance: Disturbance,
    mirrors: Sequence[MirrorProcess],
    source: EmbeddedCluster,
    destination: EmbeddedCluster,
) -> None:
    """Break one process, or nothing."""
    mirror = disturbance.chance.choice(mirrors)
    match disturbance.chance.choice(["kill", "kill", "stop", "freeze", "source", "destination", "nothing"]):
        case "kill":
            mirror.kill()
            mirror.start()
        case "stop":
            mirror.stop()
            mirror.start()
        case "freeze":
            assert mirror.pid is not None
            disturbance.freeze(mirror.pid, 0.1, 8.0)
        case "source":
            disturbance.crash(source)
        case "destination":
            disturbance.crash(destination)


def check(
    route: RandomRoute, topic: CopiedTopic, source: EmbeddedCluster, destination: EmbeddedCluster
) -> None:
    """Each record as it was, as often and in the order that the delivery promises."""
    wanted = records_of(source, topic.name, topic.partitions)
    wanted = {number: [each for each in part if route.takes(each[0])] for number, part in wanted.items()}
    came = records_of(destination, topic.copy, topic.copies)
    originals = {each[0]: each for part in wanted.values() for each in part}
    for part in came.values():
        for each in part:
            assert each == originals.get(each[0]), (route.settings, topic, each)
    numbers = [each[0] for part in came.values() for each in part]
    if route.delivery != "at_most_once":
        missing = originals.keys() - set(numbers)
        assert not missing, (route.settings, topic, len(missing), sorted(missing)[:20])
    if route.delivery != "at_least_once":
        assert len(numbers) == len(set(numbers)), (route.settings, topic)
    for part in wanted.values():
        places = {each[0]: place for place, each in enumerate(part)}
        for number, copies in came.items():
            order = [places[each[0]] for each in copies if each[0] in places]
            assert_in_order(
                order, may_go_back=route.delivery == "at_least_once", where=(route.settings, topic, number)
            )


def assert_in_order(order: Sequence[int], *, may_go_back: bool, where: object) -> None:
    """Later ones come behind earlier ones; or, where some are repeated, none is first seen before one that
    precedes it.
    """
    reached = -1
    for place in order:
        assert place > reached or may_go_back, (where, place, reached)
        reached = max(reached, place)
    firsts = list(dict.fromkeys(order))
    assert firsts == sorted(firsts), (where, firsts[:20])


def records_of(cluster: EmbeddedCluster, topic: str, partitions: int) -> Mapping[int, list[RECORD]]:
    """What readers of committed records get, by partition."""
    records: dict[int, list[RECORD]] = defaultdict(list)
    for message in read(cluster, topic, "read_committed", partitions):
        records[message.partition() or 0].append(_record(message))
    return records


def _record(message: Message) -> RECORD:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return (id_of(message), message.key(), message.value(), message.timestamp()[1], headers)
