"""Rights that a route needs for what it keeps itself, whichever topics it copies: its group at the source,
its topics and transactional ids at the destination. Asking makes nothing: no topic, group or transaction.
"""

from __future__ import annotations

from collections.abc import Collection

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.operations import CREATE, DESCRIBE, READ, WRITE
from broker.client.rights import read_rights
from broker.client.topic_admin import NewTopic
from broker.errors import ErrorCode, ProtocolError
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from mirrormaker.flow.origin_registry import ORIGINS_TOPIC
from mirrormaker.flow.positions import POSITIONS_TOPIC, transactional_id
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.missing_rights import UNAUTHORIZED_CODES
from mirrormaker.plan.world import MissingRights
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.topology.model import Delivery, Membership, RouteSpec

TOPICS_A_REQUEST = 500
QUERY_TIMEOUT_MS = 20_000
_TO_KEEP = (DESCRIBE, READ, WRITE)


async def missing_at_source(cluster: Cluster, route: RouteSpec) -> list[MissingRights]:
    """What the route lacks where it reads. Raises BrokerError."""
    if route.membership is not Membership.COORDINATOR:
        return []
    try:
        await cluster.coordinator(route.group)
    except ProtocolError as error:
        if error.code in UNAUTHORIZED_CODES:
            return [MissingRights(route=route.name, of=f"group {route.group}", rights=(READ,))]
    return []


def kept_topics(route: RouteSpec) -> list[str]:
    """What the route keeps where it writes."""
    return [
        CONTROL_TOPIC,
        LEDGER_TOPIC,
        *[POSITIONS_TOPIC] * (route.delivery is Delivery.EXACTLY_ONCE),
        *[ORIGINS_TOPIC] * bool(route.provenance),
    ]


async def creatable_topics(cluster: Cluster, names: Collection[str]) -> frozenset[str]:
    """Those of topics that are not there which may be created by their own names. Raises BrokerError."""
    admin, listed = Admin(cluster, timeout_ms=QUERY_TIMEOUT_MS), sorted(names)
    found: set[str] = set()
    for start in range(0, len(listed), TOPICS_A_REQUEST):
        asked = [
            NewTopic(name=name, partitions=1, replication_factor=1)
            for name in listed[start : start + TOPICS_A_REQUEST]
        ]
        answers = await admin.create_topics(asked, validate_only=True)
        found |= {name for name, answer in answers.items() if not _is_unauthorized(answer)}
    return frozenset(found)


async def missing_at_destination(
    cluster: Cluster, route: RouteSpec, creatable: Collection[str] | None
) -> list[MissingRights]:
    """What the route lacks where it writes; `creatable`: what it keeps there that is not there and may be
    created, None where that is so of any. Raises BrokerError.
    """
    kept = kept_topics(route)
    allowed = await read_rights(cluster, kept)
    if allowed.cluster is None:
        return []  # so old a cluster may make the topics that it is asked about
    metadata = await cluster.refresh(kept)
    found: list[MissingRights] = []
    for name in kept:
        known, rights = metadata.topics.get(name), allowed.topics.get(name)
        if known is not None and known.error in UNAUTHORIZED_CODES:
            found.append(MissingRights(route=route.name, of=name, rights=_TO_KEEP))
        elif known is None or known.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if creatable is not None and name not in creatable:
                found.append(MissingRights(route=route.name, of=name, rights=(CREATE,)))
        elif rights is not None and (missing := tuple(each for each in _TO_KEEP if each not in rights)):
            found.append(MissingRights(route=route.name, of=name, rights=missing))
    is_exact = route.delivery is Delivery.EXACTLY_ONCE
    if is_exact and await _is_refused(cluster, transactional_id(route.name, ProducerKey(0, 0, None))):
        ids = f"transactional ids mirror/{route.name}/"
        found.append(MissingRights(route=route.name, of=ids, rights=(DESCRIBE, WRITE)))
    return found


def _is_unauthorized(answer: ProtocolError | None) -> bool:
    return answer is not None and answer.code in UNAUTHORIZED_CODES


async def _is_refused(cluster: Cluster, name: str) -> bool:
    """Whether the transactional id may not even be asked about: any node says that before it says who
    coordinates it.
    """
    connection = await cluster.any_connection()
    try:
        response = await connection.request(DescribeTransactionsRequest(transactional_ids=[name]))
    except ProtocolError:
        return False  # nodes before Kafka 3.0 do not know the question
    return any(ErrorCode.of(each.error_code) in UNAUTHORIZED_CODES for each in response.transaction_states)
