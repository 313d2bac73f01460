"""Every term's value and gradient are finite for every policy head, truncation and temperature from 0.3 to 2."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.types import Episode, PolicyOutput, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.entropy.siren import NucleusEntropy
from mmrl.methods.losses.rover import MeanLogprob
from mmrl.objectives.objective import Objective
from mmrl.objectives.weighting import TokenMean
from mmrl.policies.base import Policy
from mmrl.policies.control.policy import ControlPolicy
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.laws import heads
from tests.laws.example import Example
from tests.laws.law_examples import TERMS
from tests.policies.text.oracle import TINY, decided
from tests.policies.text.test_vision import LLAVA

TEMPERATURES = (0.3, 0.7, 1.0, 2.0)
TRUNCATIONS = {"none": {}, "top_k": {"top_k": 12}, "top_p": {"top_p": 0.9}, "min_p": {"min_p": 0.05}}
WRITES = dict(value_head=True, statistics={"nucleus_entropy": NucleusEntropy(1.0), "mean_logprob": MeanLogprob()})
DISCRETE = {
    "text": lambda: decided(TextPolicy(config=dict(TINY), **WRITES)),
    "vlm": lambda: decided(VisionLanguagePolicy(config={**LLAVA, "text_config": dict(TINY)}, **WRITES)),
    "tokens": lambda: heads.build_policy("tokens", value_head=True),
    "openvla_tokens": lambda: heads.build_policy("openvla_tokens", value_head=True),
    "control_categorical": lambda: ControlPolicy(3, 20, kind="categorical"),
}
CONTINUOUS = {
    "control_gaussian": lambda: ControlPolicy(3, 2, kind="gaussian"),
    **{
        head: lambda head=head: heads.build_policy(head, value_head=True)
        for head in ("gaussian", "ddpm", "ddim", "flow_sde")
    },
}
CASES = [(head, cut) for head in DISCRETE for cut in TRUNCATIONS] + [(head, "none") for head in CONTINUOUS]
IMITATION = {"NegativeLogLikelihood", "SmoothedNegativeLogLikelihood", "DenoisingLoss"}
PER_CHOICE = (
    "old_logprobs",
    "ref_logprobs",
    "reward_logprobs",
    "advantages",
    "penalty_slope",
    "kl_weights",
    "importance_weights",
    "nucleus_entropy",
    "token_rewards",
    "imitation_weights",
    "old_mean_logprobs",
    "min_p_probs",
    "recorded_advantages",
)


@functools.cache
def policy_of(head: str) -> Policy:
    torch.manual_seed(0)
    return (DISCRETE | CONTINUOUS)[head]().eval()


def observations(head: str) -> list[dict]:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    if head == "text":
        return [{"messages": ({"role": "user", "content": "2 + 2 ="},)}] * 4
    if head == "vlm":
        content = [{"type": "image"}, {"type": "text", "text": "which?"}]
        return [{"messages": ({"role": "user", "content": content},), "images": (image,)}] * 4
    if head.startswith("control"):
        return [{"state": rng.normal(size=3).astype(np.float32)} for _ in range(4)]
    return heads.raws(4)


def sampled(policy: Policy, head: str, sampling: Sampling) -> Batch:
    """Four rows of two groups, every column that some term reads; the last two are imitated and a self-reward token."""
    engine = LocalEngine()
    engine.sync(policy, 0)
    done = engine.sample([Request(raw, seed) for seed, raw in enumerate(observations(head))], sampling)
    batch = collate([Episode(Prompt("p"), i // 2, i % 2, [Turn(c)]) for i, c in enumerate(done)], policy)
    n, t = batch["action_mask"].shape
    generator = torch.Generator().manual_seed(1)
    place = torch.arange(t).expand(n, t)
    writes = head in ("text", "vlm")
    self_reward_mask, imitated = (batch["action_mask"] & writes & (place == at) for at in (t - 1, t - 2))
    batch = batch.with_columns(
        action_mask=batch["action_mask"] & ~self_reward_mask & ~imitated,
        self_reward_mask=self_reward_mask,
        imitation_mask=imitated,
        value_mask=batch["action_mask"] & ~self_reward_mask,
    )
    noise = {name: 0.5 * torch.randn(n, t, generator=generator) for name in PER_CHOICE}
    own = batch["behavior_logprobs"]
    reals = {name: own + column if name.endswith("logprobs") else column for name, column in noise.items()}
    values = noise["penalty_slope"] if writes else noise["penalty_slope"][:, 0]
    batch = batch.with_columns(
        **{
            **reals,
            "importance_weights": reals["importance_weights"].exp(),
            "nucleus_entropy": reals["nucleus_entropy"].abs(),
            "min_p_probs": reals["min_p_probs"].clamp(0, 1),
        },
        segment=place // 2,
        values=values,
        returns=values + 1,
        self_reward_weight=self_reward_mask.any(1).float(),
        self_reward=self_reward_mask.any(1).float(),
        reach=0.9 ** place.float(),
        reference_point=torch.full((n,), 0.3),
        clip_high=torch.full((n,), 0.3),
        preference=torch.tensor([1.0, -1.0]).repeat(n // 2),
        preference_margin=torch.full((n,), 0.3),
        preference_probability=torch.full((n,), 0.9),
        labels=torch.full((n, 1), 0.5),
        baseline_group=torch.arange(n) % 2,
        is_first=torch.ones(n, dtype=torch.bool),
        row_seed=torch.arange(n),
        teacher_ids=batch["action"].view(n, t, -1)[..., :1].long(),
        teacher_logprobs=own[..., None].clamp(max=-1e-3),
        target_mask=torch.ones(n, 1, 4, 4, dtype=torch.bool),
    )
    return batch.with_columns(loss_weights=TokenMean()(batch, lambda number: number))


def applies(example: Example, out: PolicyOutput) -> bool:
    """Whether this head's output has what the term needs, in the shape that the example is about."""
    parts = set(out.extra) | ({"values"} if out.values is not None else set())
    needs = example.part.needs()
    shaped = "values" not in needs or example.per_row == (out.values is not None and out.values.dim() == 1)
    whole = out.logprobs.shape[1] % getattr(example.part, "chunk", 1) == 0
    return needs <= parts and shaped and whole


@pytest.mark.parametrize("head, cut", CASES, ids=lambda value: value)
def test_every_term_and_its_gradient_are_finite(head, cut):
    policy = policy_of(head)
    for temperature in TEMPERATURES:
        batch = sampled(policy, head, Sampling(temperature=temperature, max_tokens=5, **TRUNCATIONS[cut]))
        out = policy(batch)
        terms = [example for example in TERMS if applies(example, out)]
        out.others = {name: policy(batch) for name in sorted({o for e in terms for o in e.part.others()})}
        objective = Objective({f"{i}_{type(e.part).__name__}": e.part for i, e in enumerate(terms)})
        loss, metrics = objective(out, batch)
        policy.zero_grad()
        loss.backward()
        wrong = [name for name, value in metrics.items() if not value.isfinite() or value.abs() > 1e6]
        assert not wrong and loss.isfinite(), (temperature, wrong, loss)
        slopes = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
        assert not [name for name, slope in slopes.items() if not slope.isfinite().all()], temperature
        assert any(slope.any() for slope in slopes.values())


@pytest.mark.parametrize("head", [head for head in (*DISCRETE, *CONTINUOUS) if head in heads.HEADS])
def test_imitation_of_the_largest_actions_is_finite(head):
    """The last bin of a layout, and the edge of what a continuous head can reach."""
    policy = policy_of(head)
    demonstrations = heads.demonstrated(policy, np.stack([np.full((5, 3), edge, np.float32) for edge in (-1, 1)]))
    for temperature in TEMPERATURES:
        batch = demonstrations.with_columns(temperature=torch.full((2,), temperature))
        batch = batch.with_columns(loss_weights=TokenMean()(batch, lambda number: number))
        out = policy(batch)
        terms = [e.part for e in TERMS if applies(e, out) and type(e.part).__name__ in IMITATION]
        terms = [term for term in terms if not term.others()]
        loss, metrics = Objective({str(i): term for i, term in enumerate(terms)})(out, batch)
        policy.zero_grad()
        loss.backward()
        assert loss.isfinite() and all(value.abs() < 1e3 for value in metrics.values()), metrics
        assert all(p.grad.isfinite().all() for p in policy.parameters() if p.grad is not None)


def test_every_term_is_tried_on_some_head():
    """Terms that read what only an actor-critic's phases, Q heads, an auxiliary model, a world model, ACT, ASVR's
    policy, LDC's controller, B-Coder's policy or a scorer give: see test_loss_laws, and test_asvr for the gradient of
    ASVR's."""
    tried = set()
    for head in (*DISCRETE, *CONTINUOUS):
        policy = policy_of(head)
        out = policy(sampled(policy, head, Sampling(max_tokens=5)))
        tried |= {type(example.part).__name__ for example in TERMS if applies(example, out)}
    tried |= IMITATION
    untried = {type(example.part).__name__ for example in TERMS} - tried
    assert untried <= {
        "TDLoss", "ActorLoss", "EntropyBonus", "TemperatureLoss", "RepresentationLoss", "ConstraintPenalty", "DualLoss",
        "LatentKL", "VisualReconstruction", "ContrastiveLoss", "LoadBalancing",
        "GoalContrastiveLoss", "ExpectileLoss", "ScaledActorLoss", "ActionRegression", "ConservativePenalty",
        "ClippedTDLoss", "ExpectileValue", "ConservativeQ", "MeanFlowLoss", "TemporalDistanceLoss", "StrengthLoss",
        "LagrangePenalty", "ThresholdLoss", "ValueBellman", "ConservativeBellman", "AdvantageMagnitude",
        "PosteriorKL", "ContinuationPrediction", "ImaginedReturn", "InformationCap", "InformationDual",
        "Reconstruction", "RewardPrediction", "TransitionLoss", "TargetVisibility", "TargetCentroid",
    }  # fmt: skip
