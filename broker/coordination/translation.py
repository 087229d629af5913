"""What kazoo raises, in the port's terms."""

from __future__ import annotations

from kazoo import exceptions as kazoo_errors

from broker.coordination.protocol import BadVersionError, NodeExistsError, NoNodeError, SessionLostError
from broker.errors import CoordinationError

_SESSION_ERRORS = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
)


def translated(error: Exception, operation: str, path: str) -> CoordinationError:
    """The error of an operation on a path, which it names."""
    place = f"{operation} {path}"
    match error:
        case kazoo_errors.NodeExistsError():
            return NodeExistsError(f"{place}: the znode exists")
        case kazoo_errors.NoNodeError():
            return NoNodeError(f"{place}: no such znode")
        case kazoo_errors.BadVersionError():
            return BadVersionError(f"{place}: the znode was changed by another")
        case kazoo_errors.NotEmptyError():
            return CoordinationError(f"{place}: the znode has children")
        case kazoo_errors.NoChildrenForEphemeralsError():
            return CoordinationError(f"{place}: an ephemeral znode cannot have children")
    if isinstance(error, _SESSION_ERRORS):
        return SessionLostError(f"{place}: the connection to ZooKeeper was lost")
    return CoordinationError(f"{place}: {type(error).__name__} {error}".rstrip())
