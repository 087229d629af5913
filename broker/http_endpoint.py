"""A small HTTP server in a thread of its own: `/metrics` for Prometheus, `/health` for whoever restarts
processes. Anything else is not found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from broker.errors import ConfigurationError
from broker.types import HostPort

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_TEXT = [("Content-Type", "text/plain; charset=utf-8")]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the base class's
        """A probe every few seconds is no event."""


@contextlib.contextmanager
def http_endpoint(address: HostPort, collector: Collector) -> Iterator[HostPort]:
    """Serve from entry to exit; yields the address with the port that is really bound. Raises
    ConfigurationError when the address cannot be bound.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    metrics = make_wsgi_app(registry)

    def serve(environment: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environment["PATH_INFO"]:
            case "/metrics":
                told: Iterable[bytes] = metrics(environment, start_response)
                return told
            case "/health":
                start_response("200 OK", _TEXT)
                return [b"ok\n"]
            case _:
                start_response("404 Not Found", _TEXT)
                return [b"/metrics and /health are here\n"]

    try:
        server = make_server(
            address.host, address.port, serve, server_class=_Server, handler_class=_SilentHandler
        )
    except (OSError, OverflowError) as error:
        raise ConfigurationError([f"--http {address}: cannot listen there: {error}"]) from error
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="http", daemon=True)
    thread.start()
    try:
        yield HostPort(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
