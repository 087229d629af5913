"""A process that has imported the programs and forks one child for each command it is asked for.

Its one argument is the descriptor of a stream socket. A request is a line of JSON, `{"program", "arguments",
"directory", "environment"}`, that comes with four descriptors: what are the command's stdin, stdout and
stderr, and where the answer goes: a line with its process id when it begins, and one with its exit code when
it has ended. Commands run side by side. The server ends when the other end is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
from typing import Any

from broker.cli import main as broker
from mirrormaker.cli import main as mirrormaker

STREAMS = 3
_READ_BYTES = 1 << 16
_PROGRAMS = {"broker": broker, "mirrormaker": mirrormaker}


def main() -> None:
    """Have a child see to each request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for these
    with socket.socket(fileno=int(sys.argv[1])) as asking:
        while True:
            line, descriptors, _, _ = socket.recv_fds(asking, _READ_BYTES, STREAMS + 1)
            if not line:
                return
            while not line.endswith(b"\n"):
                line += asking.recv(_READ_BYTES)
            if os.fork() == 0:
                asking.close()
                _see_to(json.loads(line), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


def _see_to(request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the command in a child, answer, and exit."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, answer = descriptors
    child = os.fork()
    if child == 0:
        os.close(answer)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
        random.seed()
        sys.exit(_PROGRAMS[request["program"]](request["arguments"]))
    for stream in streams:
        os.close(stream)
    with contextlib.suppress(BrokenPipeError):  # who asked has given up
        os.write(answer, f"{child}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(answer, f"{code}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    main()
