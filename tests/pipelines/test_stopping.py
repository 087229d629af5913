"""Signals end a run early, whatever it is at, and its record says so."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from broker.clock import SystemClock
from mirrormaker.pipelines.loading import Load
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunState
from mirrormaker.pipelines.runner import Runner, RunRequest
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import PipelineName
from tests.conftest import until
from tests.pipelines.stderr_of_spark import without_words_of_pyspark

SIGNALS = [signal.SIGTERM, signal.SIGINT]
WAITING = "tests.pipelines.waiting_job:run"
SLEEPING = "tests.pipelines.sleeping_job:run"


def topology_file(folder: Path, job: str) -> Path:
    file = folder / "topology.yaml"
    clusters = {"a": {"bootstrap": ["127.0.0.1:1"]}}
    pipeline = {"name": "p", "job": job, "arguments": {"folder": str(folder)}, "master": "local[1]"}
    file.write_text(yaml.safe_dump({"clusters": clusters, "routes": [], "pipelines": [pipeline]}))
    return file


@pytest.fixture
def handlers() -> Iterator[None]:
    """Those of this process are as they were, when the test is over."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def end_by(number: signal.Signals) -> None:
    """As if somebody else sent it, while what is to be done takes long."""
    signal.raise_signal(number)
    assert Event().wait(60), "nobody has ended it"


@contextmanager
def starting_spark(number: signal.Signals) -> Iterator[Any]:
    end_by(number)
    yield


class Settings(dict[str, str]):
    """Of Spark."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


class Session:
    """Spark, as far as a job asks it nothing."""

    def __init__(self) -> None:
        self.conf = Settings()


def job(spark: Session, topology: object, arguments: dict[str, str]) -> None:
    end_by(_signal_of(arguments))


def job_of_tasks(spark: Session, topology: object, arguments: dict[str, str]) -> None:
    asyncio.run(_in_a_task(_signal_of(arguments)))


async def _in_a_task(number: signal.Signals) -> None:
    async def work() -> None:
        end_by(number)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work())


def job_of_callbacks(spark: Session, topology: object, arguments: dict[str, str]) -> None:
    asyncio.run(_in_a_callback(_signal_of(arguments)))


async def _in_a_callback(number: signal.Signals) -> None:
    asyncio.get_running_loop().call_soon(end_by, number)
    await asyncio.sleep(0)
    pytest.fail("nobody has ended it")


def _signal_of(arguments: dict[str, str]) -> signal.Signals:
    return signal.Signals(int((Path(arguments["folder"]) / "signal").read_text()))


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("stage", [starting_spark, job, job_of_tasks, job_of_callbacks])
def test_a_signal_ends_what_does_not_look_whether_it_is_to_end(
    number: signal.Signals, stage: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "signal").write_text(str(int(number)))
    topology = load_topology(topology_file(tmp_path, f"{__name__}:{stage.__name__}"))
    session: AbstractContextManager[Any] = nullcontext(Session())
    if stage is starting_spark:
        session = starting_spark(number)
    runner = Runner(topology, topology.pipelines[0], SystemClock(), session=session)
    runner.heed_signals()
    assert runner.run(RunRequest()).state is RunState.STOPPED
    last = PipelineFolder(topology.data_dir, PipelineName("p")).last_run()
    assert last is not None
    assert last.state is RunState.STOPPED
    gc.collect()
    assert "_BrokenOff" not in caplog.text, "of tasks that were cut off"


@pytest.mark.usefixtures("handlers")
def test_an_interrupt_that_pyspark_takes_for_itself_as_it_starts_is_heeded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context takes it before the session of SQL is there."""

    def get_or_create(_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_by(signal.SIGINT)

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", get_or_create)
    topology = load_topology(topology_file(tmp_path, WAITING))
    runner = Runner(topology, topology.pipelines[0], SystemClock())
    runner.heed_signals()
    heeding = signal.getsignal(signal.SIGINT)
    assert runner.run(RunRequest()).state is RunState.STOPPED
    assert signal.getsignal(signal.SIGINT) is heeding


class Query:
    """One whose batch is under way, and fails as it is ended."""

    isActive = True  # noqa: N815 - the name is Spark's

    def stop(self) -> None:
        fail_in_callback()


def fail_in_callback() -> None:
    logging.getLogger("py4j.clientserver").error("a function has failed")


def test_a_batch_that_is_ended_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    load = object.__new__(Load)
    load._queries = [Query()]  # type: ignore[list-item]
    load.stop()
    assert not caplog.records
    fail_in_callback()
    assert len(caplog.records) == 1


@pytest.mark.long
@pytest.mark.parametrize("job", [WAITING, SLEEPING])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_that_a_signal_ends_says_that_it_was_stopped(
    number: signal.Signals, job: str, tmp_path: Path
) -> None:
    file = topology_file(tmp_path, job)
    command = [sys.executable, "-m", "mirrormaker.cli", "pipeline", "run", str(file), "p"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        until(lambda: any(tmp_path.glob(f"*.{running.pid}")), seconds=240)
        running.send_signal(number)
        told, log = running.communicate(timeout=60)
    assert running.returncode == 1
    assert told.rstrip().endswith(", job stopped")
    assert "Traceback" not in without_words_of_pyspark(log)
