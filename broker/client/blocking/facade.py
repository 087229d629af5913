"""What all blocking clients are: the asyncio client of the same name, on the loop of its cluster's thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from broker.client.blocking.loop_thread import LoopThread

_Behind = TypeVar("_Behind")
_Behind_co = TypeVar("_Behind_co", covariant=True)
_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")


class Facade(Generic[_Behind_co]):
    """A client for threads; `behind` is the one on the loop, `thread` runs that."""

    def __init__(self, thread: LoopThread, behind: _Behind_co) -> None:
        self.thread = thread
        self.behind = behind

    @classmethod
    def around(cls, thread: LoopThread, behind: Any) -> Self:
        """A facade of a client that is there already."""
        facade = cls.__new__(cls)
        Facade.__init__(facade, thread, behind)
        return facade

    def _prepare(self) -> None:
        """Called on the loop before each method that is made by `blocking` or `on_loop`."""


def blocking(
    method: Callable[Concatenate[_Behind, _Parameters], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[Facade[_Behind], _Parameters], _Result]:
    """A facade's method that waits for the coroutine of this one; signature and documentation stay."""

    @wraps(method)
    def call(facade: Facade[_Behind], /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        async def work() -> _Result:
            facade._prepare()
            return await method(facade.behind, *args, **kwargs)

        return facade.thread.call(work)

    return call


def on_loop(
    method: Callable[Concatenate[_Behind, _Parameters], _Result],
) -> Callable[Concatenate[Facade[_Behind], _Parameters], _Result]:
    """A facade's method that has this plain one called on the loop; signature and documentation stay."""

    @wraps(method)
    def call(facade: Facade[_Behind], /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        def work() -> _Result:
            facade._prepare()
            return method(facade.behind, *args, **kwargs)

        return facade.thread.run(work)

    return call
