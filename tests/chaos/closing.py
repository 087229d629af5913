"""The end of a consumer of librdkafka, which at times never comes."""

from __future__ import annotations

import sys
import threading

from confluent_kafka import Consumer

PATIENCE_SECONDS = 30.0


def close(consumer: Consumer) -> None:
    """Close it, as far as it lets itself be closed: a thread of librdkafka's that met a broken connection may
    wait for a lock that nobody gives back (`rd_kafka_toppar_undelegate`). What was read by then is not in
    doubt; the consumer is left to the end of the process.
    """
    closing = threading.Thread(target=consumer.close, name="closing", daemon=True)
    closing.start()
    closing.join(PATIENCE_SECONDS)
    if closing.is_alive():
        sys.stderr.write("a consumer of librdkafka did not let itself be closed\n")
