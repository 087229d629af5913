"""OffsetDelete: forget committed offsets of topics that nobody in the group reads."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


async def handle(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Answered by the group coordinator."""
    return await services.groups.delete_offsets(request)
