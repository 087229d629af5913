"""How many files and sockets the process may have open: raised as far as allowed, and checked at the start.

Half of the limit is for files of segments (`storage.open_files`), the other half for connections and the
rest. No other limit of the system matters: nothing is mapped into memory, so `vm.max_map_count` does not.
"""

from __future__ import annotations

from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit

from broker.errors import ConfigurationError
from broker.telemetry import logger

DESCRIPTORS_MIN = 256
"""With fewer a node with one topic and some clients fails sooner or later: it does not start."""
DESCRIPTORS_WANTED = 10_000
"""With fewer a node starts, and says what it lacks."""
_WHERE_UNLIMITED = 1 << 20

_log = logger("node")


def claim_descriptors() -> int:
    """Raise the limit to what the system allows this process; the limit then.

    Raises ConfigurationError when a node cannot run with that.
    """
    limit, allowed = getrlimit(RLIMIT_NOFILE)
    wanted = _WHERE_UNLIMITED if allowed == RLIM_INFINITY else allowed
    if limit != RLIM_INFINITY and limit < wanted:
        try:
            setrlimit(RLIMIT_NOFILE, (wanted, allowed))
            limit = wanted
        except (OSError, ValueError):  # above what the kernel takes: the limit stays as it is
            pass
    if limit == RLIM_INFINITY:
        return _WHERE_UNLIMITED
    if limit < DESCRIPTORS_MIN:
        problem = f"the process may open {limit} files, a node needs {DESCRIPTORS_MIN} (`ulimit -n`)"
        raise ConfigurationError([problem])
    if limit < DESCRIPTORS_WANTED:
        _log.warning("descriptor_limit_low", limit=limit, wanted=DESCRIPTORS_WANTED)
    return limit
