"""What an audit costs: a topic read on both sides, and many partitions by their ledger.

Run: `python -m ops.bench.audit [--mebibytes N] [--partitions P] [--batch-kibibytes K] [--directory DIR]`.
Two real nodes; a daemon copies snappy batches of JSON-like records, and ends. Printed are seconds, CPU
seconds and peak memory of `mirrormaker audit --deep` on a topic of N MiB on 8 partitions, once copied as it
is and (an eighth of it) deep, and of `mirrormaker audit` on one of P partitions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from ops.bench.mirror import TOPIC, _node, fill

WIDE_BYTES_EACH = 16 << 10
DEEP_PARTITIONS = 8
POLL_SECONDS = 0.5
TIMEOUT_SECONDS = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mebibytes", type=int, default=1024, help="compressed bytes to read on each side")
    parser.add_argument("--partitions", type=int, default=1000, help="to judge by the ledger")
    parser.add_argument("--batch-kibibytes", type=int, default=16, help="compressed size")
    parser.add_argument("--directory", type=Path, help="where data is kept (default: a new one in /tmp)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="audit-bench-", dir=options.directory))
    size, batch = options.mebibytes << 20, options.batch_kibibytes << 10
    try:
        run(folder / "as-it-is", "read, copied as it is", DEEP_PARTITIONS, size, batch, "--deep")
        run(folder / "deep", "read, copied deep", DEEP_PARTITIONS, size // 8, batch, "--deep", copy="deep")
        wide = options.partitions * WIDE_BYTES_EACH
        run(folder / "wide", "by the ledger", options.partitions, wide, WIDE_BYTES_EACH)
    finally:
        shutil.rmtree(folder)


def run(folder: Path, what: str, partitions: int, size: int, batch: int, *options: str, **route: str) -> None:
    """Fill, copy, audit, print."""
    with (
        EmbeddedZooKeeper(folder / "zookeeper", fsync=False) as zookeeper,
        _node(folder, "source", zookeeper) as source,
        _node(folder, "destination", zookeeper) as destination,
    ):
        asyncio.run(fill(source.bootstrap[0], partitions, size, batch))
        file = _topology(folder, source, destination, route)
        _copy(file)
        started = time.monotonic()
        answer, usage = _measured("audit", str(file), "--output", "json", *options)
        seconds = time.monotonic() - started
    told = json.loads(answer)["routes"][0]
    assert told["result"] == "equal", answer[-2000:]
    cpu = usage.ru_utime + usage.ru_stime
    print(
        f"{what}: {partitions} partitions, {told['records']:,} records, "
        f"{told['bytes_read'] / 1e6:,.0f} MB read: "
        f"{seconds:.1f} s, {cpu:.1f} CPU s, at most {usage.ru_maxrss >> 10} MiB resident",
        flush=True,
    )


def _topology(
    folder: Path, source: EmbeddedCluster, destination: EmbeddedCluster, route: dict[str, str]
) -> Path:
    file = folder / "topology.yaml"
    sides = {"source": source, "destination": destination}
    document = {
        "clusters": {name: {"bootstrap": [str(side.bootstrap[0])]} for name, side in sides.items()},
        "routes": [{"from": "source", "to": "destination", "topics": {"include": [TOPIC]}, **route}],
        "data_dir": "data",
    }
    file.write_text(yaml.safe_dump(document))
    return file


def _copy(file: Path) -> None:
    """Run a daemon until nothing is left to copy."""
    command = [sys.executable, "-m", "mirrormaker.cli", "--log-level", "error", "run", str(file)]
    with subprocess.Popen(command) as daemon:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not _is_copied(file):
            assert time.monotonic() < deadline, "the daemon has not copied everything"
            time.sleep(POLL_SECONDS)
        daemon.send_signal(signal.SIGTERM)


def _is_copied(file: Path) -> bool:
    route = json.loads(_mirrormaker("status", str(file), "--output", "json").stdout)["routes"][0]
    return bool(route["partitions"]) and route["lag"] is not None and route["lag"]["messages"] == 0


def _measured(*arguments: str) -> tuple[str, resource.struct_rusage]:
    """What a command printed, and what it took."""
    command = [sys.executable, "-m", "mirrormaker.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        answer = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return answer, usage


def _mirrormaker(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mirrormaker.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)


if __name__ == "__main__":
    main()
