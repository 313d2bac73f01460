"""Copies of the weights in processes that divide sequences: `strategy=sequence_parallel`."""

from __future__ import annotations

from datetime import timedelta

from lightning.pytorch.strategies import DDPStrategy
from torch.distributed.constants import default_pg_timeout

from mmrl.core.errors import check_at_least
from mmrl.distributed.sequence_group import ALONE, SequenceGroup, build_sequence_group


class DDP(DDPStrategy):
    """Lightning's DDP, whose processes divide the sequences of the learning and scoring passes in groups.

    Args:
        sequence_parallel: processes of a group, which hold the same rows in these passes and divide the tokens of each
            sequence; 1 for none.
        process_group_backend: of torch; None takes that of the device.
        timeout: of collectives.
    """

    def __init__(
        self,
        sequence_parallel: int = 1,
        process_group_backend: str | None = None,
        timeout: timedelta | None = default_pg_timeout,
    ):
        check_at_least(1, "trainer.strategy", sequence_parallel=sequence_parallel)
        super().__init__(process_group_backend=process_group_backend, timeout=timeout)
        self.sequence_parallel = sequence_parallel
        self.sequence_group: SequenceGroup = ALONE

    def setup_environment(self) -> None:
        super().setup_environment()
        self.sequence_group = build_sequence_group(self.sequence_parallel, self.root_device, self._timeout)
