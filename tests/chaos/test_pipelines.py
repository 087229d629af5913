"""A daemon's pipeline, scheduled and without an end, while what runs it and what it reads is killed, and
while disks are full: its table and its topic hold every record once, and what is recorded of runs is true.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from mirrormaker.pipelines.run_record import CUT_OFF, RunState
from tests.chaos.conftest import CHAOS_SECONDS
from tests.chaos.disturbance import Disturbance, Victims
from tests.chaos.load import create_topic
from tests.chaos.pipeline_daemon import (
    CONTINUOUS,
    COPY,
    EVERY,
    PATIENCE_SECONDS,
    TOPIC,
    PipelineDaemon,
    Places,
    has_ended,
    write,
)
from tests.node.file_systems import mounted_tmpfs

RECORDS_PER_ROUND = 600
DISK_BYTES = 16 << 20
VICTIMS = ["driver", "JVM", "worker", "daemon", "daemon, gently", "node"]

pytestmark = pytest.mark.timeout(CHAOS_SECONDS + 3 * PATIENCE_SECONDS)


@pytest.fixture
def disks(tmp_path: Path, which: str) -> Iterator[None]:
    """A small disk where the test says."""
    with mounted_tmpfs(tmp_path / which, size=DISK_BYTES):
        yield


@pytest.fixture(params=[EVERY, CONTINUOUS], ids=["scheduled", "continuous"])
def daemon(request: pytest.FixtureRequest, node: EmbeddedCluster, tmp_path: Path) -> Iterator[PipelineDaemon]:
    create_topic(str(node.bootstrap[0]), TOPIC)
    create_topic(str(node.bootstrap[0]), COPY)
    daemon = PipelineDaemon(node, tmp_path, request.param)
    daemon.process.start()
    yield daemon
    daemon.close()


def disturb(daemon: PipelineDaemon, node: EmbeddedCluster, victim: str, disturbance: Disturbance) -> bool:
    """Kill it, and start what does not start by itself; False where it was not there."""
    match victim:
        case "driver":
            return daemon.kill_driver()
        case "JVM":
            return daemon.kill_jvm()
        case "worker":
            return daemon.kill_worker(disturbance.chance)
        case "daemon":
            daemon.process.kill()
            daemon.process.start()
        case "daemon, gently":
            assert daemon.process.stop() == 0
            daemon.process.start()
        case "node":
            disturbance.crash(node)
    return True


def test_table_and_topic_hold_every_record_once_whatever_is_killed(
    node: EmbeddedCluster, daemon: PipelineDaemon, disturbance: Disturbance
) -> None:
    written, victims = Places(), Victims(disturbance.chance, VICTIMS)
    for round_number in disturbance.rounds_until(victims.have_all_been_hit):
        first = (round_number - 1) * RECORDS_PER_ROUND
        written += write(daemon, TOPIC, range(first, first + RECORDS_PER_ROUND))
        daemon.wait_until_working()
        disturbance.pause(0.0, 3.0)
        victim = victims.draw()
        victims.note(victim, was_there=disturb(daemon, node, victim, disturbance))
    daemon.wait_until_loaded(written.total())
    assert daemon.process.stop() == 0
    assert daemon.loaded() == written, victims.hit
    assert daemon.copied() == written, victims.hit
    daemon.assert_recorded_truly(written, victims.hit)


def failed_with(daemon: PipelineDaemon, words: str) -> bool:
    """Whether there is a run that failed so."""
    return any(run.state is RunState.FAILED and words in (run.problem or "") for run in daemon.runs())


@pytest.mark.parametrize("daemon", [CONTINUOUS], indirect=True, ids=["continuous"])
def test_a_run_without_an_end_meets_one_thing_after_the_other(
    node: EmbeddedCluster, daemon: PipelineDaemon
) -> None:
    written = write(daemon, TOPIC, range(100))
    daemon.wait_until_loaded(100)
    first = daemon.last_run().run

    write(daemon, f"{TOPIC}-later", range(50))  # the run finds it, from its first record on
    daemon.wait_until_loaded(150)
    node.kill_node(1)
    node.start_node(1)
    written += write(daemon, TOPIC, range(100, 200))
    daemon.wait_until_loaded(250)
    assert [run.run for run in daemon.runs()] == [first], [run.problem for run in daemon.runs()]

    assert daemon.kill_jvm()
    daemon.process.until(lambda: failed_with(daemon, "Spark's JVM was ended by SIGKILL"), "it is recorded")
    written += write(daemon, TOPIC, range(200, 300))
    daemon.wait_until_loaded(350)
    assert daemon.kill_driver()
    what = "the process of the run was ended by SIGKILL"
    daemon.process.until(lambda: failed_with(daemon, what), "it is recorded")
    written += write(daemon, TOPIC, range(300, 400))
    daemon.wait_until_loaded(450)
    daemon.process.kill()
    daemon.process.start()
    daemon.process.until(lambda: failed_with(daemon, CUT_OFF), "it is recorded")
    written += write(daemon, TOPIC, range(400, 500))
    daemon.wait_until_loaded(550)
    assert daemon.process.stop() == 0
    runs = daemon.runs()
    assert [run.state for run in runs] == [RunState.FAILED] * 3 + [RunState.STOPPED]
    assert [run.rows_read for run in runs] == [250, 100, 100, 100]
    assert daemon.loaded() == written
    assert daemon.loaded(f"{TOPIC}-later").total() == 50
    assert daemon.copied().total() == 550


@pytest.mark.parametrize("daemon", [CONTINUOUS], indirect=True, ids=["continuous"])
def test_a_jvm_that_stands_still_keeps_nothing_waiting_when_its_driver_is_killed(
    daemon: PipelineDaemon,
) -> None:
    written = write(daemon, TOPIC, range(100))
    daemon.wait_until_loaded(100)
    jvm = daemon.jvm()
    assert jvm is not None
    jvm.suspend()
    assert daemon.kill_driver()
    what = "the process of the run was ended by SIGKILL"
    daemon.process.until(lambda: failed_with(daemon, what), "it is recorded")
    daemon.process.until(lambda: has_ended(jvm), "the JVM is gone")
    written += write(daemon, TOPIC, range(100, 200))
    daemon.wait_until_loaded(200)
    assert daemon.process.stop() == 0
    assert daemon.loaded() == daemon.copied() == written


_FULL = "No space left on device"


@pytest.mark.parametrize("daemon", [EVERY, CONTINUOUS], indirect=True, ids=["scheduled", "continuous"])
@pytest.mark.parametrize("which", ["out", "data/pipelines/p/checkpoint", "data"])
def test_a_disk_without_room_fails_runs_until_there_is_some(
    node: EmbeddedCluster, disks: None, daemon: PipelineDaemon, tmp_path: Path, which: str
) -> None:
    written = write(daemon, TOPIC, range(1_000))
    daemon.wait_until_loaded(1_000)
    ballast = tmp_path / which / "_ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:  # others write there meanwhile
            file.write(bytes(1 << 16))
    before = daemon.loaded()
    more = write(daemon, TOPIC, range(1_000, 4_000))
    log = daemon.process.log
    daemon.process.until(lambda: b"out of space: " in log.read_bytes(), "it is told", PATIENCE_SECONDS)
    assert daemon.loaded() == before == written, "nothing half done is seen"
    ballast.unlink()
    daemon.wait_until_loaded(4_000)
    assert daemon.process.stop() == 0
    assert daemon.loaded() == daemon.copied() == written + more
    daemon.assert_recorded_truly(written + more, Counter())
    problems = {run.problem or "" for run in daemon.runs() if run.state is RunState.FAILED}
    assert all(each.startswith("out of space: ") and _FULL in each for each in problems), problems
