"""Whose a data root is: `meta.properties` names broker and cluster, and a root of another one is refused.

So is a root that holds directories which are no partition's, so that pointing a broker at the wrong place
cannot mix its files with others'. Files that are not a broker's are left alone and logged. Blocks.
"""

from __future__ import annotations

from pathlib import Path

from structlog.typing import FilteringBoundLogger

from broker.errors import StorageError
from broker.storage.checkpoints import MetaProperties, read_meta_properties, write_meta_properties
from broker.storage.disk import TEMPORARY_SUFFIX, Disk
from broker.storage.filenames import META_PROPERTIES_FILE, ROOT_FILES, DirectoryState, parse_directory_name
from broker.storage.index import IndexCache
from broker.storage.open_files import FilePool
from broker.storage.partition_directory import PartitionDirectory
from broker.types import BrokerId

OF_KRAFT = (
    "the directory belongs to a Kafka that keeps its metadata itself (KRaft); a node has those of ZooKeeper"
)
"""Why a node does not start with a sound directory."""
_LOST_AND_FOUND = "lost+found"
"""What a file system puts at its own root."""


def claim(disk: Disk, root: Path, broker_id: BrokerId, cluster_id: str) -> None:
    """Make the root this broker's, or find that it is. Raises StorageError when it is another's."""
    path = root / META_PROPERTIES_FILE
    found = read_meta_properties(disk, path)
    if found is not None:
        if found.is_of_kraft:
            raise StorageError(f"{path}: {OF_KRAFT}")
        if found.broker_id != broker_id:
            raise StorageError(
                f"{path}: the directory belongs to broker.id {found.broker_id}, this is {broker_id}"
            )
        if found.cluster_id is not None and found.cluster_id != cluster_id:
            raise StorageError(
                f"{path}: the directory belongs to cluster {found.cluster_id}, this is {cluster_id}"
            )
        if found.cluster_id is not None:
            return
    write_meta_properties(disk, path, MetaProperties(broker_id=broker_id, cluster_id=cluster_id))


def refuse_foreign(disk: Disk, root: Path, events: FilteringBoundLogger) -> None:
    """Raises StorageError that names every directory that is no partition's; foreign files are only
    logged.
    """
    pool, cache = FilePool(disk), IndexCache()
    foreign = []
    for entry in disk.list_directory(root):
        if not entry.is_directory:
            if entry.name.removesuffix(TEMPORARY_SUFFIX) not in ROOT_FILES:
                events.warning("foreign_file_left_alone", name=entry.name)
        elif entry.name != _LOST_AND_FOUND and not _is_partition(
            PartitionDirectory(disk, root / entry.name, pool, cache), events
        ):
            foreign.append(entry.name)
    if foreign:
        names = ", ".join(foreign[:10]) + (", …" if len(foreign) > 10 else "")
        raise StorageError(f"{root} is no data directory of a broker: it holds the directories {names}")


def _is_partition(directory: PartitionDirectory, events: FilteringBoundLogger) -> bool:
    """Whether its name is a partition's, and what is inside is not somebody else's only."""
    name = directory.path.name
    parsed = parse_directory_name(name)
    if parsed is None:
        return False
    if parsed.state is not DirectoryState.LIVE:
        return True
    if directory.holds_only_own():
        return True
    foreign = directory.foreign_files()
    for file in foreign:
        events.warning("foreign_file_left_alone", name=f"{name}/{file}")
    return not foreign or directory.has_own_files()
