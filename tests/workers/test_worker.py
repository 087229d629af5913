"""A worker by the orders that it gets and the pictures that it tells, without a process of its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from broker.clock import SystemClock
from mirrormaker import worker as worker_module
from mirrormaker.reconcile.topology_file import TopologyText
from mirrormaker.worker import Worker
from mirrormaker.workers.orders import Run, decode_picture, encode_order

TOPOLOGY = """\
clusters:
  jfk: {bootstrap: ["127.0.0.1:1"]}
  aggregate: {bootstrap: ["127.0.0.1:2"]}
routes:
  - {from: jfk, to: aggregate, topics: {include: [flights]}, resources: {workers: 2}}
data_dir: kept
"""


def test_a_topology_that_was_refused_is_in_force_once_what_it_names_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TopologyText(text=TOPOLOGY, file=tmp_path / "topology.yaml")
    kept = tmp_path / "kept"
    kept.symlink_to(kept)
    monkeypatch.setattr(worker_module, "REFUSED_RETRY_MS", 20)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        read_from, write_to = os.pipe()
        told, orders = asyncio.StreamReader(), asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(told)
        reading, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(read_from, "rb", 0))
        pictures, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(write_to, "wb", 0))
        running = asyncio.create_task(Worker("d", 1, SystemClock()).run(orders, pictures))
        orders.feed_data(encode_order(Run(source=source)))
        while not (picture := decode_picture(await told.readline()))["problem"]:
            pass
        assert (picture["digest"], picture["routes"]) == ("", {})
        kept.unlink()
        while (picture := decode_picture(await told.readline()))["digest"] != source.digest:
            pass
        assert (picture["problem"], list(picture["routes"])) == (None, ["jfk-to-aggregate"])
        orders.feed_eof()
        await running
        pictures.abort()
        reading.close()

    asyncio.run(asyncio.wait_for(main(), 60))
