"""Runs that ask whether all has arrived that the sources of their topics had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from broker.clock import SystemClock
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunState
from mirrormaker.pipelines.runner import RunFailedError, Runner, RunRequest
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import PipelineName
from tests.conftest import ClusterFactory
from tests.pipelines.place import HOUR_MS, START_MS, Place, order, produce
from tests.pipelines.test_run_log import RUN


@pytest.mark.long
def test_a_run_goes_on_that_is_due_before_the_last_one_that_was_complete(place: Place) -> None:
    place.keys = f"{place.keys}    require: complete\n"
    place.produce([order(0, 0)])
    by_hand = place.run(due_ms=START_MS + HOUR_MS)
    assert by_hand.complete_until_ms == START_MS + HOUR_MS
    place.produce([order(1, 0)])
    assert place.run(trigger="retry", due_ms=START_MS).rows_read == 1


@pytest.mark.long
def test_all_is_waited_for_that_no_run_has_asked_for_in_topics_that_are_yet_to_come(
    place: Place, cluster: ClusterFactory
) -> None:
    (source,) = cluster("jfk").bootstrap
    produce(str(source), "flights", [order(0, 0)])
    place.produce([order(0, 0)])
    place.sources = f', jfk: {{bootstrap: ["{source}"]}}'
    place.routes = "[{from: jfk, to: a, topics: {include: [flights]}}]"
    place.topic = f"{place.topic}|jfk[.]flights"
    assert place.run(due_ms=START_MS + HOUR_MS).complete_until_ms is None
    place.keys = f"{place.keys}    require: complete\n    patience: 1s\n"
    with pytest.raises(
        RunFailedError, match="not complete after 1000 ms: jfk: flights-0: 1 offsets have not"
    ):
        place.run(due_ms=START_MS + 2 * HOUR_MS)


def test_a_topic_that_came_after_the_last_complete_run_is_asked_for_from_its_beginning(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    jfk, lga, aggregate = (cluster(name) for name in ("jfk", "lga", "aggregate"))
    for number, source in enumerate((jfk, lga)):
        produce(str(source.bootstrap[0]), "flights", [order(number, 0)])
    produce(str(aggregate.bootstrap[0]), "jfk.flights", [])
    named = {"jfk": jfk, "lga": lga, "aggregate": aggregate}
    topology = {
        "clusters": {name: {"bootstrap": list(map(str, each.bootstrap))} for name, each in named.items()},
        "routes": [
            {"from": name, "to": "aggregate", "topics": {"include": ["flights"]}} for name in ("jfk", "lga")
        ],
        "pipelines": [
            {
                "name": "p",
                "cluster": "aggregate",
                "topics": {"include": [".*[.]flights"]},
                "sinks": [{"parquet": "out"}],
                "require": "complete",
                "patience": "1s",
            }
        ],
    }
    file = tmp_path / "topology.yaml"
    file.write_text(yaml.safe_dump(topology))
    loaded = load_topology(file)
    folder = PipelineFolder(loaded.data_dir, PipelineName("p"))
    hours = {"jfk.flights": {"2013-01-01T00": 1}}
    before = replace(RUN, state=RunState.SUCCEEDED, complete_until_ms=START_MS + HOUR_MS, hours=hours)
    with folder.locked():
        folder.note(before)
    runner = Runner(loaded, loaded.pipelines[0], SystemClock())
    with pytest.raises(RunFailedError) as failed:
        runner.run(RunRequest(due_ms=START_MS + 2 * HOUR_MS))
    assert str(failed.value).endswith("1000 ms: lga: flights-0: 1 offsets have not arrived (0)")
