"""Runs on a machine that gives Spark's Python processes no time: the first of a query stands still."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrormaker.pipelines.runner import RunRequest
from mirrormaker.spark import MirrorDataSource
from tests.pipelines.place import Place, order

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
PYTHON = """\
#!/bin/sh
if [ "$2" != pyspark.daemon ] && mkdir "{folder}/$2" 2>/dev/null; then
    touch "{folder}/$2/$$"
    kill -STOP $$
fi
exec {python} "$@"
"""
"""Stops where it is the first that is to run its module."""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Path]:
    """Has a folder for each module that was started, with the id of the first process."""
    folder = tmp_path / "started"
    folder.mkdir()
    yield folder
    for file in folder.glob("*/*"):
        os.kill(int(file.name), signal.SIGKILL)


@pytest.fixture
def slow(spark: SparkSession, started: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session whose processes are slow to begin."""
    python = tmp_path / "python"
    python.write_text(PYTHON.format(folder=started, python=sys.executable))
    python.chmod(stat.S_IRWXU)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    session = spark.newSession()
    session.dataSource.register(MirrorDataSource)
    return session


def test_a_run_waits_for_a_query_that_is_slow_to_begin(
    place: Place, slow: SparkSession, started: Path
) -> None:
    place.produce(order(number, number // 10) for number in range(20))
    record = place.runner(slow).run(RunRequest())
    assert (record.rows_read, record.batches) == (20, 1)
    assert place.ids() == list(range(20))
    assert [folder.name.rpartition(".")[2] for folder in started.iterdir()] == [
        "python_streaming_source_runner"
    ]
