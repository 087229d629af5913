"""How the demo begins and what it shows; the whole of it is run by `make demo`."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from broker.errors import ConfigurationError
from mirrormaker.delays import Arrival
from mirrormaker.demo import run, run_demo
from mirrormaker.demo.figures import Figures, RouteFigures, route_table


@pytest.fixture
def termination() -> Iterator[None]:
    """The demo takes SIGTERM for an interrupt, in its own process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("termination")
def test_clusters_that_listen_on_the_ports_already_are_not_taken_for_the_demos_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [taken.getsockname()[1] for taken in (one, other)]
        file = tmp_path / "demo.yaml"
        file.write_text(
            f"""\
clusters:
  jfk: {{embedded: {{port: {ports[0]}}}}}
  aggregate: {{embedded: {{port: {ports[1]}}}}}
routes:
  - {{from: jfk, to: aggregate, topics: {{include: [flights]}}}}
"""
        )
        monkeypatch.setattr(run, "TOPOLOGY_FILE", file)
        with pytest.raises(ConfigurationError) as caught:
            run_demo(keep=False, output=Console(quiet=True))
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [
        f"cannot listen on 127.0.0.1:{port}" for port in ports
    ]


def test_the_table_of_routes_fits_a_terminal_of_80_columns() -> None:
    route = RouteFigures(
        route="jfk-to-aggregate",
        topic="jfk.flights",
        records_in=111_279,
        records_mirrored=111_279,
        compressed_bytes=10_700_000,
        uncompressed_bytes=35_400_000,
        lag_records=0,
    )
    figures = Figures(
        routes=(route,) * 3,
        arrivals={"jfk.flights": Arrival(records=336_776, rows=336_776)},
        delays={},
        expected_delays={},
        produce_seconds=1.0,
        mirror_seconds=1.0,
        spark_seconds=1.0,
    )
    console = Console(width=80)
    with console.capture() as capture:
        console.print(route_table(figures))
    shown = capture.get()
    assert "jfk-to-aggregate" in shown
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
