"""The ids that guided decoding allowed at the choices of a batch, and the scores over them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.ops.choice import mask_logits
from mmrl.ops.logprob import logprob_entropy


@dataclass(frozen=True)
class AllowedIds:
    """Masks of the choices of a batch; equal ones are stored once."""

    index: Tensor  # [N * T] row of `words` for each choice; 0 where nothing restricts it
    words: Tensor  # [D, W] int32, a bit per id as in `mmrl.ops.choice.mask_logits`; row 0 is not read

    def renormalise(
        self, scores: tuple[Tensor, Tensor], logits: Tensor, action: Tensor, temperature: Tensor, slot: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Replace log-probs and entropies [M], in nats, of restricted choices by those of softmax over allowed ids.

        An action that is not allowed could not have been drawn: log-probability -inf.

        Args:
            scores: log-probs and entropies [M] of choices that no guide restricts.
            logits: [M, V].
            action, temperature: [M].
            slot: [M] places of the choices among the N * T of the batch.
        """
        which = self.index[slot]
        rows = which.nonzero().flatten()
        if not len(rows):
            return scores
        restricted = mask_logits(logits[rows], self.words[which[rows]])
        replaced = logprob_entropy(restricted[:, None], action[rows, None], temperature[rows])
        logprobs, entropy = (old.index_copy(0, rows, new[:, 0]) for old, new in zip(scores, replaced))
        return logprobs, entropy
