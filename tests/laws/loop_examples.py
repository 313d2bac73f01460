"""One example of every part of the loop around the objective. A new part adds its line here.

They are schedules, curricula, transforms of episodes and of rows.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from mmrl.curricula.balanced import BalancedTasks
from mmrl.curricula.prioritised import Prioritised
from mmrl.curricula.sampler import FixedSubset, Shuffled
from mmrl.curricula.stratified import StratifiedSubset
from mmrl.methods.advantages.laser.confidence import Confidence
from mmrl.methods.advantages.laser.self_reward import SelfRewardToken
from mmrl.methods.advantages.line_labels import LineLabels
from mmrl.methods.advantages.prof import ProcessConsistencyFilter
from mmrl.methods.advantages.qwenlong import TaskColumn
from mmrl.methods.advantages.recap import WeightedObjectives
from mmrl.methods.advantages.verirl.weights import ModelReward
from mmrl.methods.agents.epo.process_rewards import DecisiveTurns
from mmrl.methods.agents.gtr.corrections import CorrectedThoughts, ThoughtColumns
from mmrl.methods.agents.reseek import JudgementRewards
from mmrl.methods.control.metra import StateTrace
from mmrl.methods.entropy.cure import BranchAtEntropy
from mmrl.methods.entropy.vogue import CleanContext
from mmrl.methods.guidance.ampo import AddTeacherTraces
from mmrl.methods.guidance.eag_rl import FeatureMask
from mmrl.methods.guidance.ghpo import HintOnFailure
from mmrl.methods.guidance.memory_r_plus import MemoryReward
from mmrl.methods.guidance.relift import HardQuestionBuffer
from mmrl.methods.guidance.sasr import GradientShare
from mmrl.methods.guidance.ssb import HintedContext, KeepHintedSuccesses
from mmrl.methods.guidance.trapo import SelectByTrajectory
from mmrl.methods.losses.superhf import KeepBest
from mmrl.methods.offline.a_lol import KeepPositive
from mmrl.methods.offline.rlmec.corrections import AddCorrections
from mmrl.methods.preferences.per_step_dpo import PitPairs
from mmrl.methods.problems.dars import AdaptiveSampling
from mmrl.methods.problems.drive import HardestPhases
from mmrl.methods.problems.gvm import AllocateSamples
from mmrl.methods.problems.medvlthinker import DropMeasuring, MeasuredPassRates
from mmrl.methods.problems.modomodo import WeightedTasks
from mmrl.methods.problems.mopps import Posterior
from mmrl.methods.problems.one_shot import HighestVariance
from mmrl.methods.problems.sws import WeakKinds
from mmrl.methods.rewards.demystify_cot import RepetitionRewards
from mmrl.methods.rewards.rlp import InformationGain
from mmrl.methods.rewards.rlpr import FilterRewardStd, ProbabilityReward
from mmrl.methods.rewards.rorecomp import RecomposeRows
from mmrl.methods.rewards.step_coder import MaskUnexecuted
from mmrl.methods.robots.rlcm import PromptAdvantage
from mmrl.methods.robots.rwfm import AddExpertEpisodes, AsDemonstrations
from mmrl.methods.vision.asvr.tokens import VisualTokens
from mmrl.methods.vision.openvlthinker import SelectTraces
from mmrl.methods.vision.papo import BlackPatches, OtherContext
from mmrl.methods.vision.veripo import DropEasy, VerifiedPairs
from mmrl.schedules import AdaptiveKL, Alternating, Cosine, CosineCycle, EntropyBand, Linear, Piecewise
from mmrl.transforms.best_worst import BestWorst
from mmrl.transforms.dynamic_sampling import DynamicSampling
from mmrl.transforms.filter import DropZeroVariance, KeepPassRates, KeepSuccesses
from mmrl.transforms.greedy import DropGreedySuccesses, GreedyReward
from mmrl.transforms.label import AddDemonstration
from mmrl.transforms.rows.replay import ReplayRows
from mmrl.transforms.rows.select import SelectByAdvantage
from mmrl.transforms.steps import StepRewards
from tasks.arithmetic import Arithmetic

SLOTS = ("mmrl.schedules", "mmrl.curricula", "mmrl.transforms", "mmrl.transforms.rows", "mmrl.methods")


class NoSteps:
    """A scorer of steps without steps."""

    def score_steps(self, *parts):
        return []


SCHEDULES = [
    lambda: Linear(1.0, 0.1, 5),
    lambda: Linear(1.0, 0.1, 5, delay=2),
    lambda: Cosine(1.0, 0.1, 5, delay=2),
    lambda: Piecewise({1: 1.0, 3: 0.5}),
    lambda: Piecewise({0: 1.0, 3: 0.5}, steps=True),
    lambda: Alternating([1.0, 0.5, 0.1], 2),
    lambda: CosineCycle(1.0, 0.1, 6),
    lambda: AdaptiveKL(0.2, target=0.05),
    lambda: EntropyBand(0.01, low=0.5, high=1.0),
    lambda: GradientShare(2),
]
CURRICULA = [
    Shuffled,
    lambda: FixedSubset(16),
    lambda: StratifiedSubset("kind", {"a": 8, "b": 8}),
    lambda: BalancedTasks("kind"),
    Prioritised,
    lambda: Prioritised("kind"),
    lambda: HardestPhases({2: 0.5, 4: 0.25}),
    lambda: MeasuredPassRates(2),
    lambda: MeasuredPassRates(2, easy_first=True),
    lambda: WeightedTasks({"a": 0.25, "b": 0.75}, "kind"),
    Posterior,
    lambda: Posterior(rule="within"),
    lambda: HighestVariance(2, count=4),
    lambda: WeakKinds("kind", 2, pool=8),
    lambda: DropEasy(score_name="reward"),
]
ROW_TRANSFORMS = [
    lambda: ReplayRows(groups=2),
    lambda: SelectByAdvantage(0.5),
    KeepPositive,
    lambda: RecomposeRows(0.5, probability=0.5),
]
EPISODE_TRANSFORMS = [
    BestWorst,
    DynamicSampling,
    lambda: DynamicSampling(num_groups=2),
    DropZeroVariance,
    KeepPassRates,
    KeepSuccesses,
    DropGreedySuccesses,
    GreedyReward,
    AddDemonstration,
    lambda: StepRewards(NoSteps()),
    lambda: AddTeacherTraces({"teacher": Arithmetic(steps=True)}),
    VisualTokens,
    BranchAtEntropy,
    AdaptiveSampling,
    RepetitionRewards,
    FeatureMask,
    DecisiveTurns,
    HintOnFailure,
    CorrectedThoughts,
    ThoughtColumns,
    AllocateSamples,
    lambda: Confidence("1"),
    lambda: SelfRewardToken("1"),
    LineLabels,
    lambda: DropMeasuring(2),
    MemoryReward,
    StateTrace,
    SelectTraces,
    lambda: OtherContext("blind", BlackPatches()),
    PitPairs,
    lambda: ProcessConsistencyFilter(NoSteps()),
    TaskColumn,
    WeightedObjectives,
    HardQuestionBuffer,
    JudgementRewards,
    PromptAdvantage,
    AddCorrections,
    InformationGain,
    FilterRewardStd,
    ProbabilityReward,
    lambda: AddExpertEpisodes(4),
    AsDemonstrations,
    HintedContext,
    KeepHintedSuccesses,
    MaskUnexecuted,
    KeepBest,
    SelectByTrajectory,
    VerifiedPairs,
    ModelReward,
    CleanContext,
]


def discover(base: type) -> set[type]:
    """Every concrete subclass in the slots."""
    modules = (
        importlib.import_module(module.name)
        for slot in SLOTS
        for module in pkgutil.walk_packages(importlib.import_module(slot).__path__, f"{slot}.")
    )
    found = {part for module in modules for _, part in inspect.getmembers(module, inspect.isclass)}
    return {p for p in found if issubclass(p, base) and not inspect.isabstract(p) and p.__module__.startswith(SLOTS)}
