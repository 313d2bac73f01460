"""The public API: base classes of parts, their data types, and `fit`, `evaluate` and `load_policy`.

Names are imported when they are first used, so that `import mmrl` and `mmrl --help` import no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.annotators.base import Annotator
    from mmrl.api.evaluation import evaluate
    from mmrl.api.loaded_policy import LoadedPolicy, load_policy
    from mmrl.api.run import Run
    from mmrl.api.training import fit
    from mmrl.core.batch import Batch
    from mmrl.core.errors import ConfigError
    from mmrl.core.types import Episode, Prompt, Sampling, Sim, Task
    from mmrl.curricula.base import Curriculum
    from mmrl.data.replay_data import ReplayData
    from mmrl.data.rollout_data import RolloutData
    from mmrl.learners.learner import Learner
    from mmrl.learners.phased import PhasedLearner
    from mmrl.objectives.objective import Term
    from mmrl.objectives.weighting import Weighting
    from mmrl.policies.base import Policy
    from mmrl.rewards.base import Reward
    from mmrl.rollouts.base import Rollout
    from mmrl.schedules.base import Schedule
    from mmrl.tools.base import Tool
    from mmrl.transforms.base import EpisodeTransform
    from mmrl.transforms.rows.base import RowTransform

__version__ = "0.1.0"

_MODULES = {
    "annotators.base": ("Annotator",),
    "api.evaluation": ("evaluate",),
    "api.loaded_policy": ("LoadedPolicy", "load_policy"),
    "api.run": ("Run",),
    "api.training": ("fit",),
    "core.batch": ("Batch",),
    "curricula.base": ("Curriculum",),
    "data.replay_data": ("ReplayData",),
    "data.rollout_data": ("RolloutData",),
    "core.errors": ("ConfigError",),
    "learners.learner": ("Learner",),
    "learners.phased": ("PhasedLearner",),
    "objectives.objective": ("Term",),
    "objectives.weighting": ("Weighting",),
    "policies.base": ("Policy",),
    "rewards.base": ("Reward",),
    "rollouts.base": ("Rollout",),
    "transforms.rows.base": ("RowTransform",),
    "schedules.base": ("Schedule",),
    "tools.base": ("Tool",),
    "transforms.base": ("EpisodeTransform",),
    "core.types": ("Episode", "Prompt", "Sampling", "Sim", "Task"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Annotator",
    "Batch",
    "ConfigError",
    "Curriculum",
    "Episode",
    "EpisodeTransform",
    "Learner",
    "LoadedPolicy",
    "PhasedLearner",
    "Policy",
    "Prompt",
    "ReplayData",
    "Reward",
    "Rollout",
    "RolloutData",
    "RowTransform",
    "Run",
    "Sampling",
    "Schedule",
    "Sim",
    "Task",
    "Term",
    "Tool",
    "Weighting",
    "evaluate",
    "fit",
    "load_policy",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mmrl' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mmrl.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
