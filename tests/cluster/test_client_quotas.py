"""Which quota applies to a client, and where quotas stand."""

from __future__ import annotations

import asyncio
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.client_quotas import (
    Applied,
    Component,
    Entity,
    EntityType,
    Quota,
    QuotaTable,
    entity_at,
    entity_path,
    quota_paths,
    read_quotas,
    render,
)
from broker.cluster.entity_configs import EntityConfigs
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.znodes import ConfigZnode

RATE = Quota.PRODUCER_BYTE_RATE


def user(name: str | None) -> Component:
    return Component(EntityType.USER, name)


def client(name: str | None) -> Component:
    return Component(EntityType.CLIENT_ID, name)


PRECEDENCE: list[Entity] = [
    (user("u"), client("c")),
    (user("u"), client(None)),
    (user("u"),),
    (user(None), client("c")),
    (user(None), client(None)),
    (user(None),),
    (client("c"),),
    (client(None),),
]
"""Kafka's order; the first that has the quota decides."""


@pytest.mark.parametrize(("stronger", "weaker"), list(combinations(PRECEDENCE, 2)))
def test_the_more_special_entity_decides(stronger: Entity, weaker: Entity) -> None:
    table = QuotaTable()
    table.set(weaker, {RATE: 1.0})
    assert table.of_client(RATE, "u", "c") == Applied(weaker, 1.0)
    table.set(stronger, {RATE: 2.0})
    assert table.of_client(RATE, "u", "c") == Applied(stronger, 2.0)
    table.set(stronger, {Quota.REQUEST_PERCENTAGE: 5.0})
    assert table.of_client(RATE, "u", "c") == Applied(weaker, 1.0)


@pytest.mark.parametrize(
    "entity",
    [(user("other"),), (client("other"),), (user("u"), client("other")), (user("other"), client("c"))],
)
def test_quotas_of_others_do_not_apply(entity: Entity) -> None:
    table = QuotaTable()
    table.set(entity, {RATE: 1.0})
    assert table.of_client(RATE, "u", "c") is None


def test_addresses_have_a_default_too_and_limit_no_client() -> None:
    table = QuotaTable()
    table.set((Component(EntityType.IP, None),), {Quota.CONNECTION_CREATION_RATE: 5.0})
    table.set((Component(EntityType.IP, "::1"),), {Quota.CONNECTION_CREATION_RATE: 9.0})
    assert (table.of_address("10.0.0.1"), table.of_address("::1")) == (5.0, 9.0)
    assert not table.limits_clients


NAMES = st.none() | st.text(min_size=1)
ENTITIES = st.one_of(
    st.tuples(st.builds(user, NAMES)),
    st.tuples(st.builds(client, NAMES)),
    st.tuples(st.builds(user, NAMES), st.builds(client, NAMES)),
    st.tuples(st.builds(Component, st.just(EntityType.IP), NAMES)),
)


@given(ENTITIES)
def test_every_entity_is_found_at_its_path(entity: Entity) -> None:
    assert entity_at(entity_path(entity)) == entity


def test_paths_are_those_of_kafka() -> None:
    assert entity_path((user("a b"), client(None))) == "users/a%20b/clients/<default>"
    assert entity_path((client("x*~/y"),)) == "clients/x%2A%7E%2Fy"
    assert entity_path((user("<default>"),)) == "users/%3Cdefault%3E"


@pytest.mark.parametrize(
    "path", ["users", "topics/t", "clients/c/users/u", "users/u/clients", "ips/a/b/c", ""]
)
def test_other_paths_are_no_entities(path: str) -> None:
    assert entity_at(path) is None


def test_rates_in_bytes_are_written_as_whole_numbers() -> None:
    assert render(RATE, 1024.0) == "1024"
    assert render(Quota.REQUEST_PERCENTAGE, 12.5) == "12.5"


def test_quotas_are_read_beside_what_else_a_user_has() -> None:
    async def scenario() -> None:
        session = MemorySession(MemoryTree())
        await session.start(timeout_ms=1000)
        settings = {"producer_byte_rate": "1024", "SCRAM-SHA-256": "x", "request_percentage": "no"}
        await session.create("/config/users/u", ConfigZnode(config=settings).encode())
        await session.create("/config/users/u/clients/<default>", b"")
        await session.create("/config/clients/c", b'{"version":1,"config":{"consumer_byte_rate":"2048.0"}}')
        configs = EntityConfigs(session)
        assert sorted(await quota_paths(configs)) == [
            "clients/c",
            "users/u",
            "users/u/clients/<default>",
        ]
        assert await read_quotas(configs, "users/u") == {RATE: 1024.0}
        assert await read_quotas(configs, "clients/c") == {Quota.CONSUMER_BYTE_RATE: 2048.0}
        assert await read_quotas(configs, "users/u/clients/<default>") == {}
        await session.close()

    asyncio.run(scenario())
