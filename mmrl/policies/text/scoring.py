"""Log-probabilities and entropies of stored tokens, over all ids or over those that truncated sampling kept."""

from __future__ import annotations

from torch import Tensor

from mmrl.batch import Batch
from mmrl.ops.logprob import logprob_entropy
from mmrl.ops.support import support_logprob_entropy


def score_tokens(logits: Tensor, action: Tensor, batch: Batch, slot: Tensor) -> tuple[Tensor, Tensor]:
    """Compute log-probabilities [M] and entropies [M] of M choices, in nats, at the temperatures of their rows.

    Args:
        logits: [M, V].
        action: [M] ids.
        batch: has the columns packed_support_ids and support_sizes where sampling was truncated.
        slot: [M] of the choices among the N * T of the batch.
    """
    temperature = batch["temperature"][slot // batch["action"].shape[1]]
    if "packed_support_ids" not in batch:
        logprobs, entropy = logprob_entropy(logits[:, None], action[:, None], temperature)
        return logprobs[:, 0], entropy[:, 0]
    ids, sizes = batch["packed_support_ids"].values, batch["support_sizes"].flatten()
    starts = sizes.cumsum(0) - sizes
    return support_logprob_entropy(logits, action, temperature, ids, starts[slot], sizes[slot])
