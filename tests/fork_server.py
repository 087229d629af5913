"""A process that has imported the programs and forks one child for each command it is asked for.

Its one argument is the descriptor of a stream socket. A request is a line of JSON, `{"program", "arguments",
"directory", "environment"}`, that comes with four descriptors: what are the command's stdin, stdout and
stderr, and where the answer goes: a line with its process id when it begins, and one with its exit code when
it has ended. The id is the command's until the other end of that is closed. Commands run side by side. The
server ends when the other end is closed, and all commands with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import random
import signal
import socket
import sys
from importlib import import_module
from typing import Any

from broker.cli import main as broker_main
from mirrormaker.cli import main as mirrormaker_main

STREAMS = 3
PR_SET_PDEATHSIG = 1
_READ_BYTES = 1 << 16
_LATE = ("broker.node", "broker.node_commands", "broker.http_endpoint", "mirrormaker.console.server")
"""What the programs import only when they need it, and most tests do."""
_PROGRAMS = {"broker": broker_main, "mirrormaker": mirrormaker_main}


def main() -> None:
    """Have a child see to each request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for these
    for module in _LATE:
        import_module(module)
    gc.freeze()
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
        die_with_parent()
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
        random.seed()
        sys.exit(_PROGRAMS[request["program"]](request["arguments"]))
    die_with_parent()
    for stream in streams:
        os.close(stream)
    with contextlib.suppress(OSError), socket.socket(fileno=answer) as answers:  # who asked may have given up
        answers.sendall(f"{child}\n".encode())
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        answers.sendall(f"{code}\n".encode())
        answers.recv(1)
    os._exit(0)


def die_with_parent() -> None:
    """Be killed when the process that forked this one ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
