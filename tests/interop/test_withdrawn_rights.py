"""Rights that Apache Kafka withdraws from a route at work, at either end, and gives back."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from broker.client.cluster import Cluster
from broker.embedded import EmbeddedZooKeeper
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.origin_registry import ORIGINS_TOPIC
from mirrormaker.flow.positions import POSITIONS_TOPIC
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.ledger.reading import find_ledger
from mirrormaker.reconcile.control import CONTROL_TOPIC
from tests.client.reading_members import Brokers
from tests.conftest import ClusterFactory
from tests.daemon.conftest import (
    PATIENCE_SECONDS,
    MirrorFactory,
    MirrorProcess,
    mirror,
    mirrormaker,
    wait_until,
)
from tests.daemon.killed_mirrors import PARTITIONS, events, places_at
from tests.daemon.test_mirror import address, create, produce
from tests.daemon.test_planning import plan
from tests.daemon.test_provenance import (
    RECORDS,
    RING,
    assert_everything_once_everywhere,
    is_copied,
    mesh,
    routes_of,
    total,
    write,
)
from tests.daemon.test_provenance import start as start_topic
from tests.interop.apache import ApacheKafka
from tests.interop.kraft import KraftKafka

__all__ = ["mirror"]

SETTINGS = {"allow.everyone.if.no.acl.found": "true"}


@pytest.fixture(scope="module")
def source(
    kafka_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", **SETTINGS}
    chroot = zookeeper.connect_string(f"rights-{uuid.uuid4().hex[:8]}")
    folder = tmp_path_factory.mktemp("source")
    with ApacheKafka(kafka_classpath, chroot, folder, settings=settings) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def destination(newest_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftKafka]:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    folder = tmp_path_factory.mktemp("destination")
    with KraftKafka(
        newest_classpath, folder, settings={"authorizer.class.name": authorizer, **SETTINGS}
    ) as kafka:
        yield kafka


def binding(topic: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        operation,
        permission,
    )


def withdraw(cluster: Brokers, topic: str, operation: AclOperation) -> None:
    """Everybody may do everything to the topic but this."""
    rules = [
        binding(topic, AclOperation.ALL, AclPermissionType.ALLOW),
        binding(topic, operation, AclPermissionType.DENY),
    ]
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for added in admin.create_acls(rules).values():
        added.result(PATIENCE_SECONDS)


def give_back(cluster: Brokers, topic: str, operation: AclOperation) -> None:
    withdrawn = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        None,
        None,
        operation,
        AclPermissionType.DENY,
    )
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for deleted in admin.delete_acls([withdrawn]).values():
        deleted.result(PATIENCE_SECONDS)


def wait_unauthorized(running: MirrorProcess, times: int) -> None:
    troubles = times * PARTITIONS
    told = running.wait_for(
        lambda told: [each["reason"] for each in told["partitions"]] == ["unauthorized"] * PARTITIONS,
        "a right is missing",
    )
    assert {each["state"] for each in told["partitions"]} == {"halted"}
    assert told["state"] == "running"
    assert told["counts"]["troubles"] == {"unauthorized": troubles}
    met = [event["details"] for event in told["events"] if event["name"] == "trouble_met"]
    assert (met[-1]["reason"], len(met)) == ("unauthorized", troubles)
    assert "TOPIC_AUTHORIZATION_FAILED" in met[-1]["problem"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_right_that_is_withdrawn_and_given_back_is_told_and_costs_nothing(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory, delivery: str
) -> None:
    topic = f"flights-{delivery.replace('_', '-')}"
    create(source, topic, PARTITIONS)
    produce(source, topic, range(100), PARTITIONS)
    selection = {"include": [topic], "name": "{topic}"}
    running = mirror(source, destination, name=delivery, topics=selection, delivery=delivery)
    running.start()
    running.wait_copied()
    ends = ((source, AclOperation.READ), (destination, AclOperation.WRITE))
    for count, (cluster, operation) in enumerate(ends, 1):
        withdraw(cluster, topic, operation)
        produce(source, topic, range(count * 100, count * 100 + 100), PARTITIONS)
        wait_unauthorized(running, count)
        give_back(cluster, topic, operation)
        running.wait_copied()
        running.wait_for(
            lambda told: [each["state"] for each in told["partitions"]] == ["copying"] * PARTITIONS, "at work"
        )
    withdraw(source, topic, AclOperation.DESCRIBE)
    told = running.wait_for(lambda told: topic in told["obstacles"], "the topic cannot be seen")
    assert "TOPIC_AUTHORIZATION_FAILED" in told["obstacles"][topic]
    give_back(source, topic, AclOperation.DESCRIBE)
    produce(source, topic, range(300, 400), PARTITIONS)
    running.wait_for(lambda told: told["obstacles"] == {}, "the topic is seen again")
    running.wait_copied()
    found = Counter(number for places in places_at(destination, topic).values() for number in places.values())
    assert found == Counter(range(400))
    assert running.stop() == 0


def transactional_ids(names: str, permission: AclPermissionType) -> AclBinding:
    kind, prefix = ResourceType.TRANSACTIONAL_ID, ResourcePatternType.PREFIXED
    return AclBinding(kind, names, prefix, "User:ANONYMOUS", "*", AclOperation.ALL, permission)


def deny_transactions(cluster: Brokers, names: str = "mirror") -> None:
    """Nobody may do anything with transactional ids of routes that begin so."""
    rules = [
        transactional_ids("mirror", AclPermissionType.ALLOW),
        transactional_ids(names, AclPermissionType.DENY),
    ]
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for added in admin.create_acls(rules).values():
        added.result(PATIENCE_SECONDS)


def allow_transactions(cluster: Brokers) -> None:
    kind, deny = ResourceType.TRANSACTIONAL_ID, AclPermissionType.DENY
    withdrawn = AclBindingFilter(kind, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, deny)
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for deleted in admin.delete_acls([withdrawn]).values():
        deleted.result(PATIENCE_SECONDS)


@pytest.mark.timeout(300)
def test_an_exactly_once_route_tells_which_rights_of_its_own_it_lacks_and_goes_on_once_it_has_them(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    topic = "owned"
    create(source, topic, PARTITIONS)
    produce(source, topic, range(100), PARTITIONS)
    selection = {"include": [topic], "name": "{topic}"}
    running = mirror(source, destination, name="owner", topics=selection, delivery="exactly_once")
    running.start()
    running.wait_copied()
    withdraw(destination, POSITIONS_TOPIC, AclOperation.WRITE)
    produce(source, topic, range(100, 200), PARTITIONS)
    told = running.wait_for(
        lambda told: told["counts"]["troubles"] == {"unauthorized": PARTITIONS}, "nothing can be committed"
    )
    met = [event["details"]["reason"] for event in told["events"] if event["name"] == "trouble_met"]
    assert met == ["unauthorized"] * PARTITIONS
    told = running.wait_for(lambda told: POSITIONS_TOPIC in (told["problem"] or ""), "it says what")
    assert [each["reason"] for each in told["partitions"]] == ["unauthorized"] * PARTITIONS
    give_back(destination, POSITIONS_TOPIC, AclOperation.WRITE)
    running.wait_copied()
    deny_transactions(destination)
    produce(source, topic, range(200, 300), PARTITIONS)
    told = running.wait_for(
        lambda told: [each["reason"] for each in told["partitions"]] == ["unauthorized"] * PARTITIONS,
        "its transactions are refused",
    )
    assert all("mirror/owner/" in each["problem"] for each in told["partitions"])
    withdraw(destination, POSITIONS_TOPIC, AclOperation.READ)
    told = running.wait_for(
        lambda told: {each["state"] for each in told["partitions"]} == {"unreadable"}, "it cannot begin"
    )
    assert all(POSITIONS_TOPIC in each["problem"] for each in told["partitions"])
    code, planned = plan(running.file)
    notices = {(notice["kind"], notice["about"]): notice["message"] for notice in planned["notices"]}
    assert code == 0
    assert "right to Read" in notices["rights", f"owner: {POSITIONS_TOPIC} at 'aggregate'"]
    assert POSITIONS_TOPIC in notices["not_told", "aggregate"]
    give_back(destination, POSITIONS_TOPIC, AclOperation.READ)
    withdraw(destination, CONTROL_TOPIC, AclOperation.WRITE)
    own = {f"owner: {each} at 'aggregate'" for each in (CONTROL_TOPIC, "transactional ids mirror/owner/")}
    wait_until(lambda: lacking_in(plan(running.file)[1]) == own, "a plan tells the same")
    give_back(destination, CONTROL_TOPIC, AclOperation.WRITE)
    allow_transactions(destination)
    running.wait_copied()
    found = Counter(number for places in places_at(destination, topic).values() for number in places.values())
    assert found == Counter(range(300))
    assert running.stop() == 0


def recorded_ends(cluster: Brokers, topic: str) -> dict[int, int | None]:
    """How far the ledger tells of every record of the topic, by partition."""

    async def read() -> dict[int, int | None]:
        async with Cluster(cluster.bootstrap) as client:
            lanes = (await find_ledger(client)).lanes
        ledgers = {lane.partition: ledger for lane, ledger in lanes.items() if lane.topic == topic}
        ends: dict[int, int | None] = {}
        for partition, ledger in ledgers.items():
            offsets = range(ledger.next or 0)
            ends[partition] = next((at for at in offsets if not ledger.forward(at).is_exact), ledger.next)
        return ends

    return asyncio.run(read())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("operation", [AclOperation.DESCRIBE, AclOperation.WRITE])
def test_an_exactly_once_route_goes_on_without_a_ledger_that_it_may_not_keep_any_more(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory, operation: AclOperation
) -> None:
    topic = f"unledgered-{operation.name.lower()}"
    create(source, topic, PARTITIONS)
    produce(source, topic, range(100), PARTITIONS)
    selection = {"include": [topic], "name": "{topic}"}
    running = mirror(source, destination, name=topic, topics=selection, delivery="exactly_once")
    running.start()
    running.wait_copied()
    numbers = itertools.count(100)

    def write_more() -> bool:
        number = next(numbers)
        produce(source, topic, range(number, number + 1), PARTITIONS)
        return False

    withdraw(destination, LEDGER_TOPIC, operation)
    try:
        running.wait_for(lambda told: told["ledger"]["problem"] is not None or write_more(), "it is told")
        told = running.wait_copied()
    finally:
        give_back(destination, LEDGER_TOPIC, operation)
    assert "ledger_not_kept" in [event["name"] for event in told["events"]]
    if operation is AclOperation.DESCRIBE:
        assert told["counts"]["troubles"] == {}, "nothing stands for that"
    running.wait_for(
        lambda told: [each["state"] for each in told["partitions"]] == ["copying"] * PARTITIONS, "at work"
    )
    running.wait_for(lambda told: told["ledger"]["problem"] is None or write_more(), "it is kept again")
    told = running.wait_copied()
    found = Counter(number for places in places_at(destination, topic).values() for number in places.values())
    assert found == Counter(range(next(numbers)))
    ends = {each["partition"]: each["committed"] for each in told["partitions"]}
    running.until(lambda: recorded_ends(destination, topic) == ends, "it tells of all")
    assert running.stop() == 0


@pytest.mark.timeout(300)
def test_an_exactly_once_route_that_may_not_go_on_with_records_from_elsewhere_says_so_until_it_may(
    cluster: ClusterFactory,
    source: ApacheKafka,
    destination: KraftKafka,
    mirror: MirrorFactory,
    tmp_path: Path,
) -> None:
    clusters: dict[str, Brokers] = {"a": cluster("ours"), "b": source, "c": destination}
    start_topic(clusters)
    deny_transactions(destination, "mirror/b-to-c/0/")
    running = mirror.of_file(mesh(tmp_path / "mesh", clusters, RING, delivery="exactly_once", buckets=1))
    running.start()
    write(clusters, "a")

    def stands() -> set[tuple[str, str | None]]:
        return {(each["state"], each["reason"]) for each in routes_of(running)[1]["partitions"]}

    wait_until(lambda: stands() == {("halted", "unauthorized")}, "what was not born there waits for a right")
    told = routes_of(running)[1]
    assert told["counts"]["troubles"] == {"unauthorized": len(told["partitions"])}
    assert all("mirror/b-to-c/0/from:" in each["problem"] for each in told["partitions"])
    for name in ("b", "c"):
        write(clusters, name)
    allow_transactions(destination)
    wait_until(lambda: all(total(each) >= 3 * RECORDS for each in clusters.values()), "all everywhere")
    wait_until(lambda: is_copied(running), "nothing is left to copy")
    assert_everything_once_everywhere(clusters)
    wait_until(lambda: stands() == {("copying", None)}, "at work")
    assert running.stop() == 0


@pytest.mark.timeout(300)
def test_a_route_that_may_not_say_where_its_batches_come_from_stands_until_it_may(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    topic = "registered"
    create(source, topic, PARTITIONS)
    produce(source, topic, range(100), PARTITIONS)
    selection = {"include": [topic], "name": "{topic}"}
    running = mirror(source, destination, name=topic, topics=selection, provenance=True)
    withdraw(destination, ORIGINS_TOPIC, AclOperation.WRITE)
    try:
        running.start()
        wait_unauthorized(running, 1)
        lacking = {f"{topic}: {ORIGINS_TOPIC} at 'aggregate'"}
        wait_until(lambda: lacking_in(plan(running.file)[1]) == lacking, "a plan tells the same")
        given_up = [each for each in events(running, "batch_given_up") if each["topic"] == ORIGINS_TOPIC]
        assert len(given_up) <= 1
    finally:
        give_back(destination, ORIGINS_TOPIC, AclOperation.WRITE)
    running.wait_copied()
    found = Counter(number for places in places_at(destination, topic).values() for number in places.values())
    assert found == Counter(range(100))
    assert running.stop() == 0


@pytest.mark.timeout(300)
def test_a_plan_tells_which_topics_may_not_be_created_and_makes_none(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    for topic in ("made", "unmade"):
        create(source, topic, 1)
    selection = {"include": ["made", "unmade"], "name": "planned.{topic}"}
    file = mirror(source, destination, name="planned", topics=selection).file
    denied, allowed = (
        (AclOperation.CREATE, AclPermissionType.DENY),
        (AclOperation.ALL, AclPermissionType.ALLOW),
    )
    of_cluster = ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL
    of_topics = ResourceType.TOPIC, "planned.un", ResourcePatternType.PREFIXED
    rules = [
        AclBinding(*resource, "User:ANONYMOUS", "*", *rule)
        for rule in (allowed, denied)
        for resource in (of_topics, of_cluster)
    ]
    admin = AdminClient({"bootstrap.servers": address(destination)})
    for added in admin.create_acls(rules).values():
        added.result(PATIENCE_SECONDS)
    try:
        expected = {"planned: cluster 'aggregate', for 'planned.unmade'"}
        wait_until(lambda: lacking_in(plan(file)[1]) == expected, "the rules hold at all nodes")
        assert not [name for name in admin.list_topics().topics if name.startswith("planned.")]
    finally:
        for kind, name, pattern in (of_cluster, of_topics):
            given = AclBindingFilter(kind, name, pattern, None, None, *denied)
            for deleted in admin.delete_acls([given]).values():
                deleted.result(PATIENCE_SECONDS)


def lacking_in(planned: dict[str, Any]) -> set[str]:
    return {notice["about"] for notice in planned["notices"] if notice["kind"] == "rights"}


def states_in(told: dict[str, Any]) -> Counter[tuple[str, str]]:
    return Counter((each["topic"], each["state"]) for each in told["partitions"])


@pytest.mark.timeout(300)
def test_a_topic_that_may_be_seen_but_not_read_from_the_beginning_holds_back_no_other(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    closed, opened = "closed-gates", "open-gates"
    for topic in (closed, opened):
        create(source, topic, PARTITIONS)
        produce(source, topic, range(100), PARTITIONS)
    withdraw(source, closed, AclOperation.READ)
    selection = {"include": [closed, opened], "name": "{topic}"}
    running = mirror(source, destination, name="gates", topics=selection)
    running.start()
    copied_alone = Counter({(opened, "copying"): PARTITIONS, (closed, "halted"): PARTITIONS})
    told = running.wait_for(lambda told: states_in(told) == copied_alone, "the other topic is copied")
    assert (told["state"], told["counts"]["troubles"]) == ("running", {"unauthorized": PARTITIONS})
    reasons = {each["reason"] for each in told["partitions"] if each["topic"] == closed}
    assert reasons == {"unauthorized"}
    give_back(source, closed, AclOperation.READ)
    running.wait_copied()
    for topic in (closed, opened):
        found = [number for places in places_at(destination, topic).values() for number in places.values()]
        assert sorted(found) == list(range(100))
    assert running.stop() == 0


GROUPS = "mirror"
"""What groups of routes begin with. Names of single resources cannot have a slash here."""


def group_binding(operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    kind, prefix = ResourceType.GROUP, ResourcePatternType.PREFIXED
    return AclBinding(kind, GROUPS, prefix, "User:ANONYMOUS", "*", operation, permission)


def deny_groups(cluster: Brokers) -> None:
    """Everybody may do everything to groups of routes but read them."""
    rules = [
        group_binding(AclOperation.ALL, AclPermissionType.ALLOW),
        group_binding(AclOperation.READ, AclPermissionType.DENY),
    ]
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for added in admin.create_acls(rules).values():
        added.result(PATIENCE_SECONDS)


def allow_groups(cluster: Brokers) -> None:
    kind, prefix, deny = ResourceType.GROUP, ResourcePatternType.PREFIXED, AclPermissionType.DENY
    withdrawn = AclBindingFilter(kind, GROUPS, prefix, None, None, AclOperation.READ, deny)
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for deleted in admin.delete_acls([withdrawn]).values():
        deleted.result(PATIENCE_SECONDS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", ["pause_partition", "fail"])
def test_a_route_that_may_not_read_its_own_group_says_so_and_goes_on_once_it_may(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory, policy: str
) -> None:
    topic = f"grouped-{policy.replace('_', '-')}"
    create(source, topic, PARTITIONS)
    produce(source, topic, range(100), PARTITIONS)
    selection = {"include": [topic], "name": "{topic}"}
    running = mirror(source, destination, name=policy, topics=selection, on={"unauthorized": policy})
    running.start()
    running.wait_copied()
    deny_groups(source)
    produce(source, topic, range(100, 150), PARTITIONS)
    told = running.wait_for(lambda told: told["state"] == "failed", "it cannot take part in its group")
    assert "GROUP_AUTHORIZATION_FAILED" in told["problem"]
    produce(source, topic, range(150, 200), PARTITIONS)
    told = running.wait_for(lambda told: bool(told["events"]), "told")
    (met,) = [event["details"] for event in told["events"] if event["name"] == "trouble_met"]
    assert (met["reason"], met["policy"], met["group"]) == ("unauthorized", policy, f"mirror/{policy}")
    if policy == "fail":
        running.wait_for(lambda told: "resume it" in (told["problem"] or ""), "it stands")
    allow_groups(source)
    if policy == "fail":
        assert mirrormaker("resume", str(running.file), policy).returncode == 0
    running.wait_copied()
    running.wait_for(lambda told: told["state"] == "running", "at work")
    running.wait_for(
        lambda told: [event["name"] for event in told["events"]].count("trouble_passed") == 1, "that is told"
    )
    found = Counter(number for places in places_at(destination, topic).values() for number in places.values())
    assert found == Counter(range(200))
    assert running.stop() == 0


@pytest.mark.timeout(300)
def test_heartbeats_go_between_clusters_of_apache_kafka_and_without_rights_the_route_goes_on_alone(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    create(source, HEARTBEATS_TOPIC, 1)
    withdraw(source, HEARTBEATS_TOPIC, AclOperation.WRITE)
    create(source, "flights-heard", 1)
    produce(source, "flights-heard", range(100), 1)
    selection = {"include": ["flights-heard"], "name": "{topic}"}
    running = mirror(source, destination, name="heard", topics=selection, heartbeats=True)
    running.start()
    running.wait_copied()
    wait_until(
        lambda: "jfk: no heartbeats are written there" in mirrormaker("status", str(running.file)).stdout,
        "told",
    )
    give_back(source, HEARTBEATS_TOPIC, AclOperation.WRITE)

    def beat(told: dict[str, Any]) -> dict[str, Any] | None:
        """The last one of the source itself: it may have some of others, from tests before."""
        return next((each for each in told["heartbeats"].values() if each["name"] == "jfk"), None)

    told = running.wait_for(lambda told: beat(told) is not None, "heartbeats arrive")
    heard = beat(told)
    assert heard is not None
    assert heard["path"] == ["heard"]
    withdraw(destination, HEARTBEATS_TOPIC, AclOperation.WRITE)
    told = running.wait_for(lambda told: told["counts"]["troubles"] == {"unauthorized": 1}, "refused there")
    met = [event["details"]["partition"] for event in told["events"] if event["name"] == "trouble_met"]
    assert met == [f"{HEARTBEATS_TOPIC}-0"]
    produce(source, "flights-heard", range(100, 200), 1)
    told = running.wait_copied()
    assert told["state"] == "running"
    give_back(destination, HEARTBEATS_TOPIC, AclOperation.WRITE)
    last = heard["born_ms"]
    running.wait_for(
        lambda told: (heard := beat(told)) is not None and heard["born_ms"] > last + 2_000, "they go on"
    )
    assert running.stop() == 0
