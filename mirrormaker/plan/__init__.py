"""Differences between what the topology asks for and what the clusters have, as data. Pure."""
