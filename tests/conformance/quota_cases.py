"""Cases of DescribeClientQuotas and AlterClientQuotas, and of the SCRAM credentials that `kafka-configs` asks
for beside the quotas of users. They keep to clients that do not exist.
"""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

from broker.errors import ErrorCode
from broker.wire.messages import alter_client_quotas as alter
from broker.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from broker.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from broker.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.conformance.scene import NONE, Scene, until

EXACT, DEFAULT, ANY = 0, 1, 2


async def _alter(
    scene: Scene,
    version: int,
    entity: list[tuple[str, str | None]],
    quotas: dict[str, float | None],
    *,
    validate_only: bool = False,
) -> int:
    entry = alter.EntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    (answer,) = (await scene.ask(request, version)).entries
    assert Counter((part.entity_type, part.entity_name) for part in answer.entity) == Counter(entity)
    assert (answer.error_message is None) is (answer.error_code == NONE)
    return answer.error_code


async def _described(
    scene: Scene, version: int, components: list[ComponentData], *, strict: bool = True
) -> list[dict[str, float]]:
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    response = await scene.ask(request, version)
    assert response.error_code == NONE
    return [{value.key: value.value for value in entry.values} for entry in response.entries or []]


def _named(kind: str, name: str) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=EXACT, match=name)


async def alter_client_quotas_sets_and_removes(scene: Scene, version: int) -> None:
    client = f"client-{uuid4().hex}"
    entity: list[tuple[str, str | None]] = [("client-id", client)]
    wanted = [_named("client-id", client)]
    assert await _alter(scene, version, entity, {"producer_byte_rate": 1e9, "request_percentage": 250.5}) == 0

    async def described() -> list[dict[str, float]]:
        return await _described(scene, DescribeClientQuotasRequest.max_version, wanted)

    await until(described, lambda found: found == [{"producer_byte_rate": 1e9, "request_percentage": 250.5}])
    assert await _alter(scene, version, entity, {"request_percentage": None}) == 0
    await until(described, lambda found: found == [{"producer_byte_rate": 1e9}])
    assert await _alter(scene, version, entity, {"producer_byte_rate": None}) == 0
    await until(described, lambda found: found == [])


async def alter_client_quotas_may_only_validate(scene: Scene, version: int) -> None:
    client = f"client-{uuid4().hex}"
    entity: list[tuple[str, str | None]] = [("client-id", client)]
    assert await _alter(scene, version, entity, {"consumer_byte_rate": 1e9}, validate_only=True) == NONE
    assert await _described(scene, 0, [_named("client-id", client)]) == []


async def alter_client_quotas_refuses_what_is_no_quota(scene: Scene, version: int) -> None:
    client: list[tuple[str, str | None]] = [("client-id", "nobody")]
    for entity, quotas in (
        (client, {"unheard_of": 1.0}),
        (client, {"connection_creation_rate": 1.0}),
        (client, {"producer_byte_rate": 0.5}),
        (client, {"producer_byte_rate": -1.0}),
        ([("planet", "earth")], {"producer_byte_rate": 1.0}),
        ([], {"producer_byte_rate": 1.0}),
        ([("client-id", "")], {"producer_byte_rate": 1.0}),
        ([("ip", "127.0.0.1"), ("user", "u")], {"connection_creation_rate": 1.0}),
        ([("ip", "no address!")], {"connection_creation_rate": 1.0}),
    ):
        assert await _alter(scene, version, entity, quotas) == ErrorCode.INVALID_REQUEST, (entity, quotas)


async def describe_client_quotas_filters_by_type_and_name(scene: Scene, version: int) -> None:
    user, client = f"user-{uuid4().hex}", f"client-{uuid4().hex}"
    latest = AlterClientQuotasRequest.max_version
    assert (
        await _alter(scene, latest, [("user", user), ("client-id", client)], {"producer_byte_rate": 5e9}) == 0
    )
    assert await _alter(scene, latest, [("user", user)], {"producer_byte_rate": 6e9}) == 0
    both, alone = {"producer_byte_rate": 5e9}, {"producer_byte_rate": 6e9}
    of_user = _named("user", user)
    any_client = ComponentData(entity_type="client-id", match_type=ANY, match=None)
    default_client = ComponentData(entity_type="client-id", match_type=DEFAULT, match=None)

    async def described() -> list[str]:
        return sorted(map(str, await _described(scene, version, [of_user], strict=False)))

    await until(described, lambda found: found == sorted(map(str, [both, alone])))
    assert await _described(scene, version, [of_user]) == [alone]
    assert await _described(scene, version, [of_user, _named("client-id", client)]) == [both]
    assert await _described(scene, version, [of_user, any_client]) == [both]
    assert await _described(scene, version, [of_user, default_client]) == []
    assert await _described(scene, version, [of_user, _named("client-id", "another")]) == []


async def describe_client_quotas_refuses_unknown_types(scene: Scene, version: int) -> None:
    unknown = [ComponentData(entity_type="planet", match_type=ANY, match=None)]
    response = await scene.ask(DescribeClientQuotasRequest(components=unknown), version)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    twice = [_named("user", "a"), _named("user", "b")]
    response = await scene.ask(DescribeClientQuotasRequest(components=twice), version)
    assert (response.error_code, response.entries) == (ErrorCode.INVALID_REQUEST, None)


async def describe_user_scram_credentials_finds_none(scene: Scene, version: int) -> None:
    everybody = await scene.ask(DescribeUserScramCredentialsRequest(users=None), version)
    assert (everybody.error_code, everybody.results) == (NONE, [])
    asked = [UserName(name=name) for name in ("nobody", "twice", "twice")]
    response = await scene.ask(DescribeUserScramCredentialsRequest(users=asked), version)
    assert response.error_code == NONE
    assert {result.user: result.error_code for result in response.results} == {
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
    }
