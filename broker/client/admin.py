"""Administration of a cluster: topics, groups, transactions, settings and quotas in one place."""

from __future__ import annotations

from broker.client.config_admin import ConfigAdmin, ConfigEntry
from broker.client.group_admin import GroupAdmin
from broker.client.group_descriptions import GroupDescription, GroupListing, MemberDescription
from broker.client.quota_admin import QuotaAdmin
from broker.client.reassignment_admin import OngoingReassignment, ReassignmentAdmin
from broker.client.topic_admin import CLUSTER_DEFAULT, HIGH_WATERMARK, NewTopic, TopicAdmin
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
    "GroupDescription",
    "GroupListing",
    "HangingTransaction",
    "MemberDescription",
    "NewTopic",
    "OngoingReassignment",
    "ProducerDescription",
    "TransactionDescription",
    "TransactionListing",
]


class Admin(TopicAdmin, ReassignmentAdmin, GroupAdmin, TransactionAdmin, ConfigAdmin, QuotaAdmin):
    """Everything that can be asked of a cluster beside producing and consuming. Needs no closing: the
    connections are the cluster's.
    """
