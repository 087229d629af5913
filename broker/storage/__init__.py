"""A node's data on disk: segments, indexes, logs, recovery and data directories, in Kafka's file formats."""
