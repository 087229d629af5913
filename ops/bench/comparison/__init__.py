"""One of our nodes beside one of Apache Kafka: `python -m ops.bench.kafka_comparison`."""
