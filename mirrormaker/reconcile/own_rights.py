"""Rights that a route needs for what it keeps itself, whichever topics it copies: its group at the source,
its topics and transactional ids at the destination. Asking makes nothing: no topic, group or transaction.
"""

from __future__ import annotations

from broker.client.cluster import Cluster
from broker.client.operations import DESCRIBE, READ, WRITE
from broker.client.rights import read_rights
from broker.errors import ErrorCode, ProtocolError
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from mirrormaker.flow.positions import POSITIONS_TOPIC, transactional_id
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.flow.trouble import UNAUTHORIZED_CODES
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.plan.world import MissingRights
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.topology.model import Delivery, Membership, RouteSpec

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


async def missing_at_destination(cluster: Cluster, route: RouteSpec) -> list[MissingRights]:
    """What the route lacks where it writes. Raises BrokerError."""
    is_exact = route.delivery is Delivery.EXACTLY_ONCE
    kept = [CONTROL_TOPIC, LEDGER_TOPIC, *[POSITIONS_TOPIC] * is_exact]
    allowed = await read_rights(cluster, kept)
    if allowed.cluster is None:
        return []  # so old a cluster may make the topics that it is asked about
    metadata = await cluster.refresh(kept)
    found: list[MissingRights] = []
    for name in kept:
        known, rights = metadata.topics.get(name), allowed.topics.get(name)
        if known is not None and known.error in UNAUTHORIZED_CODES:
            found.append(MissingRights(route=route.name, of=name, rights=_TO_KEEP))
        elif rights is not None and (missing := tuple(each for each in _TO_KEEP if each not in rights)):
            found.append(MissingRights(route=route.name, of=name, rights=missing))
    if is_exact and await _is_refused(cluster, transactional_id(route.name, ProducerKey(0, 0, None))):
        ids = f"transactional ids mirror/{route.name}/"
        found.append(MissingRights(route=route.name, of=ids, rights=(DESCRIBE, WRITE)))
    return found


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
