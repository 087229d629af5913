"""Features that our nodes tell of in ApiVersions, beside Kafka's own."""

PRODUCE_BATCHES = "mirrormaker.produce.batches"
"""As many batches of one partition as its level says may share a produce request (Kafka's nodes take one)."""
PRODUCE_BATCHES_MAX = 1024
