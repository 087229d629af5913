"""Our nodes beside those of Apache Kafka: `kafka_comparison` and `replicated_produce` of `ops.bench`."""
