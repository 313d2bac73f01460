"""One-cycle learning rate: warm-up, then annealing to nothing."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR


class OneCycle(OneCycleLR):
    """Every parameter group rises linearly to its own learning rate and falls linearly from there.

    PyTorch's own takes one highest rate for all groups, whatever rates they were given.

    Args:
        optimizer: with the highest learning rate of each group.
        total_steps: of the run.
        rise: share of them in which the rate rises.
        start: where it begins, as a share of the highest.
        end: where it ends, as a share of the highest.
    """

    def __init__(
        self, optimizer: Optimizer, total_steps: int, rise: float = 0.1, start: float = 0.1, end: float = 1e-4
    ):
        if not 0 < rise < 1 or not 0 < end <= start <= 1:
            raise ValueError(f"scheduler: need 0 < rise < 1 and 0 < end <= start <= 1, got {rise}, {start} and {end}")
        super().__init__(
            optimizer,
            max_lr=[group["lr"] for group in optimizer.param_groups],
            total_steps=total_steps,
            pct_start=rise,
            anneal_strategy="linear",
            cycle_momentum=False,
            div_factor=1 / start,
            final_div_factor=start / end,
        )
