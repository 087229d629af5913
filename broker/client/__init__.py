"""The asyncio client: connections, metadata, producer, consumer, group membership, administration."""
