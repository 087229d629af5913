"""A process that has imported the `broker` program and forks one child for each command it is asked for.

Its one argument is the descriptor of a stream socket. A request is a line of JSON, the arguments, that comes
with three descriptors: what are the child's stdin, stdout and stderr. The answer is a line with its exit
code. It ends when the other end is closed.
"""

from __future__ import annotations

import json
import os
import socket
import sys

from broker import cli

REQUEST_BYTES_MAX = 1 << 16


def main() -> None:
    """Serve one command after the other; in a child, run its command and exit."""
    with socket.socket(fileno=int(sys.argv[1])) as asking:
        while True:
            line, streams, _, _ = socket.recv_fds(asking, REQUEST_BYTES_MAX, 3)
            if not line:
                return
            child = os.fork()
            if child == 0:
                asking.close()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                sys.exit(cli.main(json.loads(line)))
            for stream in streams:
                os.close(stream)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            asking.sendall(f"{code}\n".encode())


if __name__ == "__main__":
    main()
