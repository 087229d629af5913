"""A pipeline that a daemon runs by its schedule, and commands of another host: nobody runs it beside somebody
else, who was killed holds it no longer, and table and topic hold every record once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import yaml

from broker.embedded import EmbeddedCluster
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunKind, RunRecord
from mirrormaker.state import StateDirectory
from mirrormaker.topology.model import PipelineName
from tests.chaos.load import create_topic
from tests.chaos.pipeline_daemon import COPY, EVERY, PATIENCE_SECONDS, TOPIC, PipelineDaemon, Places, write
from tests.daemon.conftest import wait_until

NAME = PipelineName("p")
REFUSED = "pipeline 'p': another daemon or command is to run it; the last run was of "
YESTERDAY_TO_TOMORROW = ("--from", "2020-01-01")

pytestmark = pytest.mark.timeout(3 * PATIENCE_SECONDS)


class OtherHost:
    """Has the pipeline in a file of its own, and its own `data_dir`."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.file = folder / "other.yaml"
        self.file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"data_dir": "other"}))
        self.data = PipelineFolder(folder / "other", NAME)
        self._log = folder / "other.log"

    def does(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of it, to its end."""
        return subprocess.run(self._command(words), capture_output=True, text=True, check=False)

    @contextmanager
    def doing(self, *words: str) -> Iterator[psutil.Process]:
        """A command of it at work; what is left of it is killed at the end."""
        with self._log.open("ab") as log:
            process = psutil.Popen(self._command(words), stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            for each in [*process.children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait()

    def runs(self) -> list[RunRecord]:
        return self.data.runs()

    def _command(self, words: tuple[str, ...]) -> list[str]:
        verb, *options = words
        command = [sys.executable, "-m", "mirrormaker.cli", "pipeline", verb]
        return [*command, str(self.file), NAME, *options]


@pytest.fixture
def daemon(node: EmbeddedCluster, tmp_path: Path) -> Iterator[PipelineDaemon]:
    create_topic(str(node.bootstrap[0]), TOPIC)
    create_topic(str(node.bootstrap[0]), COPY)
    shared = {"checkpoint": str(tmp_path / "checkpoint"), "quarantine": str(tmp_path / "quarantine")}
    daemon = PipelineDaemon(node, tmp_path, EVERY, **shared)
    daemon.process.start()
    yield daemon
    daemon.close()


def batches_begun(folder: Path) -> int:
    return sum(1 for _ in (folder / "checkpoint").glob("*/load/offsets/[0-9]*"))


def state_of(daemon: PipelineDaemon, folder: Path) -> str | None:
    told = (StateDirectory(folder / "data").read() or {}).get("pipelines", {}).get(NAME, {})
    return told.get("state") if isinstance(told, dict) else None


def assert_exact(daemon: PipelineDaemon, written: Places) -> None:
    assert daemon.loaded() == written
    assert daemon.copied() == written


def test_commands_of_another_host_take_turns_with_a_daemon_whoever_is_killed(
    daemon: PipelineDaemon, tmp_path: Path
) -> None:
    other = OtherHost(tmp_path / "topology.yaml", tmp_path)
    written = write(daemon, TOPIC, range(600))
    daemon.wait_until_loaded(600)
    for words in (("run",), ("reload", *YESTERDAY_TO_TOMORROW)):
        refused = other.does(*words)
        assert refused.returncode == 1, words
        assert REFUSED in refused.stderr, words
        assert "Traceback" not in refused.stderr, words
    assert not other.runs()

    daemon.process.kill()
    written += write(daemon, TOPIC, range(600, 900))
    done = other.does("run")  # as soon as the daemon is not waited for any more
    assert done.returncode == 0, done.stderr
    assert [run.rows_read for run in other.runs()] == [300]
    assert_exact(daemon, written)

    written += write(daemon, TOPIC, range(900, 2_100))
    begun = batches_begun(tmp_path)
    with other.doing("run"):
        wait_until(lambda: batches_begun(tmp_path) > begun, "a batch begins", PATIENCE_SECONDS)
        daemon.process.start()
        standing_by = "the daemon stands by"
        daemon.process.until(lambda: state_of(daemon, tmp_path) == "standing_by", standing_by)
    daemon.wait_until_loaded(600 + 1_200 - sum(run.rows_read for run in other.runs()[1:]))
    assert_exact(daemon, written)

    assert daemon.process.stop() == 0
    done = other.does("reload", *YESTERDAY_TO_TOMORROW)
    assert done.returncode == 0, done.stderr
    assert other.runs()[-1].kind is RunKind.RELOAD
    assert_exact(daemon, written)

    files = set(daemon.table.rglob("*.parquet"))
    with other.doing("reload", *YESTERDAY_TO_TOMORROW):
        staged = daemon.table / "_mirrormaker" / "staging"
        wait_until(lambda: any(staged.rglob("*.parquet")), "windows are written", PATIENCE_SECONDS)
        assert files & set(daemon.table.rglob("*.parquet"))
    written += write(daemon, TOPIC, range(2_100, 2_400))
    before = daemon.rows_recorded()
    daemon.process.start()
    daemon.wait_until_loaded(before + 300)
    assert daemon.process.stop() == 0
    assert_exact(daemon, written)
