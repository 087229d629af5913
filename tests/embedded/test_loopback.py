"""Who listens on a port of this machine."""

from __future__ import annotations

import socket

from broker.loopback import LOOPBACK, accepts, reaches_another, require_free_ports
from broker.types import HostPort


def test_a_connection_that_meets_itself_is_nobody_and_leaves_the_port_free() -> None:
    with socket.socket() as alone:
        alone.bind((LOOPBACK, 0))
        port = alone.getsockname()[1]
        alone.connect((LOOPBACK, port))
        assert not reaches_another(alone)
    require_free_ports([port])
    with socket.create_server((LOOPBACK, port)):
        assert accepts(HostPort(LOOPBACK, port))
    assert not accepts(HostPort(LOOPBACK, port))
