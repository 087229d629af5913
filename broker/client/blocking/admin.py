"""Administration for threads. Any number of threads may share one."""

from __future__ import annotations

from functools import partial

from broker.client.admin import Admin as AsyncAdmin
from broker.client.blocking.cluster import Cluster, ZooKeeper
from broker.client.blocking.facade import Facade, blocking
from broker.client.zookeeper_group_admin import ZooKeeperGroupAdmin as AsyncZooKeeperGroupAdmin


class Admin(Facade[AsyncAdmin]):
    """Everything that can be asked of a cluster beside producing and consuming. Needs no closing."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 30_000) -> None:
        """`timeout_ms` bounds each operation, attempts and all."""
        make = partial(AsyncAdmin, cluster.behind, timeout_ms=timeout_ms)
        super().__init__(cluster.thread, cluster.thread.run(make))

    create_topic = blocking(AsyncAdmin.create_topic)
    create_topics = blocking(AsyncAdmin.create_topics)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    delete_records = blocking(AsyncAdmin.delete_records)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)

    reassign = blocking(AsyncAdmin.reassign)
    reassignments = blocking(AsyncAdmin.reassignments)
    visible_reassignments = blocking(AsyncAdmin.visible_reassignments)
    find_partitions = blocking(AsyncAdmin.find_partitions)
    replica_progress = blocking(AsyncAdmin.replica_progress)
    move = blocking(AsyncAdmin.move)
    await_moves = blocking(AsyncAdmin.await_moves)

    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    remove_static_members = blocking(AsyncAdmin.remove_static_members)
    group_offsets = blocking(AsyncAdmin.group_offsets)
    reset_group_offsets = blocking(AsyncAdmin.reset_group_offsets)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    group_lags = blocking(AsyncAdmin.group_lags)
    move_group_offsets = blocking(AsyncAdmin.move_group_offsets)

    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    find_hanging_transactions = blocking(AsyncAdmin.find_hanging_transactions)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    abort_open_transaction = blocking(AsyncAdmin.abort_open_transaction)

    describe_topic_configs = blocking(AsyncAdmin.describe_topic_configs)
    describe_topics_configs = blocking(AsyncAdmin.describe_topics_configs)
    describe_broker_configs = blocking(AsyncAdmin.describe_broker_configs)
    describe_group_configs = blocking(AsyncAdmin.describe_group_configs)
    alter_topic_configs = blocking(AsyncAdmin.alter_topic_configs)
    alter_broker_configs = blocking(AsyncAdmin.alter_broker_configs)
    alter_group_configs = blocking(AsyncAdmin.alter_group_configs)

    describe_quotas = blocking(AsyncAdmin.describe_quotas)
    alter_quotas = blocking(AsyncAdmin.alter_quotas)


class ZooKeeperGroupAdmin(Facade[AsyncZooKeeperGroupAdmin]):
    """The operations on groups, for those that meet in ZooKeeper. Needs no closing."""

    def __init__(self, cluster: Cluster, coordination: ZooKeeper, *, timeout_ms: int = 30_000) -> None:
        """`coordination` is a started session of the caller's."""
        make = partial(AsyncZooKeeperGroupAdmin, cluster.behind, coordination.behind, timeout_ms=timeout_ms)
        super().__init__(cluster.thread, cluster.thread.run(make))

    list_groups = blocking(AsyncZooKeeperGroupAdmin.list_groups)
    describe_groups = blocking(AsyncZooKeeperGroupAdmin.describe_groups)
    delete_groups = blocking(AsyncZooKeeperGroupAdmin.delete_groups)
    group_owners = blocking(AsyncZooKeeperGroupAdmin.group_owners)
    group_offsets = blocking(AsyncZooKeeperGroupAdmin.group_offsets)
    reset_group_offsets = blocking(AsyncZooKeeperGroupAdmin.reset_group_offsets)
    delete_group_offsets = blocking(AsyncZooKeeperGroupAdmin.delete_group_offsets)
    group_lags = blocking(AsyncZooKeeperGroupAdmin.group_lags)
    move_group_offsets = blocking(AsyncZooKeeperGroupAdmin.move_group_offsets)
