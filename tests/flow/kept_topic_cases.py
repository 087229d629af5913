"""Topics that the mirror keeps, on real nodes; `tests/interop` runs the same against Apache Kafka."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.producer import Producer, ProducerSettings
from broker.client.topic_admin import NewTopic
from broker.client.transactional_producer import TransactionalProducer
from broker.errors import ConfigurationError, RequestTimedOutError
from broker.types import HostPort
from mirrormaker.flow.kept_topic import KeptTopic

NAME = "__mirrormaker_control"
PATIENCE_SECONDS = 60.0


class Running(Protocol):
    @property
    def bootstrap(self) -> Sequence[HostPort]: ...


def run(running: Running, main: Callable[[Cluster], Awaitable[None]]) -> None:
    """`main` with a client of the cluster, in bounded time."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), Cluster(running.bootstrap) as client:
            await main(client)

    asyncio.run(bounded())


def key(number: int) -> dict[str, object]:
    return {"route": "a", "number": number}


def test_a_kept_topic_is_made_compacted_and_says_what_was_put(cluster: Callable[[], Running]) -> None:
    async def main(client: Cluster) -> None:
        async with KeptTopic(client, NAME) as kept:
            await kept.put([(key(1), {"at": 1}), (key(2), {"at": 2}), (key(1), {"at": 3})])
            await kept.read_to_end()
            assert kept.get({"number": 1, "route": "a"}) == {"at": 3}
            assert kept.get(key(3)) is None
            await kept.put([(key(2), None)])
            await kept.read_to_end()
            assert list(kept.entries()) == [(key(1), {"at": 3})]
        configs = await Admin(client).describe_topic_configs(NAME, ["cleanup.policy"])
        assert configs["cleanup.policy"].value == "compact"
        async with KeptTopic(client, NAME) as again:
            await again.read_to_end()
            assert list(again.entries()) == [(key(1), {"at": 3})]
            assert again.incarnation == 0

    run(cluster(), main)


def test_of_several_writers_the_last_one_wins_for_all_readers(cluster: Callable[[], Running]) -> None:
    async def main(client: Cluster) -> None:
        async with KeptTopic(client, NAME, partitions=3) as one, KeptTopic(client, NAME) as other:
            await asyncio.gather(
                *(
                    kept.put([(key(number), {"by": writer, "at": at}) for number in range(5)])
                    for at in range(10)
                    for writer, kept in (("one", one), ("other", other))
                )
            )
            await one.read_to_end()
            await other.read_to_end()
            seen = sorted(one.entries(), key=str)
            assert seen == sorted(other.entries(), key=str)
            assert len(seen) == 5
            await other.put([(key(0), {"by": "other", "at": "last"})])
            while one.get(key(0)) != {"by": "other", "at": "last"}:
                await one.changed()

    run(cluster(), main)


def test_what_a_transaction_wrote_is_seen_when_it_is_committed(cluster: Callable[[], Running]) -> None:
    async def main(client: Cluster) -> None:
        settings = ProducerSettings(transactional_id="mover", linger_ms=1)
        async with (
            KeptTopic(client, NAME, timeout_ms=3_000) as kept,
            TransactionalProducer(client, settings=settings) as producer,
        ):
            await producer.init_transactions()
            for number, is_committed in ((1, False), (2, True)):
                producer.begin_transaction()
                await (await producer.send(NAME, b'{"at":1}', json.dumps(key(number)).encode()))
                if is_committed:
                    with pytest.raises(RequestTimedOutError, match="a transaction that is open"):
                        await kept.read_to_end()
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
            await kept.read_to_end()
            assert list(kept.entries()) == [(key(2), {"at": 1})]

    run(cluster(), main)


def test_a_topic_that_is_deleted_or_made_anew_by_others_is_read_anew(cluster: Callable[[], Running]) -> None:
    async def main(client: Cluster) -> None:
        async with KeptTopic(client, NAME) as kept:
            await kept.put([(key(number), {"at": number}) for number in range(20)])
            await kept.read_to_end()
            await Admin(client).delete_topics([NAME])
            while kept.incarnation == 0:
                await kept.changed()
            await kept.read_to_end()
            assert list(kept.entries()) == []
            await kept.put([(key(7), {"at": 7})])
            await kept.read_to_end()
            assert list(kept.entries()) == [(key(7), {"at": 7})]

    run(cluster(), main)


def test_what_is_no_json_object_is_passed_over(cluster: Callable[[], Running]) -> None:
    async def main(client: Cluster) -> None:
        async with KeptTopic(client, NAME) as kept, Producer(client) as producer:
            for value, record_key in ((b"{}", b"not JSON"), (b"[1]", b'{"a":1}'), (b"{}", b"3")):
                await (await producer.send(NAME, value, record_key))
            await kept.put([(key(1), {"at": 1})])
            await kept.read_to_end()
            assert list(kept.entries()) == [(key(1), {"at": 1})]

    run(cluster(), main)


def test_a_topic_that_retention_would_empty_is_refused(cluster: Callable[[], Running]) -> None:
    async def main(client: Cluster) -> None:
        await Admin(client).create_topic(NewTopic(name=NAME, partitions=1, replication_factor=1))
        with pytest.raises(ConfigurationError, match=f"topic {NAME} has cleanup.policy=delete"):
            async with KeptTopic(client, NAME):
                raise AssertionError("it was taken")

    run(cluster(), main)
