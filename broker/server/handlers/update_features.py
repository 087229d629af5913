"""UpdateFeatures: raise or lower what the whole cluster has agreed to."""

from __future__ import annotations

from broker.cluster.features import FeatureUpdate
from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE_TYPES_FROM = 1
_UPGRADE = 1


async def handle(
    services: Services, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """All of them or none: one that cannot be done fails the others with it."""
    updates = [_update(asked, context.api_version) for asked in request.feature_updates]
    if len({update.feature for update in updates}) != len(updates):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "a feature is named twice")
    try:
        await services.features.update(updates, validate_only=request.validate_only)
    except CoordinationError as error:
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error}") from error
    return UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=asked.feature) for asked in request.feature_updates]
    )


def refuse(request: UpdateFeaturesRequest, error: ProtocolError, version: int) -> UpdateFeaturesResponse:
    """The same error for the request and for every feature in it."""
    return UpdateFeaturesResponse(
        error_code=error.code,
        error_message=error.message,
        results=[
            UpdatableFeatureResult(feature=asked.feature, error_code=error.code, error_message=error.message)
            for asked in request.feature_updates
        ],
    )


def _update(asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    lowers = asked.upgrade_type != _UPGRADE if version >= _UPGRADE_TYPES_FROM else asked.allow_downgrade
    return FeatureUpdate(feature=asked.feature, level=max(asked.max_version_level, 0), may_lower=lowers)
