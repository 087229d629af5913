"""Partitions hosted by a node: leadership, in-sync replicas, high watermarks, delayed requests."""
