"""How answers are cut up, by what holds for their partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirrormaker.flow.exchange import FlowConfig
from mirrormaker.flow.intake import IntakeConfig
from mirrormaker.flow.partition import Partition


@dataclass(frozen=True, slots=True)
class Intakes:
    """Those that follow from a machine's bounds."""

    usual: IntakeConfig
    bound: IntakeConfig
    """Of partitions that their window holds back."""

    @classmethod
    def following(cls, config: FlowConfig) -> Intakes:
        """Those of a machine with these bounds."""
        usual = IntakeConfig(
            chunk_bytes=config.produce_bytes,
            chunk_batches_max=config.chunk_batches_max,
            built_batch_bytes=config.built_batch_bytes,
            deep=config.deep,
            gather_bytes=config.gather_bytes,
        )
        gather_bytes = max(config.gather_bytes, config.bound.batch_bytes)
        return cls(usual, replace(usual, gather_bytes=gather_bytes))

    def of(self, partition: Partition) -> IntakeConfig:
        """How an answer for the partition is cut up."""
        config = self.bound if partition.is_bound else self.usual
        return replace(config, chunk_batches_max=1) if partition.sends_alone else config
