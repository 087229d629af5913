from collections.abc import Callable
from uuid import uuid4

import pytest

from broker.embedded import EmbeddedZooKeeper
from tests.coordination.ensembles import Ensemble, MemoryEnsemble, RealEnsemble


@pytest.fixture(params=["memory", "real"])
def make_ensemble(request: pytest.FixtureRequest) -> Callable[[], Ensemble]:
    """A function that makes an ensemble below a fresh chroot; to be called on the event loop."""
    chroot = f"/tests/{uuid4().hex}"
    if request.param == "memory":
        return lambda: MemoryEnsemble(chroot)
    server: EmbeddedZooKeeper = request.getfixturevalue("zookeeper")
    return lambda: RealEnsemble(server.port, chroot)
