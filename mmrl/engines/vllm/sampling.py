"""Convert sampling settings to vLLM's, and its outputs back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from mmrl.core.types import Ended
from mmrl.engines.vllm.backend import EngineFailure, EngineSampling

NEVER = -1e30  # bias of a forbidden token's logit; finite, because JSON has no infinity
COLDEST, HOTTEST = 0.01, 2.0  # temperatures that vLLM does not change or refuse
WIDEST = 1024  # maximum of kept ids reported per token; each is a Python object in vLLM
TIED = 8  # ids reported beyond top_k, because vLLM keeps all ids tied with the last one


def sampling_fields(drawing: EngineSampling, seed: int) -> dict[str, Any]:
    """Return the keyword arguments of `vllm.SamplingParams`, as JSON values.

    With the engine option logprobs_mode=processed_logprobs, log-probs are of the sampling distribution. vLLM reports
    greedy choices at temperature 1 and without truncation.
    """
    fields: dict[str, Any] = {
        "seed": seed & (2**63 - 1),
        "max_tokens": drawing.max_tokens,
        "temperature": 0.0 if drawing.greedy else drawing.temperature,
        "stop_token_ids": list(drawing.stop_ids),
        "ignore_eos": True,  # the policy gives the stop ids
        "logprobs": drawing.support,
        "detokenize": bool(drawing.stop),
        "skip_special_tokens": True,
    }
    if not drawing.greedy:
        fields |= {"top_k": drawing.top_k, "top_p": drawing.top_p, "min_p": drawing.min_p}
    if drawing.stop:
        fields["stop"] = list(drawing.stop)
    if drawing.forbidden:
        fields["logit_bias"] = {i: NEVER for i in drawing.forbidden}
    if drawing.scores_prompt:
        fields["prompt_logprobs"] = 0  # of the prompt's own tokens, none beside them
    if drawing.guide is not None:
        fields["structured_outputs"] = structured_outputs(drawing.guide)
    return fields


def structured_outputs(guide: str) -> dict[str, Any]:
    """Convert the text of `Sampling.guide` to the keyword arguments of vLLM's `StructuredOutputsParams`."""
    expression = json.loads(guide)
    return expression if "regex" in expression else {"json": expression["json_schema"]}


def parse_finish_reason(finish_reason: str | None, stop_reason: int | str | None = None) -> Ended:
    """Convert vLLM's finish reason."""
    return {"stop": "done", "length": "length"}.get(finish_reason or "", "error")  # type: ignore[return-value]


def support_of(top_k: int, vocabulary: int, truncated: bool) -> int:
    """Return how many ids vLLM must report per token to cover all kept ones; refuse more than it can."""
    if not truncated:
        return 0
    count = min(top_k + TIED if top_k else vocabulary, vocabulary)
    if count > WIDEST + TIED:
        raise ValueError(
            f"sampling: top_k={top_k or 'all'} of {vocabulary} ids; engine=vllm reports which ids truncated sampling "
            f"kept, at most {WIDEST} per token: give sampling.top_k of at most {WIDEST} beside top_p and min_p"
        )
    return count


def parse_support(reported: Mapping[int, float]) -> tuple[int, ...]:
    """Return the ids that truncation kept, from the reported log-probs of one token.

    Raises ValueError if their probabilities do not sum to 1: the learner could not restore the distribution.
    """
    support = {i: logprob for i, logprob in reported.items() if logprob > NEVER / 2}
    mass = sum(map(exp, support.values()))
    if abs(mass - 1) > 1e-3:
        raise ValueError(f"the reported ids hold {mass:.4f} of the mass: vLLM kept more than it reports")
    return tuple(support)


def check_prompt(engine: Sequence[int], learner: Sequence[int], placeholders: Sequence[int] = ()) -> None:
    """Check that vLLM ran the same prompt tokens that the learner will score."""
    if list(engine) == list(learner):
        return
    at = next((i for i, (a, b) in enumerate(zip(engine, learner)) if a != b), min(len(engine), len(learner)))
    counts = [sum(i in set(placeholders) for i in side) for side in (engine, learner)]
    raise EngineFailure(
        f"vLLM ran another prompt than the learner encodes: {len(engine)} and {len(learner)} tokens, of them "
        f"{counts[0]} and {counts[1]} for images; from token {at} on {list(engine[at : at + 4])} and "
        f"{list(learner[at : at + 4])}. Their processors differ: check image sizes and versions of transformers"
    )


def refuse_videos(observation: Mapping[str, Any]) -> None:
    """Refuse a prompt with videos: vLLM 0.32 scores tokens after them otherwise than transformers, by 0.1 nats."""
    if observation.get("videos"):
        raise EngineFailure(
            "engine=vllm: a prompt has a video, whose tokens vLLM reads otherwise than the learner; use engine=local, "
            "or show frames as images (task.show_videos=images)"
        )
