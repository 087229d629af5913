"""The cluster as this node sees it: the current image, and waiting until it shows something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.cluster.image import ClusterImage, ImageUpdate
from broker.errors import RequestTimedOutError


class ClusterView:
    """Holds the image; the controller's updates replace it. Owned by the event loop."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._is_told = False
        self._changed: asyncio.Future[None] | None = None

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def is_told(self) -> bool:
        """Whether a controller has told anything yet; before, the image is empty or what ZooKeeper said."""
        return self._is_told

    def begin_with(self, image: ClusterImage) -> None:
        """Serve from what ZooKeeper says, until a controller has told anything."""
        if not self._is_told:
            self._image = image

    def apply(self, update: ImageUpdate) -> None:
        """Take in what the controller told, and wake those who wait for it."""
        self._image = self._image.apply(update)
        self._is_told = True
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def until(self, condition: Callable[[ClusterImage], bool], *, timeout_ms: int) -> None:
        """Return once the image fulfils `condition`. Raises RequestTimedOutError when it does not in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not condition(self._image):
                    if self._changed is None:
                        self._changed = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._changed)
        except TimeoutError:
            raise RequestTimedOutError(
                f"the cluster did not change as awaited within {timeout_ms} ms"
            ) from None
