"""What clients find their way by: the little that the APIs of a name server need, and that every node has.

Handlers of these APIs take a `Naming` where others take the whole `Services`, so that they answer in both
processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.cluster.features import FeatureLevels
from broker.server.cluster_view import ClusterView
from broker.server.quotas import Quotas
from broker.server.security import Authoriser
from broker.types import BrokerId
from broker.wire.messages.api_versions import ApiVersion


class TopicMaker(Protocol):
    """Has topics exist that are asked for."""

    @property
    def auto_create(self) -> bool:
        """Whether topics come to be by asking for them."""
        ...

    async def ensure(self, name: str) -> None:
        """Have the topic exist and be led. Raises ProtocolError."""
        ...


class Authorised(Protocol):
    """Something whose requests an authoriser decides about."""

    @property
    def authoriser(self) -> Authoriser: ...


class Served(Authorised, Protocol):
    """What dispatch needs of whom it serves."""

    @property
    def quotas(self) -> Quotas: ...

    @property
    def api_versions(self) -> Sequence[ApiVersion]: ...

    @property
    def features(self) -> FeatureLevels: ...


class Naming(Served, Protocol):
    """See the module's description."""

    @property
    def view(self) -> ClusterView: ...

    @property
    def topics(self) -> TopicMaker: ...

    @property
    def controller_id(self) -> BrokerId: ...
