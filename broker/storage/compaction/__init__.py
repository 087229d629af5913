"""Compaction of logs: of each key the newest record stays, in its place and under its offset."""
