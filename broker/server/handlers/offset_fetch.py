"""OffsetFetch: what a group committed; several groups at once from version 8 on."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


async def handle(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Answered by the group coordinator."""
    return await services.groups.fetch_offsets(request, version=context.api_version)
