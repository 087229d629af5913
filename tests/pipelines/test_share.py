"""Daemons that have one pipeline agree on who runs it, at a real node; the processes of runs are stood in
for.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.topic_admin import NewTopic
from broker.clock import SystemClock
from broker.embedded import EmbeddedCluster
from mirrormaker.pipelines.keeper import PipelineKeeper
from mirrormaker.pipelines.orders import RunEnd, RunOrder
from mirrormaker.pipelines.pool import keep_shared
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_marks import RunMark, claim_key, mark_key, read_mark, why_to_stand_by
from mirrormaker.pipelines.share import SESSION_TIMEOUT_MS, SharedPipeline, ShareWish
from mirrormaker.pipelines.turns import Turns
from mirrormaker.reconcile.control import CONTROL_TOPIC, Claim, read_claim
from mirrormaker.reconcile.topology_file import TopologyText
from mirrormaker.topology.model import (
    ClusterName,
    ClusterSpec,
    PipelineName,
    PipelineSpec,
    RetrySpec,
    ScheduleSpec,
)
from tests.client.running import until
from tests.conftest import ClusterFactory

SOURCE = TopologyText(text="", file=Path("topology.yaml"))
NAME = PipelineName("p")
PATIENCE_SECONDS = 120.0


class Run:
    """A run that lasts until it is told to end, with the code that it is given."""

    pid = 1

    def __init__(self) -> None:
        self.code = 0
        self.over = asyncio.Event()
        self.until_ms: float | None = None

    async def ended(self) -> RunEnd:
        await self.over.wait()
        return RunEnd(code=self.code, record={} if self.code == 0 else {"problem": "no luck"})

    def terminate(self) -> None:
        self.over.set()

    def kill(self) -> None:
        self.over.set()

    def extend(self, until_ms: float | None) -> None:
        self.until_ms = until_ms

    def end(self, code: int) -> None:
        self.code = code
        self.over.set()


class Daemon:
    """What a daemon does about the pipeline."""

    def __init__(
        self, node: EmbeddedCluster, folder: Path, name: str, *, generation: int = 0, is_bound: bool = False
    ) -> None:
        spec = ClusterSpec(name=ClusterName("a"), bootstrap=tuple(node.bootstrap))
        self.orders: list[RunOrder] = []
        self.run: Run | None = None
        wish = ShareWish(cluster=spec, generation=generation, digest="same", is_bound=is_bound)
        self.share = SharedPipeline(NAME, wish, name, f"host of {name}", SystemClock())
        self.keeper = PipelineKeeper(
            PipelineSpec(
                name=NAME, schedule=ScheduleSpec(every_ms=1), retry=RetrySpec(attempts=1, backoff_ms=1)
            ),
            SOURCE,
            PipelineFolder(folder / name, NAME),
            SystemClock(),
            "info",
            turns=Turns(1),
            share=self.share,
            start=self._start,  # type: ignore[arg-type]
        )
        self._task: asyncio.Task[None] | None = None

    async def _start(self, order: RunOrder) -> Run:
        self.orders.append(order)
        self.run = Run()
        return self.run

    def begin(self) -> None:
        self._task = asyncio.create_task(keep_shared(self.keeper, self.share))

    @property
    def runs(self) -> bool:
        return self.keeper.pid is not None

    async def end(self) -> None:
        """As a daemon does that is stopped."""
        assert self._task is not None
        self.keeper.end()
        await self._task


def play(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await main()

    asyncio.run(bounded())


@pytest.mark.timeout(180)
def test_one_daemon_runs_a_pipeline_and_another_goes_on_where_its_run_was_cut_short(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster()

    async def main() -> None:
        one, other = (Daemon(node, tmp_path, name) for name in ("one", "other"))
        one.begin()
        await until(lambda: one.runs)
        other.begin()
        await until(lambda: "of one on host of one" in (other.share.reason or ""))
        assert one.run is not None
        one.run.end(0)
        await until(lambda: len(one.orders) == 2 and one.runs)
        assert (other.runs, other.keeper.describe()["state"]) == (False, "standing_by")
        await one.end()
        await until(lambda: other.runs)
        assert [order.due_ms for order in other.orders] == [one.orders[1].due_ms]
        assert other.keeper.describe()["standing_by"] is None
        await other.end()

    play(main)


@pytest.mark.timeout(180)
@pytest.mark.long
def test_a_daemon_ends_though_others_cannot_be_told_what_has_become_of_a_run(
    cluster: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirrormaker.pipelines.share.TIMEOUT_MS", 3_600_000)
    node = cluster()

    async def main() -> None:
        one = Daemon(node, tmp_path, "one")
        one.begin()
        await until(lambda: one.runs)
        assert one.run is not None
        os.kill(node.pids[1], signal.SIGSTOP)
        try:
            one.run.end(0)
            await until(lambda: not one.runs)
            await one.end()
        finally:
            os.kill(node.pids[1], signal.SIGCONT)
        other = Daemon(node, tmp_path, "other")
        other.begin()
        await until(lambda: other.runs)
        await other.end()

    play(main)


@pytest.mark.timeout(180)
def test_a_run_may_go_on_for_a_session_from_the_last_heartbeat_that_was_answered(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster()

    async def main() -> None:
        daemon = Daemon(node, tmp_path, "one")
        daemon.begin()
        await until(lambda: daemon.runs)
        assert daemon.run is not None
        (order,) = daemon.orders
        first = order.held_until_ms
        assert first is not None
        assert first <= asyncio.get_running_loop().time() * 1000 + SESSION_TIMEOUT_MS
        await until(lambda: (daemon.run.until_ms or 0) > first)
        assert daemon.run.until_ms <= asyncio.get_running_loop().time() * 1000 + SESSION_TIMEOUT_MS
        await daemon.end()

    play(main)


@pytest.mark.timeout(180)
def test_a_daemon_whose_runs_fail_lets_others_try(cluster: ClusterFactory, tmp_path: Path) -> None:
    node = cluster()

    async def main() -> None:
        one, other = (Daemon(node, tmp_path, name) for name in ("one", "other"))
        one.begin()
        await until(lambda: one.runs)
        other.begin()
        await until(lambda: "of one on host of one" in (other.share.reason or ""))
        assert one.run is not None
        one.run.end(1)
        await until(lambda: other.runs)
        assert not one.runs
        assert (other.orders[0].due_ms or 0) > (one.orders[0].due_ms or 0), "the next that is due"
        assert one.keeper.describe()["problem"] == "no luck"
        await other.end()
        await until(lambda: len(one.orders) == 2)
        assert one.orders[1].due_ms == other.orders[0].due_ms
        await one.end()

    play(main)


@pytest.mark.timeout(180)
def test_a_daemon_with_a_newer_file_takes_over_and_the_run_of_the_older_ends_first(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster()

    async def main() -> None:
        old, new = Daemon(node, tmp_path, "old"), Daemon(node, tmp_path, "new", generation=1)
        old.begin()
        await until(lambda: old.runs)
        new.begin()
        await until(lambda: new.runs)
        assert not old.runs
        assert "generation 1" in (old.share.reason or "")
        for daemon in (old, new):
            await daemon.end()

    play(main)


@pytest.mark.timeout(180)
def test_what_is_noted_in_the_data_dir_of_one_daemon_no_other_goes_on_with(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster()

    async def main() -> None:
        one, other = (Daemon(node, tmp_path, name, is_bound=True) for name in ("one", "other"))
        one.begin()
        await until(lambda: one.runs)
        other.begin()
        await until(lambda: "data_dir of the daemon one on host of one" in (other.share.reason or ""))
        await one.end()
        again = Daemon(node, tmp_path, "one", is_bound=True)
        again.begin()
        await until(lambda: again.runs)
        assert again.orders[0].due_ms == one.orders[0].due_ms
        assert other.orders == []
        for daemon in (again, other):
            await daemon.end()

    with capture_logs() as logs:
        play(main)
    (told,) = [each for each in logs if each["event"] == "pipeline_stands_by"]
    assert "data_dir of the daemon one on host of one" in told["reason"]


@pytest.mark.timeout(180)
def test_daemons_that_cannot_agree_run_it_each_until_they_can(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster()

    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            admin = Admin(client)
            wrong = {"cleanup.policy": "delete"}  # what is in use would be deleted: nothing is kept there
            await admin.create_topic(
                NewTopic(name=CONTROL_TOPIC, partitions=1, replication_factor=1, configs=wrong)
            )
            daemons = [Daemon(node, tmp_path, name) for name in ("one", "other")]
            for daemon in daemons:
                daemon.begin()
            await until(lambda: all(daemon.runs for daemon in daemons))
            await admin.alter_topic_configs(CONTROL_TOPIC, {"cleanup.policy": "compact"})
            await until(
                lambda: any(
                    "another daemon or command is to" in (daemon.share.reason or "") for daemon in daemons
                )
            )
            await until(lambda: [daemon.runs for daemon in daemons].count(True) == 1)
            assert [daemon.share.is_held for daemon in daemons].count(True) == 1
            for daemon in daemons:
                await daemon.end()

    play(main)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_daemon_that_is_in_doubt_ends_its_run(cluster: ClusterFactory, tmp_path: Path) -> None:
    node = cluster()

    async def main() -> None:
        one = Daemon(node, tmp_path, "one")
        one.begin()
        await until(lambda: one.runs)
        await asyncio.to_thread(node.stop)
        await until(lambda: not one.runs)
        assert one.keeper.describe()["state"] == "standing_by"
        await one.end()

    play(main)


@pytest.mark.parametrize(
    ("generation", "digest", "daemon", "bound", "told"),
    [
        (0, "same", "one", False, None),
        (0, "same", "other", False, None),
        (1, "same", "other", False, "generation 1"),
        (0, "another", "other", False, "raise 'generation'"),
        (0, "same", "other", True, "say a 'checkpoint'"),
        (0, "same", "one", True, None),
    ],
)
def test_who_may_run_a_pipeline_is_told_by_what_was_said(
    generation: int, digest: str, daemon: str, bound: bool, told: str | None
) -> None:
    own = Claim(generation=0, digest="same", daemon="one", host="h", at_ms=1)
    found = Claim(generation=generation, digest=digest, daemon=daemon, host="h", at_ms=1)
    mark = RunMark(due_ms=1, is_over=True, daemon=daemon, host="h", at_ms=1)
    why = why_to_stand_by(own, found, mark, bound=bound)
    assert why is None if told is None else told in (why or "")
    assert why_to_stand_by(own, None, None, bound=bound) is None


def test_records_that_are_no_marks_say_nothing() -> None:
    assert read_mark(None) is None
    assert read_mark({"due_ms": "soon", "is_over": True, "daemon": "d", "host": "h", "at_ms": 1}) is None
    assert read_claim({"generation": 1}) is None
    assert claim_key(NAME) != mark_key(NAME)
