"""Whether there is a master of Spark where a pipeline says so: Spark itself takes a minute to tell that not.

A standalone master is asked for a file that it has not got, in a frame of Spark's RPC as any process of Spark
may send it, and refuses that at once, in another. Only who answers in text is no master for certain: one with
TLS says nothing to us, and a busy one says nothing yet.
"""

from __future__ import annotations

import socket
import struct
from urllib.parse import urlsplit

from broker.types import HostPort

_STANDALONE, _KUBERNETES = "spark://", "k8s://"
_HTTPS_PORT = 443
_CONNECT_SECONDS = _ANSWER_SECONDS = 5.0
_STREAM_REQUEST = 6
_FILE = b"/files/none"
_REQUEST = struct.pack(f">qbi{len(_FILE)}s", 13 + len(_FILE), _STREAM_REQUEST, len(_FILE), _FILE)
"""The size of the frame, its own bytes included, the kind of message, and the name of the stream."""
_ANSWER_BYTES = 80


def master_problem(master: str) -> str | None:
    """Why no process of Spark would find its master there, None where one may."""
    try:
        addresses = _addresses(master)
    except ValueError as error:
        return str(error)
    problems = []
    for address in addresses:
        try:
            with socket.create_connection((address.host, address.port), _CONNECT_SECONDS) as connection:
                answer = _text_answer(connection) if master.startswith(_STANDALONE) else None
        except OSError as error:
            problems.append(f"{address}: {error.strerror or error}")
            continue
        if answer is None:
            return None
        problems.append(f"{address}: no master of Spark: it answers {answer!r}")
    return f"cannot be reached: {', '.join(problems)}" if problems else None


def _text_answer(connection: socket.socket) -> str | None:
    """The first line of what it says to a frame of Spark's, None where that may be another, or is nothing."""
    connection.settimeout(_ANSWER_SECONDS)
    try:
        connection.sendall(_REQUEST)
        answer = connection.recv(_ANSWER_BYTES)
    except OSError:
        return None
    line = answer.split(b"\n")[0].strip()
    return line.decode() if line.isascii() and line.decode().isprintable() and line else None


def _addresses(master: str) -> list[HostPort]:
    """Those of a master that is reached by the network alone. Raises ValueError."""
    if master.startswith(_STANDALONE):
        return [HostPort.parse(each) for each in master.removeprefix(_STANDALONE).split(",")]
    if not master.startswith(_KUBERNETES):
        return []
    where = urlsplit(master.removeprefix(_KUBERNETES))
    if where.hostname is None:
        where = urlsplit(f"https://{master.removeprefix(_KUBERNETES)}")
    return [HostPort(where.hostname or "", where.port or _HTTPS_PORT)]
