"""Pipelines of a topology: when they run, what a run does in Spark, and what is kept of it."""
