"""The Python client for threads: the classes of the asyncio client by the same names, without `await`.

    with Cluster([HostPort("127.0.0.1", 9092)]) as cluster, Producer(cluster) as producer:
        producer.send("visits", b"value").result()

A cluster has one background thread with an event loop, on which everything made with it runs. Clients may be
used from any thread but that one, a consumer or a stream by one reader. They are of no use in a process that
is forked off. Errors are those of the asyncio client; Ctrl-C ends a call that waits, and what it waited for.
"""

from broker.client.blocking.admin import Admin, ZooKeeperGroupAdmin
from broker.client.blocking.cluster import Cluster, ZooKeeper
from broker.client.blocking.consumer import Consumer, open_consumer
from broker.client.blocking.consumer_connector import ConsumerConnector, RebalanceListener, RecordStream
from broker.client.blocking.producer import Producer, TransactionalProducer, open_producer
from broker.client.blocking.simple_consumer import SimpleConsumer

__all__ = [
    "Admin",
    "Cluster",
    "Consumer",
    "ConsumerConnector",
    "Producer",
    "RebalanceListener",
    "RecordStream",
    "SimpleConsumer",
    "TransactionalProducer",
    "ZooKeeper",
    "ZooKeeperGroupAdmin",
    "open_consumer",
    "open_producer",
]
