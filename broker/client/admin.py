"""Administration of a cluster: topics, groups, transactions, settings and quotas in one place."""

from __future__ import annotations

from broker.client.config_admin import ConfigEntry
from broker.client.group_descriptions import GroupDescription, GroupListing, MemberDescription
from broker.client.group_offset_admin import (
    Destination,
    GroupLag,
    GroupOffsetAdmin,
    ShiftBy,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
)
from broker.client.partition_admin import PartitionAdmin, ReplicaProgress
from broker.client.quota_admin import QuotaAdmin
from broker.client.reassignment_admin import OngoingReassignment
from broker.client.static_member_admin import StaticMemberAdmin
from broker.client.topic_admin import CLUSTER_DEFAULT, HIGH_WATERMARK, NewTopic
from broker.client.transaction_admin import (
    HangingTransaction,
    ProducerDescription,
    TransactionAdmin,
    TransactionDescription,
    TransactionListing,
)

__all__ = [
    "CLUSTER_DEFAULT",
    "HIGH_WATERMARK",
    "Admin",
    "ConfigEntry",
    "Destination",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "HangingTransaction",
    "MemberDescription",
    "NewTopic",
    "OngoingReassignment",
    "ProducerDescription",
    "ReplicaProgress",
    "ShiftBy",
    "ToEarliest",
    "ToLatest",
    "ToOffset",
    "ToTime",
    "TransactionDescription",
    "TransactionListing",
]


class Admin(PartitionAdmin, GroupOffsetAdmin, StaticMemberAdmin, TransactionAdmin, QuotaAdmin):
    """Everything that can be asked of a cluster beside producing and consuming. Needs no closing: the
    connections are the cluster's.
    """
