"""One example of every part, and the batch that they are tried on.

A part is tried with the defaults of its constructor. It needs a line here where it has none, or other arguments matter.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mmrl.annotators.base import Annotator
from mmrl.annotators.gae import GAE
from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.annotators.importance import MaskedImportanceSampling, TruncatedImportanceSampling
from mmrl.annotators.kl_penalty import KLPenalty
from mmrl.annotators.logprobs import Logprobs, OldLogprobs, ReferenceLogprobs
from mmrl.annotators.mismatched_kl import MismatchedKL
from mmrl.annotators.reward_streams import RewardStreams
from mmrl.annotators.role_advantage import RoleAdvantage
from mmrl.annotators.statistics import StatisticColumns
from mmrl.annotators.step_advantage import StepAdvantage
from mmrl.annotators.values import Values
from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.methods.advantages.direct_advantage import StepRegression
from mmrl.methods.advantages.laser.self_reward import MixedAdvantage, SelfReward, SelfRewardLoss
from mmrl.methods.advantages.lite_ppo import BatchScaledAdvantage
from mmrl.methods.advantages.prime import OutcomeCrossEntropy, ProcessAdvantage
from mmrl.methods.advantages.qwenlong import NegativeMask, TaskScaledAdvantage
from mmrl.methods.advantages.rlfr import FlowRewards
from mmrl.methods.advantages.verirl.weights import BalancedWeights
from mmrl.methods.advantages.vine_ppo import SegmentAdvantage
from mmrl.methods.agents.epo.process_rewards import TurnReturns
from mmrl.methods.agents.gtr.turns import ThoughtSurrogate, TurnAdvantage, TurnValueLoss
from mmrl.methods.control.metra import ConstraintPenalty, DualLoss, RepresentationLoss
from mmrl.methods.entropy.critical_tokens import CertaintyWeights, certainty
from mmrl.methods.entropy.lp_reg import LowProbabilityProxy, LowProbabilitySurrogate
from mmrl.methods.entropy.siren import LinearizedPenalty, OutputColumn, SelfAnchoredPenalty, nucleus_entropy
from mmrl.methods.entropy.vogue import UncertaintyBonus
from mmrl.methods.guidance.ampo import ShapedSurrogate
from mmrl.methods.guidance.eag_rl import AdaptiveClip, AdaptiveSurrogate
from mmrl.methods.guidance.rl_plus import MixtureSurrogate
from mmrl.methods.guidance.rlgf import RollOutValue
from mmrl.methods.guidance.seele import HintNegativeLogLikelihood
from mmrl.methods.losses.kimi import MirrorDescentLoss
from mmrl.methods.losses.nsr import SignedAdvantage
from mmrl.methods.losses.p3o import PairwiseSurrogate
from mmrl.methods.losses.pacs import PACSLoss
from mmrl.methods.losses.remax import GreedyBaselineAdvantage
from mmrl.methods.losses.rover import CentredReward, MeanLogprob, UniformBellmanLoss
from mmrl.methods.offline.a_lol import OfflinePolicyGradient
from mmrl.methods.offline.copg import CoPGLoss
from mmrl.methods.offline.dqo import QFunctionLoss, SoftValueLoss
from mmrl.methods.offline.oreo import PathPolicy, PathValue
from mmrl.methods.offline.rlmec.losses import EditImitation, EditRewards, EditSurrogate
from mmrl.methods.rewards.perfrl import RRHFLoss
from mmrl.methods.robots.dppo import DenoisingSurrogate
from mmrl.methods.robots.rl100 import DistillationTarget
from mmrl.methods.search.deep_search import CentredValues
from mmrl.methods.vision.asvr.policy import VisualReconstruction
from mmrl.objectives.distillation import GKDLoss
from mmrl.objectives.grounding import MapCrossEntropy
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.objectives.imitation_bins import SmoothedNegativeLogLikelihood
from mmrl.objectives.imitation_chain import DenoisingLoss, LatentKL
from mmrl.objectives.objective import Term
from mmrl.objectives.policy import CISPO, SAPO, ClippedSurrogate, PolicyGradient
from mmrl.objectives.policy_chain import ChainSurrogate
from mmrl.objectives.preference import BradleyTerryLoss, DPOLoss, KTOLoss, ORPOLoss
from mmrl.objectives.q import ActorLoss, EntropyBonus, TDLoss, TemperatureLoss
from mmrl.objectives.regularizer import KL, Entropy
from mmrl.objectives.value import SquaredValue
from mmrl.objectives.weighted_kl import WeightedKL
from mmrl.objectives.weighting import ConstantLength, EpisodeMean, SequenceMean, TokenMean, Weighting
from mmrl.ops.logprob import logprob_entropy

SLOTS = ("mmrl.annotators", "mmrl.objectives", "mmrl.methods")


@dataclass(frozen=True)
class Example:
    """A part, and what a law has to know about it."""

    part: Any
    per_row: bool = False  # tried with values per row [N], else per choice [N, T]
    scores: bool = False  # hands the whole batch to a model, so that what it touches is the model's matter
    group_relative: bool = False  # adding the same to all rewards of a group changes nothing
    sums_to_one: bool = True

    @property
    def name(self) -> str:
        return f"{self.part}{'/per_row' if self.per_row else ''}"


ANNOTATORS = [
    *(
        Example(GroupAdvantage(scale, baseline), group_relative=True)
        for scale in ("std", "sample", None)
        for baseline in ("mean", "leave_one_out")
    ),
    Example(GroupAdvantage(None, None)),
    Example(SignedAdvantage()),
    Example(GreedyBaselineAdvantage()),
    Example(BatchScaledAdvantage()),
    Example(TaskScaledAdvantage()),
    Example(BalancedWeights()),
    Example(NegativeMask(0.5)),
    Example(RoleAdvantage()),
    Example(RoleAdvantage(("group", "is_first"), scale=False)),
    Example(SegmentAdvantage(0.9)),
    Example(TurnReturns(0.9)),
    Example(TurnReturns(0.9, None)),
    *(Example(TurnAdvantage(0.9, 0.8, whiten), per_row) for whiten in (False, True) for per_row in (False, True)),
    Example(StepAdvantage()),
    Example(StepAdvantage(0.5, normalise=False)),
    Example(CentredValues()),
    Example(GAE(0.9, 0.8)),
    Example(GAE(0.9, 0.8, whiten=True)),
    Example(GAE(0.9, 0.8, token_rewards="token_rewards")),
    Example(GAE(0.9, 0.8), per_row=True),
    Example(GAE(0.9, 0.8, whiten=True), per_row=True),
    Example(RewardStreams()),
    Example(RewardStreams({"reward": 1.0, "token_rewards": 0.9}, baseline="values", whiten=True)),
    Example(RewardStreams({"token_rewards": 0.9}, baseline=None)),
    *(Example(TruncatedImportanceSampling(2.0, level)) for level in ("token", "sequence", "joint")),
    *(Example(MaskedImportanceSampling(0.5, 2.0, level)) for level in ("token", "sequence", "joint")),
    *(Example(KLPenalty(0.1, level)) for level in ("token", "sequence")),
    Example(MismatchedKL(rows=3), scores=True),
    Example(ReferenceLogprobs(rows=3), scores=True),
    Example(CertaintyWeights(power=2.0, intercept=-0.1, rows=3), scores=True),
    Example(OldLogprobs(rows=3), scores=True),
    Example(DistillationTarget(rows=3), scores=True),
    Example(Logprobs(column="other_logprobs", model="reference", rows=3), scores=True),
    Example(OutputColumn(part="nucleus_entropy", rows=3), scores=True),
    Example(
        StatisticColumns(columns={"old_mean_logprobs": "mean_logprob", "old_logprobs": "logprobs"}, rows=3), scores=True
    ),
    Example(StatisticColumns(columns={"ref_logprobs": "logprobs"}, model="reference", rows=3), scores=True),
    Example(LowProbabilityProxy(fraction=0.5)),
    Example(FlowRewards(rows=3), scores=True),
    Example(AdaptiveClip(rows=3), scores=True),
    Example(EditRewards()),
    Example(UncertaintyBonus(rows=3, context="clean"), scores=True),
    Example(CentredReward()),
    Example(CentredReward(scale=True)),
    Example(ProcessAdvantage(), group_relative=True),
    Example(SelfReward()),
    Example(SelfReward(reference=-3.0)),
    Example(MixedAdvantage("self_reward", weight=0.3)),
    Example(SelfAnchoredPenalty("nucleus_entropy", target=0.1)),
    Example(Values(rows=3), scores=True),
    Example(Values(rows=3), per_row=True, scores=True),
]
TERMS = [
    Example(PolicyGradient()),
    Example(PolicyGradient("importance_weights")),
    Example(CISPO()),
    Example(CISPO(0.2, clip_low=0.1, old="old_logprobs")),
    Example(OfflinePolicyGradient()),
    Example(OfflinePolicyGradient(None)),
    Example(SAPO()),
    Example(SAPO(2.0, 3.0, old="old_logprobs")),
    *(
        Example(ClippedSurrogate(0.1, 0.2, clip_dual, level))
        for clip_dual in (None, 1.5)
        for level in ("token", "sequence", "joint")
    ),
    Example(ClippedSurrogate(old="old_logprobs")),
    Example(LowProbabilitySurrogate(coef=0.01)),
    Example(AdaptiveSurrogate()),
    Example(AdaptiveSurrogate(0.1, old="old_logprobs")),
    Example(ThoughtSurrogate()),
    Example(ThoughtSurrogate(clip_dual=1.5)),
    Example(UniformBellmanLoss(0.5)),
    Example(ClippedSurrogate(old="old_logprobs", importance_weights="importance_weights")),
    *(
        Example(ChainSurrogate(5, join, reduction, 0.1, 0.2, clip_dual))
        for join in ("step", "transition", "chain")
        for reduction in ("sum", "mean")
        for clip_dual in (None, 1.5)
    ),
    Example(ChainSurrogate(5, old="old_logprobs")),
    Example(MixtureSurrogate()),
    Example(MixtureSurrogate(power=0.0)),
    Example(ShapedSurrogate()),
    Example(DenoisingSurrogate(1, steps=4, gamma_denoising=0.9)),
    Example(DenoisingLoss()),
    Example(DenoisingLoss(power=1)),
    Example(LatentKL()),
    Example(VisualReconstruction()),
    *(Example(KL(estimator)) for estimator in ("k1", "k2", "k3")),
    Example(KL(context="blind", cap=0.5)),
    Example(KL(old="behavior_logprobs")),
    Example(WeightedKL("k2")),
    Example(WeightedKL("k2", "behavior_logprobs")),
    Example(NegativeLogLikelihood(context="blind")),
    Example(Entropy()),
    Example(HintNegativeLogLikelihood()),
    Example(RollOutValue()),
    Example(EditSurrogate()),
    Example(EditSurrogate(0.1, old="old_logprobs")),
    Example(EditImitation()),
    Example(LinearizedPenalty("nucleus_entropy")),
    Example(OutcomeCrossEntropy(scale=0.5)),
    Example(SelfRewardLoss()),
    Example(SelfRewardLoss(scale=0.5, reference=-3.0)),
    Example(NegativeLogLikelihood()),
    *(Example(DPOLoss(loss)) for loss in ("sigmoid", "ipo", "hinge")),
    Example(DPOLoss(reduction="mean")),
    Example(DPOLoss(label_smoothing=0.1, reference=None)),
    Example(DPOLoss(reduction="mean", target_margin=0.5, reference=None)),
    Example(ORPOLoss()),
    *(Example(GKDLoss(beta)) for beta in (0.0, 0.3, 1.0)),
    Example(KTOLoss(desirable_weight=1.5, undesirable_weight=0.5)),
    Example(BradleyTerryLoss(), per_row=True),
    *(Example(MirrorDescentLoss(0.5, baseline)) for baseline in ("mean", "log_mean_exp")),
    Example(CoPGLoss(0.5)),
    *(Example(PairwiseSurrogate(0.2, clipping)) for clipping in ("separate", "joint")),
    *(Example(RRHFLoss(coef)) for coef in (0.0, 1.0)),
    *(Example(PACSLoss(0.5, balanced)) for balanced in (True, False)),
    Example(RepresentationLoss()),
    Example(ConstraintPenalty()),
    Example(DualLoss()),
    Example(QFunctionLoss()),
    Example(SoftValueLoss()),
    Example(SoftValueLoss(0.5, gae_lambda=1.0, old=None)),
    Example(StepRegression()),
    Example(PathValue()),
    Example(PathPolicy()),
    Example(SmoothedNegativeLogLikelihood(width=1.0)),
    Example(MapCrossEntropy(maps=2)),
    *(Example(TDLoss(), per_row) for per_row in (False, True)),
    *(Example(ActorLoss(over)) for over in ("min", "mean", "first")),
    Example(EntropyBonus()),
    Example(TemperatureLoss(target_entropy=0.5)),
    Example(TurnValueLoss(), per_row=True),
    *(Example(SquaredValue(clip), per_row) for clip in (None, 0.1) for per_row in (False, True)),
]
WEIGHTINGS = [
    Example(TokenMean()),
    Example(SequenceMean()),
    Example(EpisodeMean()),
    Example(ConstantLength(5), sums_to_one=False),
]


def discovered(base: type) -> set[type]:
    """Every concrete subclass in the slots."""
    result = set()
    for slot in SLOTS:
        try:
            package = importlib.import_module(slot)
        except ModuleNotFoundError as error:
            if error.name != slot:
                raise
            continue
        for module in pkgutil.walk_packages(package.__path__, f"{slot}."):
            for _, part in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if issubclass(part, base) and not inspect.isabstract(part) and part.__module__.startswith(SLOTS):
                    result.add(part)
    return result


def add_defaults(base: type, examples: list[Example]) -> None:
    """Add an example of every part that has no line above and whose constructor needs no arguments."""
    listed = {type(example.part) for example in examples}
    for part in sorted(discovered(base) - listed, key=lambda part: part.__name__):
        parameters = inspect.signature(part).parameters.values()
        if all(parameter.default is not inspect.Parameter.empty for parameter in parameters):
            examples.append(Example(part()))


for base, examples in ((Annotator, ANNOTATORS), (Term, TERMS), (Weighting, WEIGHTINGS)):
    add_defaults(base, examples)


class Tabular(nn.Module):
    """A softmax over four choices and a value for each of six states: every choice is made in a state."""

    def __init__(self, seed: int, per_row: bool):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.logits = nn.Parameter(torch.randn(6, 4, generator=generator))
        self.value = nn.Parameter(torch.randn(6, generator=generator))
        self.per_row = per_row

    def distillation_target(self, batch: Batch) -> torch.Tensor:
        """Other choices for the last two."""
        return 3 - batch["action"][:, -2:]

    def forward(self, batch: Batch) -> PolicyOutput:
        state = batch["obs.state"]
        logprobs, entropy = logprob_entropy(self.logits[state], batch["action"], batch["temperature"])
        values = self.value[state]
        choices = (self.logits[state] / batch["temperature"][:, None, None]).log_softmax(-1)
        error = self.logits[state][:, :, None] * torch.tensor([1.0, -0.5])[:, None]  # [N, T, 2, 4]
        extra = {
            "choice_logprobs": choices,
            "denoising_error": error,
            "hidden_states": error,
            "certainty": certainty(self.logits[state]),
            "nucleus_entropy": nucleus_entropy(self.logits[state], 0.95, batch["temperature"]),
            "mean_logprob": MeanLogprob()(self.logits[state], batch["temperature"]),
            "map_logits": self.logits[state[:, :2]].view(-1, 2, 2, 2),
            "q": self.logits[state],
            "skill_reward": self.logits[state][..., 0],
            "slack": self.logits[state][..., 1],
            "log_ent_coef": self.value[:1],
            "log_multiplier": self.value[:1],
            "latent_kl": self.value[state[:, 0]].square(),  # of a row
            "visual_loss": self.value[state[:, 1]].square(),  # of a row
        }
        flipped = logprob_entropy(self.logits.flip(0)[state], batch["action"], batch["temperature"])
        others = {name: PolicyOutput(*flipped) for name in ("blind", "reward")}
        others["teacher"] = PolicyOutput(*flipped, extra={"choice_logprobs": choices.flip(-1).detach()})
        return PolicyOutput(logprobs, entropy, values[:, 0] if self.per_row else values, extra, others)


def rows(per_row: bool) -> Batch:
    """Eleven rows in no order: three groups, six episodes of 1 to 3 rows, T = 5, one row without a choice."""
    generator = torch.Generator().manual_seed(1)
    episode = torch.tensor([5, 0, 1, 2, 2, 3, 3, 3, 4, 5, 5])
    step = torch.tensor([1, 0, 0, 1, 0, 2, 0, 1, 0, 0, 2])
    n, t = len(episode), 5
    mask = torch.rand(n, t, generator=generator) < 0.6
    mask[3], mask[0, 0] = False, True
    mask[6, 4] = mask[7, 3] = mask[8, 4] = False
    self_reward_mask = torch.zeros_like(mask)
    self_reward_mask[6, 4] = self_reward_mask[7, 3] = self_reward_mask[8, 4] = True
    real = {
        name: torch.randn(n, t, generator=generator)
        for name in (
            "behavior_logprobs",
            "old_logprobs",
            "ref_logprobs",
            "advantages",
            "values",
            "returns",
            "penalty_slope",
            "kl_weights",
            "reward_logprobs",
            "token_rewards",
            "old_mean_logprobs",
        )
    }
    real["min_p_probs"] = 0.3 * (real["token_rewards"] > 0).float()
    real["behavior_logprobs"] = -real["behavior_logprobs"].abs()
    real["imitation_weights"] = 0.5 * (real["token_rewards"] > 0).float()
    real["nucleus_entropy"] = real["penalty_slope"].abs()
    real["importance_weights"] = 0.1 + torch.rand(n, t, generator=generator)
    if per_row:
        real |= {name: real[name][:, 0].clone() for name in ("values", "returns")}
    episode_reward = torch.tensor([1.0, 0.0, 0.5, 1.0, 0.0, 2.0])[episode]
    last = torch.tensor([int(s) == max(step[episode == e]) for s, e in zip(step, episode)])
    return Batch(
        **{"obs.state": torch.randint(6, (n, t), generator=generator)},
        **{"other.clean.state": (torch.arange(n)[:, None] + torch.arange(t)) % 6},
        action=torch.randint(4, (n, t), generator=generator),
        action_mask=mask,
        self_reward_mask=self_reward_mask,
        imitation_mask=~mask & ~self_reward_mask & (torch.arange(t) < 2),
        value_mask=mask & (torch.arange(t) >= 1),
        feature_mask=mask & (torch.arange(t) % 2 == 0),
        clip_high=torch.linspace(0.2, 0.4, n),
        self_reward_weight=self_reward_mask.any(1) * torch.linspace(0.5, 1.5, n),
        self_reward=self_reward_mask.any(1) * torch.rand(n, generator=generator),
        temperature=torch.linspace(0.5, 1.5, n),
        group=torch.tensor([0, 0, 0, 8, 8, 8])[episode],
        prompt_id=torch.arange(len(episode)) // 2,
        prompt_length=torch.zeros(len(episode), dtype=torch.long),
        episode=episode,
        step=step,
        reward=torch.randn(n, generator=generator) + episode_reward * last,
        episode_reward=episode_reward,
        greedy_reward=torch.linspace(0, 1, n),
        is_first=step == 0,
        baseline_group=episode % 2,
        segment=(torch.arange(t) // 2).expand(n, t).clone(),
        is_last=last,
        is_terminal=last & (episode % 2 == 0),
        bootstrap_value=torch.where(last & (episode % 2 == 1), 0.7, 0.0),
        is_demo=(episode == 2) | (episode == 5),
        policy_version=torch.zeros(n).long(),
        reference_point=torch.full((len(episode),), 0.3),
        preference=torch.tensor([0, 1, -1, 0, 0, 1, 0, 0, -1, 0, 0]).float(),
        target_mask=torch.rand(n, 1, 4, 4, generator=generator) < 0.5,
        **real,
    )


def context(per_row: bool) -> Context:
    models = {"reference": Tabular(3, per_row)}
    return Context(None, None, Tabular(2, per_row), Sampling(), seed=0, iteration=0, group_size=3, models=models)


def dirty(batch: Batch) -> Batch:
    """NaN in every entry of a real [N, T] column that nobody reads."""
    mask = batch.score_mask
    real = {name for name, column in batch.items() if column.is_floating_point() and column.shape == mask.shape}
    return batch.with_columns(**{name: torch.where(mask, batch[name], torch.nan) for name in real})


class Watched(Batch):
    """Remembers which columns were looked at."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.touched: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.touched.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.touched.add(name)
        return super().get(name, default)
