"""Routes with several workers: processes of the daemon that share a route, die and are replaced."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import pytest
import yaml

from broker.embedded import EmbeddedCluster
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from tests.daemon.conftest import MirrorFactory, MirrorProcess, wait_until
from tests.daemon.test_mirror import assert_complete_and_in_order, consume, create, producer

PARTITIONS = 8
TWO_WORKERS = {"resources": {"workers": 2}}


class Daemon:
    """A daemon with workers, and what it tells of itself."""

    def __init__(self, process: MirrorProcess) -> None:
        self.process = process
        topology = yaml.safe_load(process.file.read_text())
        self._state = process.file.parent / topology["data_dir"] / "daemon" / "state.json"

    def start(self) -> None:
        self.process.start()

    def told(self) -> Mapping[str, Any]:
        """The picture that it wrote last, or nothing while there is none of this process."""
        picture: dict[str, Any] = json.loads(self._state.read_text()) if self._state.exists() else {}
        return picture if picture.get("pid") == self.process.pid else {"workers": [], "routes": {}}

    def pids(self) -> dict[int, int]:
        """Of its workers that have told of themselves, by their numbers."""
        return {
            worker["number"]: worker["pid"]
            for worker in self.told()["workers"]
            if worker["state"] == "running"
        }

    def shares(self) -> list[int]:
        """How many partitions each worker copies."""
        return [sum(worker["partitions"].values()) for worker in self.told()["workers"]]

    def wait_at_work(self, workers: int) -> None:
        """Until so many have their share."""
        self.wait_for(lambda: len(self.shares()) == workers and all(self.shares()), "all workers copy")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, what)
        except AssertionError:
            raise AssertionError(f"{what}: {self.told()}\n{self.process.log.read_text()[-6000:]}") from None


class Load:
    """Records of rising numbers, each to the partition of its number, written for as long as it runs."""

    def __init__(self, source: EmbeddedCluster) -> None:
        self.written = 0
        self._source = source
        self._ending = Event()

    @contextmanager
    def running(self) -> Iterator[Load]:
        thread = Thread(target=self._write)
        thread.start()
        try:
            yield self
        finally:
            self._ending.set()
            thread.join()

    def _write(self) -> None:
        writer = producer(self._source)
        while not self._ending.wait(0.02):
            for _ in range(PARTITIONS):
                partition = self.written % PARTITIONS
                writer.produce("flights", b"%d" % self.written, b"%d" % partition, partition=partition)
                self.written += 1
            writer.poll(0)
        assert writer.flush(20) == 0


def acknowledged(daemon: Daemon) -> dict[str, int]:
    """How far each partition is, by what the daemon tells."""
    partitions = daemon.told()["routes"].get("jfk-to-aggregate", {}).get("partitions", {})
    return {name: partition["acknowledged"] for name, partition in partitions.items()}


def totals(daemon: Daemon) -> tuple[int, int]:
    """Records and bytes that the route has copied, by what the daemon tells."""
    told = daemon.told()
    return (
        told["routes"]["jfk-to-aggregate"]["counts"]["records"],
        sum(link["bytes"] for link in told["links"]),
    )


def beats(cluster: EmbeddedCluster) -> list[dict[str, Any]]:
    """Heartbeats that are there."""
    return [json.loads(message.value() or b"") for message in consume(cluster, HEARTBEATS_TOPIC, 1)]


def born_at(cluster: EmbeddedCluster) -> set[int]:
    """When they were born."""
    return {beat["at_ms"] for beat in beats(cluster)}


def kill_workers(daemon: Daemon) -> None:
    """All of them at once, and wait for others in their places."""
    killed = set(daemon.pids().values())
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    daemon.wait_for(
        lambda: len(daemon.pids()) == len(killed) and not killed & set(daemon.pids().values()), "replaced"
    )


def test_workers_share_a_route_and_end_with_their_daemon(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    daemon = Daemon(mirror(source, destination, **TWO_WORKERS))
    daemon.start()
    with Load(source).running() as load:
        daemon.wait_at_work(2)
        daemon.wait_for(lambda: sum(acknowledged(daemon).values()) > 400, "records are copied")
        daemon.wait_for(lambda: daemon.shares() == [4, 4], "both tell of their halves")
    workers = [psutil.Process(pid) for pid in daemon.pids().values()]
    daemon.process.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", PARTITIONS), load.written)
    daemon.process.kill()
    wait_until(lambda: not any(worker.is_running() for worker in workers), "the workers end with it")
    daemon.start()
    daemon.wait_at_work(2)
    workers = [psutil.Process(pid) for pid in daemon.pids().values()]
    assert daemon.process.stop() == 0
    assert not any(worker.is_running() for worker in workers)


def test_a_killed_worker_is_replaced_and_the_partitions_of_the_other_go_on_meanwhile(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    create(source, HEARTBEATS_TOPIC, 1)
    daemon = Daemon(mirror(source, destination, **TWO_WORKERS, heartbeats=True))
    daemon.start()
    with Load(source).running() as load:
        daemon.wait_at_work(2)
        generation = daemon.told()["routes"]["jfk-to-aggregate"]["group_generation"]
        killed = daemon.pids()[1]
        os.kill(killed, signal.SIGKILL)
        reached = acknowledged(daemon)
        counted = [totals(daemon)]

        def is_replaced() -> bool:
            counted.append(totals(daemon))
            return daemon.pids().get(1, killed) != killed and all(daemon.shares())

        daemon.wait_for(is_replaced, "another takes its place")
        for kind in zip(*counted, strict=True):
            assert list(kind) == sorted(kind), "totals do not fall"
        daemon.wait_for(
            lambda: all(acknowledged(daemon).get(name, 0) > before for name, before in reached.items()),
            "all partitions go on",
        )
        assert daemon.told()["routes"]["jfk-to-aggregate"]["group_generation"] == generation
        assert daemon.told()["workers"][0]["restarts"] == 1
    daemon.process.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", PARTITIONS), load.written)
    kill_workers(daemon)
    born = daemon.told()["heartbeats"]["jfk"]["written"]
    daemon.wait_for(
        lambda: born_at(source) <= born_at(destination) and len(born_at(source)) > born + 2,
        "whoever carries them, none is missing",
    )
    assert {beat["daemon"] for beat in beats(source)} == {beats(destination)[0]["daemon"]}, "one writes"


@pytest.mark.timeout(300)
@pytest.mark.long
def test_two_daemons_whose_processes_are_killed_in_turn_lose_nothing_and_are_even_in_the_end(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    daemons = [Daemon(mirror(source, destination, **TWO_WORKERS)) for _ in range(2)]
    for daemon in daemons:
        daemon.start()
    with Load(source).running() as load:
        for _ in range(2):
            for daemon in daemons:
                daemon.wait_at_work(2)
                kill_workers(daemon)
                daemon.wait_at_work(2)
            daemons[0].process.kill()
            daemons[0].start()
        for daemon in daemons:
            daemon.wait_at_work(2)
    daemons[0].process.wait_copied()
    assert [daemon.shares() for daemon in daemons] == [[2, 2], [2, 2]]
    assert_complete_and_in_order(consume(destination, "jfk.flights", PARTITIONS), load.written)


@pytest.mark.long
def test_the_number_of_workers_follows_the_file(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    daemon = Daemon(mirror(source, destination, **TWO_WORKERS))
    daemon.start()
    with Load(source).running() as load:
        daemon.wait_at_work(2)
        first = daemon.pids()[1]
        _write_workers(daemon.process.file, 1)
        daemon.wait_for(
            lambda: not daemon.told()["workers"] and len(acknowledged(daemon)) == PARTITIONS,
            "the daemon has all partitions",
        )
        daemon.wait_for(lambda: not psutil.pid_exists(first), "its process has ended")
        _write_workers(daemon.process.file, 3)
        daemon.wait_at_work(3)
    daemon.process.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", PARTITIONS), load.written)


def _write_workers(file: Path, workers: int) -> None:
    topology = yaml.safe_load(file.read_text())
    topology["routes"][0]["resources"] = {"workers": workers}
    aside = file.with_suffix(".new")
    aside.write_text(yaml.safe_dump(topology))
    aside.replace(file)


def test_workers_copy_whatever_becomes_of_a_file_that_only_a_pipeline_reads(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    running = mirror(source, destination, **TWO_WORKERS)
    columns = running.file.with_name("flights.ddl")
    columns.write_text("carrier string")
    pipeline = {"name": "by-carrier", "cluster": "aggregate", "topics": {"include": ["flights"]}}
    pipeline |= {"format": "json", "schema": f"file:{columns.name}", "sinks": [{"parquet": "there"}]}
    topology = yaml.safe_load(running.file.read_text())
    topology["pipelines"] = [pipeline | {"enabled": False}]
    running.file.write_text(yaml.safe_dump(topology))
    daemon = Daemon(running)
    daemon.start()
    with Load(source).running() as load:
        daemon.wait_at_work(2)
        columns.unlink()
        kill_workers(daemon)
        daemon.wait_at_work(2)
    columns.write_text("carrier string")  # `status` reads the file
    daemon.process.wait_copied()
    assert_complete_and_in_order(consume(destination, "jfk.flights", PARTITIONS), load.written)


def test_a_topic_is_written_by_one_route_whichever_process_runs_it(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    for topic in ("flights", "planes"):
        create(source, topic, 2)
    running = mirror(source, destination, **TWO_WORKERS)
    topology = yaml.safe_load(running.file.read_text())
    (shared,) = topology["routes"]
    shared |= {"name": "by-workers", "topics": {"include": ["flights", "pl.*"], "name": "{topic}"}}
    own = {**shared, "name": "by-the-daemon", "resources": {}}
    own["topics"] = {"include": [".*anes"], "name": "{topic}"}
    topology["routes"] = [shared, own]
    running.file.write_text(yaml.safe_dump(topology))
    daemon = Daemon(running)
    daemon.start()

    def writers() -> dict[str, list[str]]:
        """Which routes copy which topic."""
        told = daemon.told()["routes"]
        return {
            topic: sorted(name for name, route in told.items() if f"{topic}-0" in route["partitions"])
            for topic in ("flights", "planes")
        }

    def is_settled() -> bool:
        told = daemon.told()["routes"]
        refused = [name for name, route in told.items() if "planes" in route.get("obstacles", {})]
        return writers()["flights"] == ["by-workers"] and sorted([*refused, *writers()["planes"]]) == [
            "by-the-daemon",
            "by-workers",
        ]

    daemon.wait_for(is_settled, "each topic has one writer")
    (owner,) = writers()["planes"]
    topology["routes"] = [route for route in topology["routes"] if route["name"] != owner]
    aside = running.file.with_suffix(".new")
    aside.write_text(yaml.safe_dump(topology | {"generation": 2}))
    aside.replace(running.file)
    daemon.wait_for(
        lambda: len(writers()["planes"]) == 1 and writers()["planes"] != [owner], "the other has it"
    )
    assert daemon.process.stop() == 0
