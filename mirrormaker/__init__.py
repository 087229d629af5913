"""Mirrors between clusters that speak the Kafka protocol, declared in YAML, and Spark pipelines on top."""
