"""Giving the parts of a running node the configuration that follows from altered settings."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config import NodeConfig
from broker.disk_threads import DiskThreads
from broker.listening import Front
from broker.part_configs import (
    cleaner_settings,
    controller_settings,
    log_defaults,
    serving_limits,
    upkeep_intervals,
)
from broker.replication.log_cleaner import LogCleaner
from broker.replication.upkeep import Upkeep
from broker.server.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """The parts that take other settings while they work."""

    services: Services
    front: Front
    upkeep: Upkeep
    cleaner: LogCleaner
    threads: DiskThreads

    async def apply(self, config: NodeConfig) -> None:
        """Have everything work by `config` from now on; returns when it does."""
        self.front.reconfigure(config)
        self.threads.resize(config.num_io_threads)
        self.upkeep.intervals = upkeep_intervals(config)
        self.cleaner.reconfigure(cleaner_settings(config))
        services = self.services
        services.log_moves.reconfigure(config.replica_alter_log_dirs_io_max_bytes_per_second)
        services.fetchers.reconfigure(config.num_replica_fetchers)
        services.replication_quotas.reconfigure(
            leader=config.leader_replication_throttled_rate,
            follower=config.follower_replication_throttled_rate,
        )
        services.limits = serving_limits(config)
        services.topic_configs.defaults = log_defaults(config)
        for replica in services.replicas:
            replica.log.update_config(services.topic_configs.of(replica.topic_partition.topic))
        await services.controller.reconfigure(controller_settings(config))
