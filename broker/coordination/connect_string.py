"""ZooKeeper connect strings: `host:port,host:port/chroot`."""

from __future__ import annotations

from dataclasses import dataclass

from broker.errors import ConfigurationError
from broker.types import HostPort

_DEFAULT_PORT = 2181


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectString:
    """Servers of an ensemble, and the path below which everything lives ("" for the root)."""

    servers: tuple[HostPort, ...]
    chroot: str

    @property
    def hosts(self) -> str:
        """The servers alone, comma-separated."""
        return ",".join(str(server) for server in self.servers)

    def __str__(self) -> str:
        return f"{self.hosts}{self.chroot}"

    @classmethod
    def parse(cls, text: str) -> ConnectString:
        """Read `host[:port],...[/chroot]`. Raises ConfigurationError that names the text."""
        hosts, separator, path = text.strip().partition("/")
        chroot = f"/{path.rstrip('/')}" if path.rstrip("/") else ""
        if separator and "//" in chroot:
            raise ConfigurationError([f"zookeeper.connect: {text!r} has an empty part in its chroot"])
        try:
            servers = tuple(_parse_server(host.strip()) for host in hosts.split(","))
        except ValueError as error:
            raise ConfigurationError(
                [f"zookeeper.connect: {text!r} is not host:port[,host:port...][/chroot]"]
            ) from error
        return cls(servers=servers, chroot=chroot)


def _parse_server(text: str) -> HostPort:
    if text and ":" not in text:
        return HostPort(text, _DEFAULT_PORT)
    return HostPort.parse(text)
