"""DescribeLogDirs while logs go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import cast

from broker.server.handlers import describe_log_dirs
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.types import TopicPartition
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest


class Root:
    """A data root whose only log is taken out of use by a thread, right after it was looked at."""

    path = Path("/data")
    futures: Mapping[TopicPartition, object] = MappingProxyType({})

    def __init__(self) -> None:
        log = SimpleNamespace(size=10, log_end_offset=5)
        self._logs: Mapping[TopicPartition, object] = {TopicPartition("t", 0): log}

    @property
    def logs(self) -> Mapping[TopicPartition, object]:
        logs, self._logs = self._logs, {}
        return logs

    def space(self) -> SimpleNamespace:
        return SimpleNamespace(total=100, usable=50)


def test_logs_that_go_meanwhile_are_described_as_they_were() -> None:
    directories = SimpleNamespace(offline=(), live={0: Root()})
    replicas = SimpleNamespace(directories=directories, get=lambda *_: None)
    services = cast(Services, SimpleNamespace(replicas=replicas))
    context = cast(RequestContext, None)
    response = describe_log_dirs.handle(services, context, DescribeLogDirsRequest(topics=None))
    ((topic,),) = [result.topics for result in response.results]
    assert (topic.name, topic.partitions[0].partition_size) == ("t", 10)
