"""The places of a worker in the groups of its routes, given up for it when it does not come back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker.client.static_member_admin import StaticMemberAdmin
from broker.errors import BrokerError
from broker.telemetry import logger
from mirrormaker.clusters import open_cluster
from mirrormaker.daemon_identity import instance_id
from mirrormaker.reconcile.routes import RouteWork
from mirrormaker.topology.model import Membership

TIMEOUT_MS = 5_000
"""By then its sessions are about to time out anyway."""

_log = logger("workers")


async def give_places_up(works: Iterable[RouteWork], daemon_id: str, worker: int) -> None:
    """Have the others of the groups take over what that worker had. Its process must have ended. What cannot
    be told in time is found out by the coordinators themselves, when its sessions time out.
    """
    await asyncio.gather(
        *(
            _give_up(work, instance_id(daemon_id, worker, work.name))
            for work in works
            if work.route.membership is Membership.COORDINATOR  # sessions with ZooKeeper end by themselves
        )
    )


async def _give_up(work: RouteWork, instance: str) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000), open_cluster(work.source) as source:
            admin = StaticMemberAdmin(source, timeout_ms=TIMEOUT_MS)
            outcomes = await admin.remove_static_members(work.route.group, [instance], reason="it ended")
    except (BrokerError, TimeoutError) as error:
        _log.info("place_not_given_up", route=work.name, instance=instance, error=str(error) or "no answer")
        return
    refusal = outcomes[instance]
    _log.info("place_given_up", route=work.name, instance=instance, refusal=refusal and str(refusal))
