"""A route that may not take part in its own group at the source: no partition is copied by anybody. Pure."""

from __future__ import annotations

from broker.client.operations import READ
from broker.errors import ErrorCode, ProtocolError
from mirrormaker.flow.trouble import WHOLE_ROUTE, Trouble, TroubleKind
from mirrormaker.missing_rights import missing_right
from mirrormaker.topology.model import RouteSpec

_CODES = frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED})


def group_refusal(error: BaseException, route: RouteSpec) -> Trouble | None:
    """The trouble that a failure of the route comes from; None: it comes from something else."""
    if isinstance(error, BaseExceptionGroup):
        found = (group_refusal(inner, route) for inner in error.exceptions)
        return next((trouble for trouble in found if trouble is not None), None)
    if not isinstance(error, ProtocolError) or error.code not in _CODES:
        return None
    return Trouble(
        kind=TroubleKind.UNAUTHORIZED,
        source=WHOLE_ROUTE,
        position=0,
        resume_at=0,
        problem=f"source: {missing_right(error.code, route.source, route.group, READ)}",
    )
