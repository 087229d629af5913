"""Our mirror beside MirrorMaker 2 of Apache Kafka 3.9.1, between the same clusters.

    python -m ops.bench mirrormaker2 [--kafka] [--only WORD ...] [--alone] [--mebibytes N]
        [--batch-kibibytes K] [--gather-kibibytes K] [--seconds S] [--no-delays] [--quick] [--tasks N]
        [--linger-ms MS] [--warm-memory] [--directory DIR]

One node at either end, both on one core with everything else; the mirror alone on the other. In each case a
topic is filled first, then each mirror copies it, to a topic of its own name; bytes are those of the batches
at the source. MirrorMaker 2 copies for some seconds before anything counts, for its compiler's sake; ours is
measured from its first byte on, but for Apache Kafka at both ends (--kafka): there both copy for so long
before, since it compiles too, and it has taken batches at the destination before either comes. Delays are
measured at a quarter of the rate that the mirror reached, and of ours at a quarter of what MirrorMaker 2
reached too, once records have come at that rate for some seconds. Beside them a bare loop that fetches and
produces the same bytes between the same nodes and looks at nothing, by which the goal of 0.6 is judged, and
how fast bytes go from socket to socket. Needs Java and Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from broker.embedded import EmbeddedZooKeeper
from ops.bench._bare_loop import bare_loop
from ops.bench.comparison.command import comparison_parser, run_comparison
from ops.bench.comparison.page_cache import page_cache_filler
from ops.bench.comparison.servers import (
    SERVER_CORE,
    Server,
    apache_kafka,
    fetch_jars,
    fetch_kafka,
    our_nodes,
)
from ops.bench.mirrors.cases import CaseOutcome, Copying, Delay, MirrorCase, Outcome, all_cases
from ops.bench.mirrors.contenders import (
    MIRROR_CORE,
    OURS,
    THEIRS,
    Contender,
    Ends,
    MirrorMaker2,
    OurMirror,
    running,
)
from ops.bench.mirrors.copying import watch_copying
from ops.bench.mirrors.delays import Passage, measure_delay
from ops.bench.mirrors.filling import Batch, build_batches, create_topic, delete_topics, fill
from ops.bench.mirrors.passing_on import pass_on
from ops.bench.mirrors.report import lines, told_delay

POM = Path(__file__).parent / "mirrors" / "pom.xml"
QUARTER = 0.25
LOOP_BYTES = 2 << 30
NODES: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "log.segment.delete.delay.ms": 1000,
}
"""So that mirrors start at once, and what one case leaves is gone before anything of the next is measured."""
DELETED_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.2


def compare(directory: Path, options: argparse.Namespace) -> None:
    """Measure case by case and print the report."""
    os.sched_setaffinity(0, {SERVER_CORE})
    contenders: list[Contender] = [
        OurMirror(
            gather_kibibytes=options.gather_kibibytes,
            warm_up_seconds=options.warm_up_seconds if options.kafka else 0.0,
        )
    ]
    if not options.alone:
        contenders.append(
            MirrorMaker2(
                classpath=fetch_jars(POM, directory / "mirrormaker2"),
                warm_up_seconds=options.warm_up_seconds,
                linger_ms=options.linger_ms,
                tasks=options.tasks,
            )
        )
    cases = [case for case in all_cases() if all(word in case.title for word in options.only)]
    loop = bare_loop(LOOP_BYTES, loop_cores=[MIRROR_CORE], end_cores=[SERVER_CORE])
    cached = page_cache_filler(directory) if options.warm_memory else nullcontext(lambda: None)
    with cached as fill_page_cache, _ends(directory, options) as ends:
        if options.kafka:
            _warm_up(ends, cases, options)
        outcomes = [_measure(case, ends, contenders, options, fill_page_cache) for case in cases]
    for line in lines(outcomes, loop, OURS, THEIRS):
        print(line)


@contextmanager
def _ends(directory: Path, options: argparse.Namespace) -> Iterator[Ends]:
    """A cluster at either end."""
    classpath = fetch_kafka(directory / "kafka") if options.kafka else None
    with EmbeddedZooKeeper(directory / "zookeeper", fsync=False) as zookeeper:

        def cluster(name: str) -> AbstractContextManager[list[Server]]:
            home = directory / name
            if classpath is None:
                return our_nodes(home, zookeeper, name=name, settings=NODES)
            return apache_kafka(home, zookeeper, classpath, name=name, settings=NODES)

        with cluster("source") as (source,), cluster("destination") as (destination,):
            yield Ends(
                source=source.address,
                destination=destination.address,
                folder=directory,
                source_pid=source.pid,
                destination_pid=destination.pid,
            )


def _warm_up(ends: Ends, cases: Sequence[MirrorCase], options: argparse.Namespace) -> None:
    """Have the destination's compiler done with what a mirror asks of it, whichever mirror comes first: a
    batch costs Apache Kafka 0.8 ms of processor time at first, and 0.13 ms after some 50,000.
    """
    for codec, case in {case.codec: case for case in cases}.items():
        topic = f"warm-up-{codec.name.lower()}"
        batches = build_batches(case, options.batch_kibibytes << 10)
        asyncio.run(create_topic(ends.destination, topic, 1))
        asyncio.run(fill(ends.destination, topic, 1, batches, options.mebibytes << 20))
        asyncio.run(delete_topics(ends.destination, [topic]))


def _measure(
    case: MirrorCase,
    ends: Ends,
    contenders: Sequence[Contender],
    options: argparse.Namespace,
    fill_page_cache: Callable[[], None],
) -> CaseOutcome:
    """Everything about one case; its topics are deleted then."""
    fill_page_cache()
    topic = case.title.replace(" ", "-").lower()
    batches = build_batches(case, options.batch_kibibytes << 10)
    asyncio.run(create_topic(ends.source, topic, case.partitions))
    filled = asyncio.run(fill(ends.source, topic, case.partitions, batches, options.mebibytes << 20))
    outcome = CaseOutcome(case=case)
    copies = []
    for contender in contenders:
        _tell(f"{case.title}: {contender.name}")
        copy = contender.copy_of(topic)
        copies.append(copy)
        with running(contender, ends, topic, case.codec) as mirror:
            watching = watch_copying(
                mirror,
                ends.destination,
                copy,
                case.partitions,
                filled,
                warm_up_seconds=contender.warm_up_seconds,
                seconds=options.seconds,
            )
            copying = asyncio.run(watching)
        outcome.by_mirror[contender.name] = Outcome(copying=copying)
        _tell(_told(copying))
    if not options.kafka:
        copies.append(f"loop.{topic}")
        asyncio.run(create_topic(ends.destination, copies[-1], case.partitions))
        outcome.passing_on = pass_on(
            ends.source, ends.destination, topic, copies[-1], case.partitions, filled
        )
    _delete(ends, [topic], copies)
    if options.delays:
        fill_page_cache()
        _measure_delays(outcome, ends, contenders, batches, options)
    return outcome


def _measure_delays(
    outcome: CaseOutcome,
    ends: Ends,
    contenders: Sequence[Contender],
    batches: Sequence[Batch],
    options: argparse.Namespace,
) -> None:
    """Of each mirror at a quarter of its own rate, and of ours at that of the other's too."""
    rates = [
        outcome.by_mirror[each.name].copying.figure.megabytes_per_second * 1e6 * QUARTER
        for each in contenders
    ]
    ours = contenders[0]
    for contender, rate in [(ours, rates[0]), *((each, rates[-1]) for each in contenders if len(rates) > 1)]:
        delay = _delay(outcome.case, ends, contender, batches, rate, options)
        outcome.by_mirror[contender.name].delays.append(delay)
        _tell(f"{contender.name} at {rate / 1e6:.1f} MB/s: {told_delay(delay)}")


def _delay(
    case: MirrorCase,
    ends: Ends,
    contender: Contender,
    batches: Sequence[Batch],
    bytes_per_second: float,
    options: argparse.Namespace,
) -> Delay:
    """Of one mirror at such a rate."""
    title = f"delay-{case.title}-{contender.name[:4]}-{bytes_per_second:.0f}"
    topic = title.replace(" ", "-").lower()
    copy = contender.copy_of(topic)
    asyncio.run(create_topic(ends.source, topic, case.partitions))
    with running(contender, ends, topic, case.codec) as mirror:
        passage = Passage(
            ends=ends, topic=topic, copy=copy, partitions=case.partitions, mirror_pid=mirror.pid
        )
        delay = measure_delay(
            passage,
            batches,
            bytes_per_second,
            warm_up_seconds=1 + 2 * options.warm_up_seconds,
            seconds=options.seconds,
        )
    _delete(ends, [topic], [copy])
    return delay


def _delete(ends: Ends, topics: Sequence[str], copies: Sequence[str]) -> None:
    """Have them gone from the disk as well, and all that was written there: gigabytes take time of nodes and
    disk, and a file system that tells the disk what is free does so when it commits next.
    """
    asyncio.run(delete_topics(ends.source, topics))
    asyncio.run(delete_topics(ends.destination, copies))
    deadline = time.monotonic() + DELETED_TIMEOUT_SECONDS
    beginnings = tuple(f"{topic}-" for topic in (*topics, *copies))
    while any(name.startswith(beginnings) for _, names, _ in os.walk(ends.folder) for name in names):
        if time.monotonic() > deadline:
            raise SystemExit(f"{ends.folder}: {', '.join(topics)} are deleted, and still there")
        time.sleep(POLL_SECONDS)
    os.sync()


def _told(copying: Copying) -> str:
    figure = copying.figure
    return (
        f"  {figure.megabytes_per_second:.0f} MB/s, {figure.cpu_per_gigabyte:.2f} CPU s/GB, "
        f"core {figure.busy:.0%}, {figure.seconds:.1f} s, resident {copying.resident_bytes / 1e6:.0f} MB"
    )


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = comparison_parser(__doc__, seconds=5.0)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka at both ends, not our nodes")
    parser.add_argument("--mebibytes", type=int, default=768, help="in each topic")
    parser.add_argument("--batch-kibibytes", type=int, default=16, help="of the source, as stored")
    parser.add_argument("--gather-kibibytes", type=int, help="our route gathers batches (`batch.bytes`)")
    parser.add_argument("--tasks", type=int, default=2, help="of MirrorMaker 2")
    parser.add_argument("--linger-ms", type=int, default=20, help="of MirrorMaker 2's producer")
    parser.add_argument("--alone", action="store_true", help="our mirror only")
    parser.add_argument("--no-delays", dest="delays", action="store_false")
    parser.add_argument(
        "--warm-up-seconds",
        type=float,
        default=4.0,
        help="of MirrorMaker 2; of both twice as long, and a second, before delays count",
    )
    parser.add_argument(
        "--warm-memory",
        action="store_true",
        help="fill the page cache before each case: takes a while, and a file without content in DIR",
    )
    parser.add_argument("--quick", action="store_true", help="a case of little, to see that all works")
    options = parser.parse_args()
    if options.quick:
        options.only = options.only or ["snappy", "1 KB", "1p"]
        options.mebibytes, options.seconds, options.warm_up_seconds = 64, 1.0, 1.0
    run_comparison("mirrormaker2", options, compare)


if __name__ == "__main__":
    main()
