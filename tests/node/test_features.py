"""Finalized features of a real cluster: told to clients, changed by UpdateFeatures, kept in ZooKeeper."""

from __future__ import annotations

import pytest

from broker.embedded import EmbeddedCluster
from broker.errors import ErrorCode
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.conftest import ClusterFactory, until
from tests.node.raw_client import RawClient, connected

UPGRADE, DOWNGRADE = 1, 2
TRANSACTIONS = "transaction.version"
KNOWN = {"group.version": 1, TRANSACTIONS: 2}


def api_versions(client: RawClient, version: int | None = None) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return client.request(request, version)


def finalized(client: RawClient) -> dict[str, int]:
    return {feature.name: feature.max_version_level for feature in api_versions(client).finalized_features}


def update(
    client: RawClient,
    feature: str,
    level: int,
    kind: int = UPGRADE,
    *,
    version: int = 2,
    validate_only: bool = False,
) -> UpdateFeaturesResponse:
    asked = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    return client.request(
        UpdateFeaturesRequest(feature_updates=[asked], validate_only=validate_only), version
    )


@pytest.mark.parametrize("version", [3, 4])
def test_a_new_cluster_has_every_feature_at_its_newest_level(client: RawClient, version: int) -> None:
    answer = api_versions(client, version)
    assert {each.name: each.max_version_level for each in answer.finalized_features} == KNOWN
    assert answer.finalized_features_epoch == 0
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    lowest = 0 if version >= 4 else 1
    assert {name: supported[name] for name in KNOWN} == {
        name: (lowest, level) for name, level in KNOWN.items()
    }


def test_features_change_when_somebody_says_so_and_stay_so(cluster: ClusterFactory) -> None:
    nodes: EmbeddedCluster = cluster(brokers=2)
    with connected(nodes.bootstrap[0]) as client, connected(nodes.bootstrap[1]) as other:
        refused = update(client, TRANSACTIONS, 1)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "needs a downgrade" in (refused.error_message or "")
        assert update(client, TRANSACTIONS, 3).error_code == ErrorCode.INVALID_UPDATE_VERSION
        strange = update(client, "strange.version", 1, version=1)
        assert [each.error_code for each in strange.results] == [ErrorCode.INVALID_UPDATE_VERSION]
        assert update(client, TRANSACTIONS, 0, DOWNGRADE, validate_only=True).error_code == 0
        assert finalized(client) == KNOWN
        assert update(client, TRANSACTIONS, 0, DOWNGRADE).error_code == 0
        assert finalized(client) == {"group.version": 1}
        until(lambda: finalized(other) == {"group.version": 1})
        assert update(other, TRANSACTIONS, 1).error_code == 0
    nodes.stop_node(1)
    nodes.start_node(1)
    with connected(nodes.bootstrap[0]) as client:
        assert finalized(client) == {"group.version": 1, TRANSACTIONS: 1}
        assert api_versions(client).finalized_features_epoch == 2
