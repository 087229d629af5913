"""Queries to which Spark gave too little time to begin.

Spark starts a Python process for each query on the data source. It has ten seconds to import what it needs
and to connect, and no setting says otherwise. On a machine that others keep busy it may need more, and what
fails then is the query, though nothing is wrong and nothing was done. Such a query is started again.
"""

from __future__ import annotations

STARTS_MAX = 12
"""How often a query is started before it has done anything: two minutes without a process that begins."""
_TOO_SLOW = "Python worker failed to connect back"


def is_slow_start(error: BaseException) -> bool:
    """Whether a query failed because its process was too slow to begin."""
    return _TOO_SLOW in str(error)
