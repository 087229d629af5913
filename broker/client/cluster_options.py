"""A cluster out of options by name: what any client may be given, whatever else it does.

Options of secured connections are among them (`security.protocol`, `ssl.*`, `sasl.*`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from broker.client.backoff import Backoff
from broker.client.cluster import Cluster, Routing
from broker.client.connection import ConnectionSettings
from broker.client.discovery import discovered
from broker.client.option_names import Option, broker_list
from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.client.security.given_options import OPTION_NAMES, STORE_PASSWORDS
from broker.coordination.zookeeper import ZooKeeper
from broker.errors import ConfigurationError
from broker.settings import Kind, SettingType, integer, long, string
from broker.types import HostPort

_SECURITY_NAMES = (*OPTION_NAMES, *STORE_PASSWORDS)
"""Those of Java's stores are here to be refused with the reason."""

CLUSTER_OPTIONS = (
    Option(name="bootstrap.servers", kind=broker_list(), aliases=("metadata.broker.list", "broker.list")),
    Option(name="zookeeper.connect", kind=string(), aliases=("zk.connect",)),
    Option(name="zookeeper.session.timeout.ms", kind=integer(1), aliases=("zk.sessiontimeout.ms",)),
    Option(name="zookeeper.connection.timeout.ms", kind=integer(1), aliases=("zk.connectiontimeout.ms",)),
    Option(name="routing", kind=string(tuple(routing.value for routing in Routing))),
    Option(name="client.id", kind=string()),
    Option(name="socket.connection.setup.timeout.ms", kind=long(1), aliases=("connect.timeout.ms",)),
    Option(name="request.timeout.ms", kind=integer(1), aliases=("socket.timeout.ms",)),
    Option(name="send.buffer.bytes", kind=integer(-1), aliases=("buffer.size",)),
    Option(
        name="receive.buffer.bytes",
        kind=integer(-1),
        aliases=("socket.receive.buffer.bytes", "socket.buffersize"),
    ),
    Option(name="retry.backoff.ms", kind=long(0)),
    Option(name="retry.backoff.max.ms", kind=long(0)),
    *(Option(name=name, kind=Kind(type=SettingType.STRING, parse=str)) for name in _SECURITY_NAMES),
)

_CONNECTION_SETTINGS: Mapping[str, str] = {
    "client.id": "client_id",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How a cluster is found and reached."""

    bootstrap: Sequence[HostPort] = ()
    """Empty where the brokers are found in ZooKeeper."""
    zookeeper: str = ""
    zookeeper_session_timeout_ms: int = 6_000
    zookeeper_connect_timeout_ms: int = 6_000
    security_protocol: str = "PLAINTEXT"
    """Of the listeners whose addresses are looked for in ZooKeeper."""
    routing: Routing = Routing.LEADERS
    connection: ConnectionSettings
    backoff: Backoff

    @classmethod
    def of(cls, values: Mapping[str, Any], problems: list[str]) -> ClusterOptions:
        """Those among options that were read; what is wrong with them is added to `problems`."""
        if ("bootstrap.servers" in values) == ("zookeeper.connect" in values):
            problems.append("bootstrap.servers or zookeeper.connect: exactly one of them is needed")
        pauses = {
            field: values[name]
            for name, field in (("retry.backoff.ms", "initial_ms"), ("retry.backoff.max.ms", "max_ms"))
            if name in values
        }
        return cls(
            bootstrap=values.get("bootstrap.servers", ()),
            zookeeper=values.get("zookeeper.connect", ""),
            zookeeper_session_timeout_ms=values.get("zookeeper.session.timeout.ms", 6_000),
            zookeeper_connect_timeout_ms=values.get("zookeeper.connection.timeout.ms", 6_000),
            security_protocol=values.get("security.protocol", "PLAINTEXT").strip().upper(),
            routing=Routing(values.get("routing", Routing.LEADERS.value)),
            connection=_connection(values, problems),
            backoff=Backoff(**pauses),
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Cluster]:
        """The cluster, until the end of the `async with`.

        Raises ConnectionFailedError, and CoordinationError when ZooKeeper is not reached.
        """
        async with AsyncExitStack() as stack:
            bootstrap, follow = self.bootstrap, None
            if self.zookeeper:
                session = ZooKeeper(self.zookeeper, session_timeout_ms=self.zookeeper_session_timeout_ms)
                await session.start(timeout_ms=self.zookeeper_connect_timeout_ms)
                stack.push_async_callback(session.close)
                discovery = await stack.enter_async_context(
                    discovered(session, security_protocol=self.security_protocol)
                )
                bootstrap, follow = discovery.addresses, discovery.follow
            cluster = await stack.enter_async_context(
                Cluster(bootstrap, settings=self.connection, backoff=self.backoff, routing=self.routing)
            )
            if follow is not None:
                follow(cluster)
            yield cluster


def _connection(values: Mapping[str, Any], problems: list[str]) -> ConnectionSettings:
    fields = {field: values[name] for name, field in _CONNECTION_SETTINGS.items() if name in values}
    for name, field in (
        ("send.buffer.bytes", "send_buffer_bytes"),
        ("receive.buffer.bytes", "receive_buffer_bytes"),
    ):
        fields[field] = max(values.get(name, 0), 0)
    return ConnectionSettings(**fields, security=_security(values, problems))


def _security(values: Mapping[str, Any], problems: list[str]) -> ConnectionSecurity:
    given = {name: values[name] for name in _SECURITY_NAMES if name in values}
    try:
        return ConnectionSecurity.from_options(given) if given else PLAINTEXT
    except ConfigurationError as error:
        problems += error.problems
        return PLAINTEXT
