"""Features that ApiVersions tells of: our nodes' own, and Kafka's that clients look for."""

TRANSACTION_VERSION = "transaction.version"
"""Finalized at 2 or more: leaders make partitions part of transactions, and each has an epoch (KIP-890)."""

PRODUCE_BATCHES = "mirrormaker.produce.batches"
"""As many batches of one partition as its level says may share a produce request (Kafka's nodes take one)."""
PRODUCE_BATCHES_MAX = 1024

FETCH_FILTER = "mirrormaker.fetch.filter"
"""Fetches may bring a filter of records, and their answers then leave out batches without any that match."""

FETCH_ORDER = "mirrormaker.fetch.order"
"""Fetches may say that the order of their partitions counts, also where the answer before was cut short."""

PRODUCE_FORWARDING = "mirrormaker.produce.forwarding"
"""Records for partitions of other leaders are passed on to them, for clients that ask for it."""
