"""What a query may say: the parameters that a request has, and no others. Pure.

One that is misspelt is refused, not passed over: without it most requests mean more. (Health and metrics may
be asked with any: monitors add some of their own, and nothing hangs on them.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from broker.errors import ConfigurationError


def check_query(query: Mapping[str, str], once: Collection[str] = (), several: Collection[str] = ()) -> None:
    """That a query has these parameters alone, those of `once` at most once. Its names may repeat.

    Raises ConfigurationError with every one that is not.
    """
    known = sorted({*once, *several})
    known_ones = f"known are {', '.join(known)}" if known else "none is known"
    problems: list[str] = []
    for name, times in Counter(name for name, _ in query.items()).items():
        if name not in known:
            problems.append(f"there is no parameter {name!r}: {known_ones}")
        elif times > 1 and name not in several:
            problems.append(f"{name}: given {times} times")
    if problems:
        raise ConfigurationError(problems)
