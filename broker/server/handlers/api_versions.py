"""ApiVersions: what this node serves, and who the client says it is."""

from __future__ import annotations

import re

from broker.cluster.features import SUPPORTED, UNKNOWN_EPOCH
from broker.errors import ErrorCode, ProtocolError
from broker.server.naming import Served
from broker.server.request import RequestContext
from broker.wire.features import (
    FETCH_FILTER,
    FETCH_ORDER,
    PRODUCE_BATCHES,
    PRODUCE_BATCHES_MAX,
    PRODUCE_FORWARDING,
)
from broker.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_FROM = 3
_OWN_FEATURES = {PRODUCE_BATCHES: PRODUCE_BATCHES_MAX, PRODUCE_FORWARDING: 1, FETCH_FILTER: 1, FETCH_ORDER: 1}
_LEVEL_ZERO_FROM = 4
"""First version whose clients take a feature that may be off (KAFKA-17011)."""


def handle(services: Served, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Raises ProtocolError INVALID_REQUEST for names of software that a metric could not carry (KIP-511)."""
    if context.api_version >= _NAMED_FROM:
        software = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"client software {software}")
        context.session.client_software = software
    own = [
        SupportedFeatureKey(name=name, min_version=1, max_version=highest)
        for name, highest in _OWN_FEATURES.items()
    ]
    features = services.features
    if features.epoch == UNKNOWN_EPOCH:
        return ApiVersionsResponse(api_keys=list(services.api_versions), supported_features=own)
    lowest = 0 if context.api_version >= _LEVEL_ZERO_FROM else 1
    return ApiVersionsResponse(
        api_keys=list(services.api_versions),
        supported_features=[
            *own,
            *(
                SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
                for name, highest in SUPPORTED.items()
            ),
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.levels.items()
        ],
    )
