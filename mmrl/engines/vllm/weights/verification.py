"""Verify that an engine holds the learner's weights and computes with them; otherwise stop training."""

from __future__ import annotations

import logging

from torch import Tensor

from mmrl.engines.vllm.backend import EngineFailure, EngineWeights
from mmrl.engines.vllm.weights.fingerprint import rounding
from mmrl.engines.vllm.weights.sent_weights import LOG_DECAY, SentWeights

log = logging.getLogger(__name__)

BOUNDS = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest mean |log-prob difference| in nats over the canary's tokens, by the coarsest arithmetic that takes part. In
fp32 the two sides differ by about 1e-6 here and stale weights or caches by 0.1 and more; bf16 keeps 8 bits of a number,
which is a few hundredths of a nat after some tens of layers."""

EXPONENTIAL = 2.0**-21
"""Largest relative difference of two exponentials in float32, of 2^-24 each, with some room."""


def verify_weights(sent: SentWeights, held: EngineWeights, version: int) -> None:
    """Verify by fingerprints that every tensor of the engine equals what the learner sent.

    The learner's weights are converted to the engine's dtype and summed in float64 as in the engine; the sums may
    differ only by the rounding of the summation, and those of a decay -exp(A_log) by that of the exponential too.
    """
    if held.version != version:
        raise EngineFailure(f"the engine holds version {held.version} of the weights after version {version} was sent")
    for name, parts in held.parts.items():
        tensor = held.tensors[name]
        if missing := [part for part in parts if part not in sent]:
            raise EngineFailure(
                f"the engine made its {name} of {missing}, which the learner did not export; use engine=local"
            )
        decay = name.endswith(".A") and all(part.endswith(LOG_DECAY) for part in parts)
        fingerprints = [sent.fingerprint(part, tensor.dtype, decay) for part in parts]
        sums = [sum(numbers[i] for numbers, _ in fingerprints) for i in (0, 1)]
        count = max(tensor.count, sum(count for _, count in fingerprints))
        slack = rounding(count, sums[1])
        if decay:  # two exponentials of float32 differ in their last bits
            slack = (slack[0] + EXPONENTIAL * (count * sums[1]) ** 0.5, slack[1] + 2 * EXPONENTIAL * sums[1])
        for what, got, want, most in zip(("sum", "sum of squares"), (tensor.sum, tensor.squares), sums, slack):
            if not abs(got - want) <= most:
                raise EngineFailure(
                    f"weights did not reach the engine: its {name}, made of {', '.join(parts)}, has {what} {got!r} "
                    f"and the learner's has {want!r}"
                )
    _verify_ignored(held, sent)


def _verify_ignored(held: EngineWeights, sent: SentWeights) -> None:
    """Verify that weights which the engine leaves out are tied copies; the canary covers others."""
    dtypes = {dtype for t in held.tensors.values() if (dtype := t.dtype).startswith(("float", "bfloat"))}
    used = {sent.fingerprint(part, dtype) for parts in held.parts.values() for part in parts for dtype in dtypes}
    others = [name for name in held.ignored if not any(sent.fingerprint(name, dtype) in used for dtype in dtypes)]
    if others:
        log.info("vLLM's model has no place for %s", ", ".join(others))


def verify_canary(engine: Tensor, learner: Tensor, dtypes: set[str], version: int) -> float:
    """Return the mean |difference| of log-probs [T] on the canary; refuse it above the coarsest dtype's bound."""
    difference = (engine.double() - learner.double()).abs()
    bound = max(BOUNDS.get(dtype, BOUNDS["bfloat16"]) for dtype in dtypes)
    mean = float(difference.mean())
    if not mean <= bound:  # NaN fails both comparisons and is refused
        worst = int(difference.argmax())
        raise EngineFailure(
            f"the engine's canary differs from the learner's by {mean:.2e} nats per token (bound {bound:.0e}; most at "
            f"token {worst}: {float(engine[worst]):.4f}, learner {float(learner[worst]):.4f}) though every tensor of "
            f"version {version} has arrived: it runs on caches of older weights, or it computes another model"
        )
    return mean
