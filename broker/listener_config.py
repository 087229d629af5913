"""Listeners out of the settings that describe them: where a node listens, and what clients are told.

`listeners` are bound; `advertised.listeners` names the addresses of some or all of them under which others
reach the node. A host left empty in `listeners` binds every address and is advertised as this machine's name;
`0.0.0.0` and `[::]` bind every address too, but then the address to be told must be given.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from broker.server.security import Listener, SecurityProtocol
from broker.types import HostPort

WILDCARDS = ("0.0.0.0", "::")
PREFIXED = ("max.connections", "max.connection.creation.rate")
"""Settings that a listener may have of its own, as `listener.name.NAME.max.connections`."""

_PREFIX = re.compile(rf"listener\.name\.(.+?)\.({'|'.join(map(re.escape, PREFIXED))})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTexts:
    """The settings as they were given."""

    listeners: Sequence[str]
    advertised: Sequence[str]
    protocols: Sequence[str]
    inter_broker: str | None

    @property
    def bound(self) -> list[Listener]:
        """The listeners to bind. Raises ValueError."""
        return list(_listeners(self.listeners, _protocols(self.protocols)))

    @property
    def told(self) -> list[Listener]:
        """The listeners that others are told, by the same names; an empty host is this machine's name, which
        may take a while to find out. Raises ValueError.
        """
        return [_named(listener) for listener in self.told_as_given]

    @property
    def told_as_given(self) -> list[Listener]:
        """As `told`, with empty hosts. Raises ValueError."""
        return list(_listeners(self.advertised or self.listeners, _protocols(self.protocols)))

    @property
    def between_nodes(self) -> str:
        """The name of the listener that nodes use among themselves. Raises ValueError."""
        return self.inter_broker.upper() if self.inter_broker else self.bound[0].name


def problems_of(texts: ListenerTexts) -> Iterator[tuple[str, str]]:
    """What is wrong, each with the setting's name."""
    try:
        _protocols(texts.protocols)
    except ValueError as error:
        yield "listener.security.protocol.map", str(error)
        return
    if not texts.listeners:
        yield "listeners", "at least one address is needed"
        return
    try:
        bound = texts.bound
    except ValueError as error:
        yield "listeners", str(error)
        return
    for problem in _clashes(bound):
        yield "listeners", problem
    try:
        told = texts.told_as_given
    except ValueError as error:
        yield "advertised.listeners", str(error)
        return
    for problem in _untellable(bound, told, given=bool(texts.advertised)):
        yield "advertised.listeners", problem
    if texts.between_nodes not in [listener.name for listener in told]:
        yield "inter.broker.listener.name", f"{texts.inter_broker} is none of the advertised listeners"


def listener_setting(name: str) -> tuple[str, str] | None:
    """The listener's name and the setting of one that is prefixed with `listener.name.`, else None."""
    match = _PREFIX.fullmatch(name)
    return (match[1].upper(), match[2]) if match else None


def listener_setting_name(listener: str, setting: str) -> str:
    """The inverse of `listener_setting`."""
    return f"listener.name.{listener.lower()}.{setting}"


def address_limit(text: str) -> tuple[str, int]:
    """One of `max.connections.per.ip.overrides`. Raises ValueError."""
    address, separator, count = text.rpartition(":")
    if not separator or not count.isdecimal():
        raise ValueError(f"expected ADDRESS:COUNT, not {text!r}")
    try:
        host = ipaddress.ip_address(address.removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise ValueError(f"expected ADDRESS:COUNT with an IP address, not {text!r}") from error
    return str(host), int(count)


def _listeners(texts: Iterable[str], protocols: Mapping[str, SecurityProtocol]) -> Iterator[Listener]:
    for text in texts:
        name, separator, address = text.partition("://")
        if not separator or not name:
            raise ValueError(f"expected NAME://HOST:PORT, not {text!r}")
        protocol = protocols.get(name.upper())
        if protocol is None:
            raise ValueError(f"{name} has no protocol in listener.security.protocol.map")
        host, _, port = address.rpartition(":")
        where = HostPort("", int(port)) if not host and port.isdecimal() else HostPort.parse(address)
        if where.port > 65535:
            raise ValueError(f"{where.port} is no port, in {text!r}")
        if ":" in where.host and "[" not in address:
            raise ValueError(f"an IPv6 address stands in brackets, as [::1]:9092; not {text!r}")
        yield Listener(name=name.upper(), protocol=protocol, address=where)


def _protocols(texts: Iterable[str]) -> dict[str, SecurityProtocol]:
    protocols: dict[str, SecurityProtocol] = {}
    for text in texts:
        name, separator, protocol = text.partition(":")
        if not separator or protocol not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise ValueError(f"expected NAME:PROTOCOL with one of {known}, not {text!r}")
        if name.upper() in protocols:
            raise ValueError(f"{name} is given twice")
        protocols[name.upper()] = SecurityProtocol[protocol]
    return protocols


def _named(listener: Listener) -> Listener:
    host, port = listener.address
    return listener if host else replace(listener, address=HostPort(socket.getfqdn(), port))


def _clashes(bound: Sequence[Listener]) -> Iterator[str]:
    """Names that are given twice, and addresses that cannot both be bound."""
    for index, listener in enumerate(bound):
        for other in bound[:index]:
            if other.name == listener.name:
                yield f"the listener name {listener.name} is given twice"
            elif _overlap(other.address, listener.address):
                yield f"{listener} and {other} cannot both have the port {listener.address.port}"


def _overlap(one: HostPort, other: HostPort) -> bool:
    if one.port != other.port or not one.port:
        return False
    return one.host == other.host or _takes_all(one.host, other.host) or _takes_all(other.host, one.host)


def _takes_all(host: str, other: str) -> bool:
    """Whether listening on `host` takes the port on `other` as well: `::` takes IPv4 too."""
    return host in ("", "::") or (host == "0.0.0.0" and ":" not in other)


def _untellable(bound: Sequence[Listener], told: Sequence[Listener], *, given: bool) -> Iterator[str]:
    ports = {listener.name: listener.address.port for listener in bound}
    seen: set[str] = set()
    for listener in told:
        if listener.address.host in WILDCARDS:
            yield f"clients cannot be told {listener}, give the host they are to use"
        if listener.name not in ports:
            yield f"{listener.name} is none of the listeners"
        elif given and not listener.address.port and ports[listener.name]:
            yield f"clients cannot be told {listener}, give the port they are to use"
        if given and listener.name in seen:
            yield f"the listener name {listener.name} is given twice"
        seen.add(listener.name)
