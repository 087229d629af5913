"""Commands hold a pipeline against daemons and commands on other hosts, at a real node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.topic_admin import NewTopic
from broker.clock import SystemClock
from broker.embedded import EmbeddedCluster
from broker.loopback import LOOPBACK, free_ports
from mirrormaker.pipelines.hold import HeldElsewhereError, held
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.share import PRIZE, SESSION_TIMEOUT_MS, SharedPipeline, client_id, group_of
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.state import StateDirectory
from mirrormaker.topology.loader import load_topology
from tests.client.running import until, until_told
from tests.conftest import ClusterFactory
from tests.daemon.conftest import mirrormaker
from tests.pipelines.test_share import NAME, Daemon, play
from tests.programs import run_program


def pipeline_file(folder: Path, node: EmbeddedCluster, host: str) -> Path:
    """That of a host, which has a `data_dir` of its own."""
    file = folder / f"{host}.yaml"
    loaded = {
        "name": NAME,
        "cluster": "a",
        "topics": {"include": ["flights"]},
        "checkpoint": str(folder / "checkpoint"),
        "sinks": [{"parquet": str(folder / "table")}],
    }
    clusters = {"a": {"bootstrap": [str(address) for address in node.bootstrap]}}
    file.write_text(yaml.safe_dump({"clusters": clusters, "pipelines": [loaded], "data_dir": host}))
    return file


class Command:
    """What a command on a host does about the pipeline, but for what it is for."""

    def __init__(self, file: Path) -> None:
        self.topology = load_topology(file)
        self.lost: list[str] = []

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        with held(self.topology, self.topology.pipelines[0], SystemClock(), self.lost.append):
            yield

    @property
    def refusal(self) -> str | None:
        """Why it may not, None: it may."""
        try:
            with self.holding():
                return None
        except HeldElsewhereError as error:
            return error.reason


@pytest.mark.timeout(180)
def test_of_commands_on_two_hosts_one_is_refused_until_the_other_has_ended(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster()
    one, other = (Command(pipeline_file(tmp_path, node, host)) for host in ("one", "other"))
    with one.holding():
        assert "another daemon or command is to run it" in (other.refusal or "")
        done = mirrormaker("pipeline", "run", str(tmp_path / "other.yaml"), NAME)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"pipeline {NAME!r}: another daemon or command is to run it" in done.stderr
    assert other.refusal is None
    assert one.lost == other.lost == []


@pytest.mark.timeout(180)
def test_a_command_that_is_stopped_does_not_end_as_one_that_has_loaded_all(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster()
    address, topic = str(node.bootstrap[0]), "away.flights"
    made = run_program("broker", "topics", "create", topic, "--bootstrap-server", address, seconds=60)
    assert made.returncode == 0, made.stderr
    file = pipeline_file(tmp_path, node, "one")
    topology = yaml.safe_load(file.read_text())
    topology["clusters"]["away"] = {"bootstrap": [f"{LOOPBACK}:{free_ports(1)[0]}"]}
    topology["routes"] = [{"from": "away", "to": "a", "topics": {"include": ["flights"]}}]
    topology["pipelines"][0] |= {"require": "complete", "topics": {"include": [topic]}}
    file.write_text(yaml.safe_dump(topology))
    runs = PipelineFolder(tmp_path / "one", NAME)
    command = [sys.executable, "-m", "mirrormaker.cli", "pipeline", "run", str(file), NAME]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        asyncio.run(until(lambda: runs.last_run() is not None))
        process.terminate()
        told, _ = process.communicate()
    assert process.returncode == 1
    assert "load stopped" in told


@pytest.mark.timeout(180)
def test_a_command_is_refused_where_a_daemon_elsewhere_holds_the_pipeline_and_daemons_wait_for_commands(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster()
    command = Command(pipeline_file(tmp_path, node, "one"))

    async def main() -> None:
        daemon = Daemon(node, tmp_path, "other")
        with contextlib.ExitStack() as stack:
            await asyncio.to_thread(stack.enter_context, command.holding())
            daemon.begin()
            await until(lambda: daemon.share.reason == "another daemon or command is to run it")
            assert not daemon.runs
            await asyncio.to_thread(stack.close)
        await until(lambda: daemon.runs)
        refusal = await asyncio.to_thread(lambda: command.refusal)
        assert refusal is not None
        assert "the last run was of other on host of other" in refusal
        assert daemon.runs, "nothing has become of it"
        await daemon.end()

    play(main)


async def holders(node: EmbeddedCluster) -> list[str]:
    """The client ids of those that hold the pipeline."""
    async with Cluster(tuple(node.bootstrap)) as client:
        described = (await Admin(client).describe_groups([group_of(NAME)]))[group_of(NAME)]
        return [member.client_id for member in described.members if PRIZE in member.assignment]


async def coordinator_of(node: EmbeddedCluster) -> int:
    async with Cluster(tuple(node.bootstrap)) as client:
        return (await Admin(client).describe_groups([group_of(NAME)]))[group_of(NAME)].coordinator


@pytest.mark.timeout(180)
def test_a_command_beside_the_daemon_that_holds_the_pipeline_goes_by_its_hold_and_then_by_one_of_its_own(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster()
    command = Command(pipeline_file(tmp_path, node, "one"))
    state = StateDirectory(command.topology.data_dir)

    async def main() -> None:
        beside, elsewhere = (Daemon(node, tmp_path, name) for name in (state.daemon_id(), "other"))
        beside.begin()
        await until(lambda: beside.share.is_held)
        with contextlib.ExitStack() as stack, state.locked():
            await asyncio.to_thread(stack.enter_context, command.holding())
            await beside.end()
            await until_told([client_id(state.daemon_id())], lambda: holders(node))
            elsewhere.begin()
            await until(lambda: (elsewhere.share.reason or "").startswith("another daemon"))
            await asyncio.to_thread(stack.close)
        await until(lambda: elsewhere.share.is_held)
        assert command.lost == []
        await elsewhere.end()

    play(main)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_command_goes_by_a_hold_beside_for_no_longer_than_a_session_after_the_last_answer(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster(brokers=2, settings={"offsets.topic.replication.factor": 1})
    command = Command(pipeline_file(tmp_path, node, "one"))
    state = StateDirectory(command.topology.data_dir)

    async def main() -> None:
        beside = Daemon(node, tmp_path, state.daemon_id())
        beside.begin()
        await until(lambda: beside.share.is_held)
        with contextlib.ExitStack() as stack, state.locked():
            await asyncio.to_thread(stack.enter_context, command.holding())
            coordinator = node.pids[await coordinator_of(node)]
            os.kill(coordinator, signal.SIGSTOP)  # the other answers
            stopped = time.monotonic()
            try:
                await until(lambda: command.lost)
                assert time.monotonic() - stopped < SESSION_TIMEOUT_MS / 1000
            finally:
                os.kill(coordinator, signal.SIGCONT)
            await asyncio.to_thread(stack.close)
        await beside.end()

    play(main)


class Unsettled(SharedPipeline):
    """That of a command which its group never tells who holds the pipeline."""

    async def run(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.timeout(180)
def test_a_command_beside_a_daemon_has_lost_its_hold_once_the_group_names_another(
    cluster: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirrormaker.pipelines.hold.SharedPipeline", Unsettled)
    node = cluster()
    command = Command(pipeline_file(tmp_path, node, "one"))
    state = StateDirectory(command.topology.data_dir)

    async def main() -> None:
        beside, elsewhere = (Daemon(node, tmp_path, name) for name in (state.daemon_id(), "other"))
        beside.begin()
        await until(lambda: beside.share.is_held)
        with contextlib.ExitStack() as stack, state.locked():
            await asyncio.to_thread(stack.enter_context, command.holding())
            elsewhere.begin()
            await until(lambda: (elsewhere.share.reason or "").startswith("another daemon"))
            assert command.lost == [], "a rebalance takes nothing from the one that holds it"
            beside.share.give_way()
            await until(lambda: command.lost)
            await asyncio.to_thread(stack.close)
        for daemon in (beside, elsewhere):
            await daemon.end()

    play(main)


@pytest.mark.parametrize("is_secured", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_cluster_that_cannot_be_asked_is_told_with_its_place(tmp_path: Path, is_secured: bool) -> None:
    (port,) = free_ports(1)
    file = tmp_path / "topology.yaml"
    security = ", security: {security.protocol: SSL}" if is_secured else ""
    file.write_text(
        f'clusters: {{a: {{bootstrap: ["{LOOPBACK}:{port}"]{security}}}}}\nroutes: []\npipelines:\n'
        "  - name: p\n    cluster: a\n    topics: {include: [t]}\n    sinks: [{parquet: out}]\n"
    )
    for words in (("run",), ("reload", "--from", "2020-01-01")):
        verb, *options = words
        done = mirrormaker("pipeline", verb, str(file), "p", *options)
        assert done.returncode == 1, words
        assert f"{file}:5: pipelines[0].cluster: cluster 'a': no node can be reached" in done.stderr, words
        assert "it is to be run there" not in done.stderr
    assert not (tmp_path / "out").exists()


async def deny(node: EmbeddedCluster) -> None:
    """Make the topic that is agreed in one that nobody can agree in."""
    async with Cluster(tuple(node.bootstrap)) as client:
        await Admin(client).create_topic(NewTopic(name=CONTROL_TOPIC, partitions=1, replication_factor=1))


@pytest.mark.timeout(180)
def test_where_nobody_can_agree_commands_run_as_daemons_do(cluster: ClusterFactory, tmp_path: Path) -> None:
    """The control topic is not compacted: nothing could be kept in it."""
    node = cluster()
    asyncio.run(deny(node))
    one, other = (Command(pipeline_file(tmp_path, node, host)) for host in ("one", "other"))
    with one.holding():
        assert other.refusal is None
