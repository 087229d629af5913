"""One run of a pipeline as a process with a JVM of its own: `python -m mirrormaker.pipelines.child`.

Standard input holds one JSON object in a line: the text of the topology in force and its file, the pipeline,
and what the run is for; then, while it lasts, until when it may (`tenure`). Standard output gets the record
of the run as its last line. SIGTERM, or SIGINT, ends the run early. Exit 0: it succeeded, or was stopped;
1: it failed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import BinaryIO

from broker.clock import SystemClock
from broker.errors import BrokerError
from broker.telemetry import configure_logging
from mirrormaker.pipelines.command_lines import find_pipeline
from mirrormaker.pipelines.run_record import encode_record
from mirrormaker.pipelines.runner import RunFailedError, Runner, RunRequest
from mirrormaker.pipelines.tenure import Tenure
from mirrormaker.reconcile.topology_file import TopologyText


def main() -> int:
    """Run one pipeline once; returns the exit code."""
    told = sys.stdout
    sys.stdout = sys.stderr  # what jobs and Spark print is no record
    heard = _own_input()
    order = json.loads(heard.readline())
    Tenure(order["held_until_ms"], heard, told.fileno()).begin()
    configure_logging(order["log_level"])
    topology = TopologyText(text=order["text"], file=Path(order["file"])).parse()
    runner = Runner(topology, find_pipeline(topology, order["pipeline"]), SystemClock())
    runner.heed_signals()
    request = RunRequest(trigger=order["trigger"], attempt=order["attempt"], due_ms=order["due_ms"])
    try:
        record, code = runner.run(request), 0
    except RunFailedError as error:
        record, code = error.record, 1
    except BrokerError as error:
        print(json.dumps({"problem": str(error)}), file=told, flush=True)
        return 1
    print(encode_record(record), file=told, flush=True)
    return code


def _own_input() -> BinaryIO:
    """Standard input, which processes that a job starts do not read from this process."""
    heard = os.fdopen(os.dup(0), "rb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return heard


if __name__ == "__main__":
    sys.exit(main())
