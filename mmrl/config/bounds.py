"""Valid ranges of numeric options that libraries check late or not at all.

Constructors of this project check their own arguments; this file has the options of Lightning's Trainer, of optimisers
and of transformers configurations, and the limits of every number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

LARGEST = 10**9
"""No count of a configuration is larger: 1e9 problems, rows or steps are a typing error."""
LARGEST_REAL = 1e12
SEEDS = 2**32 - 1
"""NumPy's largest seed."""


@dataclass(frozen=True)
class Bound:
    """Range of numbers from `low` to `high`.

    Args:
        low: smallest number; None for any.
        high: largest number.
        open: whether `low` itself is refused.
        whole: whether the number must be an integer; null stays valid where the option allows it.
        remedy: what to write instead.
    """

    low: float | None = None
    high: float = LARGEST
    open: bool = False
    whole: bool = True
    remedy: str = ""

    def find_violation(self, value: Any) -> str | None:
        """Describe what is wrong with the value; None for a valid one. The typed parser checks other types."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        hint = f"; {self.remedy}" if self.remedy else ""
        if isinstance(value, float) and not math.isfinite(value):
            return f"must be a finite number, got {value}{hint}"
        if self.whole and isinstance(value, float):
            return f"must be a whole number (int), got {value}{hint}"
        if self.low is not None and (value <= self.low if self.open else value < self.low):
            return f"must be {'greater than' if self.open else 'at least'} {self.low:g}, got {value}{hint}"
        if value > self.high:
            return f"must be at most {self.high:.15g}, got {value}{hint}"
        return None


_OUT = "trainer.callbacks.NAME=null takes a callback out"
_COUNT = Bound(1)
BOUNDS = {
    "trainer.max_epochs": Bound(-1, remedy="-1 goes on until it is stopped"),
    "trainer.min_epochs": Bound(0),
    "trainer.max_steps": Bound(-1, -1, remedy="an iteration would be broken off; trainer.max_epochs counts iterations"),
    "trainer.min_steps": Bound(0),
    "trainer.accumulate_grad_batches": Bound(1, 10**6),
    "trainer.gradient_clip_val": Bound(0, open=True, whole=False, remedy="null does not clip"),
    "trainer.check_val_every_n_epoch": Bound(1, remedy="data.evaluation=null measures nothing"),
    "trainer.val_check_interval": Bound(0, open=True, whole=False),
    "trainer.log_every_n_steps": Bound(0),
    "trainer.num_sanity_val_steps": Bound(-1),
    "trainer.num_nodes": _COUNT,
    "trainer.devices": Bound(-1),
    "trainer.limit_train_batches": Bound(0, open=True, whole=False, remedy="nothing would be trained; null takes all"),
    "trainer.limit_*_batches": Bound(0, whole=False),
    "trainer.overfit_batches": Bound(0, whole=False),
    "trainer.fast_dev_run": Bound(0),
    "trainer.reload_dataloaders_every_n_epochs": Bound(0),
    "trainer.callbacks.*.every_n_epochs": Bound(1, remedy=_OUT),
    "trainer.callbacks.*.save_top_k": Bound(-1, remedy="-1 keeps all, 0 none"),
    "trainer.callbacks.*.patience": Bound(0),
    **{
        f"data.{name}": _COUNT
        for name in ("num_prompts", "group_size", "update_epochs", "num_minibatches", "gradient_steps")
    },
    "data.staleness": Bound(0, 64, remedy="each version is a further copy of the trained weights"),
    "*optimizer.lr": Bound(0, 1000, whole=False),
    "model.learning_rates.*": Bound(0, 1000, whole=False),
    "model.auxiliary_models.*": Bound(0, 1000, whole=False),
    "*scheduler.total_iters": Bound(0),
    "*scheduler.total_steps": _COUNT,
    "*seed": Bound(0, SEEDS, remedy="a seed is a whole number"),
    "seed_everything": Bound(0, SEEDS, remedy="a seed is a whole number"),
    **{
        f"model.policy.config*.{name}": Bound(1, 10**7)
        for name in (
            *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
            *("max_position_embeddings", "vocab_size", "head_dim"),
        )
    }
    | {f"model.policy.config*.{name}": Bound(1, 1000) for name in ("num_hidden_layers", "n_layer", "num_layers")},
    **{
        f"model.policy.config*{name}": Bound(0, 1, whole=False, remedy="a probability; 0 is the usual one")
        for name in ("dropout", "_pdrop", "dropout_rate", "_dropout_prob", "layerdrop")
    },
    "model.policy.lora.r": _COUNT,
    "*": Bound(None, LARGEST_REAL, whole=False),
}
"""By the key as one writes it, with * for any part; the first that fits counts."""


def find_bound(key: str) -> Bound:
    """Return the bound of an option by its dotted key without `init_args`."""
    return next(bound for pattern, bound in BOUNDS.items() if fnmatchcase(key, pattern))


def find_violation(key: str, value: Any) -> str | None:
    """Describe what is wrong with the value of an option; None for a valid one."""
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and abs(value) > LARGEST
        and "seed" not in key.rpartition(".")[2]
    ):
        limit = "at most" if value > 0 else "at least"
        return f"must be {limit} {LARGEST if value > 0 else -LARGEST}, got {value}: no run can mean that"
    return find_bound(key).find_violation(value)
