"""Heartbeats: records of the mirror's own on the way of the others, which tell silence from a stop."""
