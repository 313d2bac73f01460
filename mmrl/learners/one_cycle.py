"""One-cycle learning rate: linear warm-up, then linear decay."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from mmrl.core.errors import check_interval


class OneCycle(OneCycleLR):
    """Linear warm-up of every parameter group to its own learning rate, then linear decay.

    PyTorch's own takes one highest rate for all groups, whatever rates they were given.

    Args:
        optimizer: with the highest learning rate of each group.
        total_steps: of the run.
        warmup_fraction: fraction of the steps in which the rate rises.
        start_factor: initial rate, as a fraction of the highest.
        end_factor: final rate, as a fraction of the highest.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_steps: int,
        warmup_fraction: float = 0.1,
        start_factor: float = 0.1,
        end_factor: float = 1e-4,
    ):
        check_interval("scheduler", "(0, 1)", warmup_fraction=warmup_fraction)
        check_interval("scheduler", "(0, 1]", start_factor=start_factor)
        check_interval("scheduler", f"(0, {start_factor}]", end_factor=end_factor)
        super().__init__(
            optimizer,
            max_lr=[group["lr"] for group in optimizer.param_groups],
            total_steps=total_steps,
            pct_start=warmup_fraction,
            anneal_strategy="linear",
            cycle_momentum=False,
            div_factor=1 / start_factor,
            final_div_factor=start_factor / end_factor,
        )
