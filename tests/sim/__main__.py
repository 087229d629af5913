"""Run seeds: `python -m tests.sim --seed 7 --trace`, `python -m tests.sim --first 0 --count 10000`."""

from __future__ import annotations

import argparse
import sys

from tests.sim.simulation import run_seed, with_transactions


def main() -> int:
    """Runs what the arguments ask for; 1 when any seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--trace", action="store_true", help="tell everything that happens")
    parser.add_argument("--transactions", action="store_true", help="with clients that have transactions")
    parser.add_argument("--first", type=int, default=0, help="run from this seed on")
    parser.add_argument("--count", type=int, default=200, help="so many seeds")
    options = parser.parse_args()
    seeds = (
        [options.seed] if options.seed is not None else range(options.first, options.first + options.count)
    )
    failed = 0
    for seed in seeds:
        scenario = with_transactions(seed) if options.transactions else None
        outcome = run_seed(seed, scenario=scenario, trace=sys.stdout if options.trace else None)
        if outcome.failure or options.seed is not None:
            print(f"seed {seed}: {outcome}", flush=True)
        failed += bool(outcome.failure)
    print(f"{failed} of {len(seeds)} seeds failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
