"""Connections to the clusters that a topology names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

from broker.client.cluster import Cluster
from broker.client.connection import CLIENT_SOFTWARE_NAME, ConnectionSettings
from broker.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionFailedError,
    RequestTimedOutError,
)
from mirrormaker.topology.model import ClusterSpec

OPEN_TIMEOUT_MS = 3_000


@asynccontextmanager
async def open_cluster(
    spec: ClusterSpec, *, client_id: str = CLIENT_SOFTWARE_NAME, stays: bool = False
) -> AsyncIterator[Cluster]:
    """A cluster that has answered at least once, and is the one that it should be. Where the file says which,
    and with `stays`, nothing goes to another that takes its place while it is open.

    Raises ConnectionFailedError, AuthenticationError or ConfigurationError that names it.
    """
    settings = ConnectionSettings(
        client_id=client_id, connect_timeout_ms=OPEN_TIMEOUT_MS, security=spec.security
    )
    cluster = Cluster(spec.bootstrap, settings=settings, name=spec.name)
    try:
        try:
            await cluster.start(timeout_ms=OPEN_TIMEOUT_MS)
        except (ConnectionFailedError, RequestTimedOutError) as error:
            raise ConnectionFailedError(f"cluster {spec.name!r}: {error}") from error
        except AuthenticationError as error:
            raise AuthenticationError(f"cluster {spec.name!r}: {error}") from error
        except ConfigurationError as error:
            problems = [f"clusters.{spec.name}.security: {problem}" for problem in error.problems]
            raise ConfigurationError(problems) from error
        _check_identity(spec, cluster)
        required = spec.cluster_id or (cluster.cluster_id if stays else None)
        if required is not None:
            cluster.require_id(required)
        yield cluster
    finally:
        await cluster.close()


async def await_displacement(cluster: Cluster) -> NoReturn:
    """Raises ConnectionFailedError once another cluster has taken the place of this one, which `stays`."""
    other = await cluster.displacement()
    raise ConnectionFailedError(f"the cluster {other!r} has taken the place of {cluster.cluster_id!r}")


def _check_identity(spec: ClusterSpec, cluster: Cluster) -> None:
    if spec.cluster_id is not None and cluster.cluster_id != spec.cluster_id:
        raise ConfigurationError(
            [
                f"clusters.{spec.name}.cluster_id: at these addresses is the cluster {cluster.cluster_id!r},"
                f" not {spec.cluster_id!r}"
            ]
        )
