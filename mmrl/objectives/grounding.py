"""Grounding loss: train attention maps on segmentation masks of the objects that an instruction names."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term


@dataclass(frozen=True)
class MapCrossEntropy(Term):
    """Cross-entropy of attention maps against the pixels of the named objects, per row.

    term = - 1/(M K') sum_m sum_{m K' <= k < (m + 1) K'} sum_p q_m(p) log softmax_p(map_logits_k),
    q_m = share of object m's pixels in cell p.

    Args:
        maps: K', how many of the policy's maps must look at each object; those beyond M K' stay free.
    """

    maps: int = 2

    def reads(self) -> frozenset[str]:
        return frozenset({"target_mask"})  # [N, M, H, W] bool

    def needs(self) -> frozenset[str]:
        return frozenset({"map_logits"})  # [N, K, h, w]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        pixels, logits = batch["target_mask"], out.extra["map_logits"]
        objects = pixels.shape[1]
        if logits.shape[1] < objects * self.maps:
            raise ValueError(
                f"{objects} named objects with {self.maps} maps each need {objects * self.maps} maps of attention, but "
                f"the policy has {logits.shape[1]}: raise policy.visual_tokens or lower the term's maps"
            )
        logits = logits[:, : objects * self.maps]
        area = adaptive_avg_pool2d(pixels.float(), logits.shape[2:]).flatten(2)  # type: ignore[arg-type]
        total = area.sum(dim=2, keepdim=True)
        if (total == 0).any():
            empty = (total == 0).any(dim=1)[:, 0].nonzero()[:, 0].tolist()
            raise ValueError(f"column target_mask has no pixel in rows {empty}: leave out scenes with a hidden object")
        share = (area / total).repeat_interleave(self.maps, dim=1)
        return -(share * logits.flatten(2).log_softmax(dim=-1)).sum(dim=-1).mean(dim=1)
