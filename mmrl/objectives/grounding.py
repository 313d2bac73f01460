"""Learning where a named thing is, from masks that a simulator or an annotator gives."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class MapCrossEntropy(Term):
    """Cross-entropy of attention maps against the pixels of the named object, per row.

    term = - 1/K' sum_{k < K'} sum_p q(p) log softmax_p(map_logits_k),  q = share of the object's pixels in cell p.

    Args:
        maps: K', how many of the policy's maps must look at the object; the others stay free.
    """

    maps: int = 2

    reads = frozenset({"target_mask"})  # [N, H, W] bool
    needs = frozenset({"map_logits"})  # [N, K, h, w]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        logits = out.extra["map_logits"][:, : self.maps]
        area = adaptive_avg_pool2d(batch["target_mask"].float(), logits.shape[2:]).flatten(1)
        total = area.sum(dim=1, keepdim=True)
        if (total == 0).any():
            empty = (total[:, 0] == 0).nonzero()[:, 0].tolist()
            raise ValueError(f"column target_mask has no pixel in rows {empty}: leave out scenes with a hidden object")
        return -((area / total)[:, None] * logits.flatten(2).log_softmax(dim=-1)).sum(dim=-1).mean(dim=1)
