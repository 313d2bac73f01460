"""MetaRM: a reward model that still tells apart the answers of a policy which has moved away from the labelled pairs.

Secrets of RLHF in Large Language Models Part II: Reward Modeling, 2024, section 4, arXiv:2401.06080.

- J(theta), how far the scores of unlabelled answers to one prompt lie apart: `separation`
- theta' = theta + eta grad J(theta); the step of theta is the gradient of the pairs' loss at theta': `MetaLearner`
- pairs with answers of the moved policy, which have no label: `PairsWithAnswers`
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError, check_positive
from mmrl.core.types import Prompt
from mmrl.distributed import parallel
from mmrl.learners.learner import Learner
from mmrl.rollouts.offline.pairs import PreferencePairs


def separation(
    scores: Tensor,  # [N]
    group: Tensor,  # [N] ids of the prompts
) -> Tensor:  # [] in (0, 1)
    """J = mean over prompts of the mean over pairs i < j of its answers of sigmoid(|r_i - r_j|).

    Prompts with one answer do not count; without any other it is 0. Its gradient is 0 where two scores are equal.
    Source: Secrets of RLHF II, 2024, section 4, arXiv:2401.06080.
    """
    _, place, size = group.unique(return_inverse=True, return_counts=True)
    first, second = torch.triu_indices(len(scores), len(scores), offset=1, device=scores.device)
    same = place[first] == place[second]
    first, second = first[same], second[same]
    prompts = int((size > 1).sum())
    pairs = (size * (size - 1) / 2)[place[first]]
    return ((scores[first] - scores[second]).abs().sigmoid() / pairs).sum() / max(prompts, 1)


class PairsWithAnswers(PreferencePairs):
    """Preference pairs of the task, each with unlabelled answers of a policy to the same prompt.

    The answers are `shifted` of `Prompt.info`; their column `preference` is 0, so that no preference loss counts them.
    """

    def label(self, prompt: Prompt) -> list[tuple[str, int]]:
        answers = prompt.info.get("shifted")
        if not isinstance(answers, list) or len(answers) < 2:
            raise ValueError(
                f"{prompt.place or prompt.key}: 'shifted' must list two or more answers of the policy, got "
                f"{answers!r}; take a task that has them"
            )
        return [*super().label(prompt), *((answer, 0) for answer in answers)]


class MetaLearner(Learner):
    """First-order meta-learning of a reward model: the loss of the pairs, after a step that separates other answers.

    theta' = theta + eta grad J(theta) on the rows without a label of a micro-batch, then theta takes the gradient of
    the objective on the labelled rows at theta'. The weights are theta again before the optimiser's step.
    Source: Secrets of RLHF II, 2024, section 4, arXiv:2401.06080.

    Args:
        meta_lr: eta, learning rate of the step on J.
        kwargs: as of Learner.
    """

    def __init__(self, meta_lr: float = 0.01, **kwargs: Any):
        super().__init__(**kwargs)
        check_positive("model", meta_lr=meta_lr)
        self.meta_lr = meta_lr
        self._steps: list[tuple[Tensor, Tensor]] = []  # weights, and what the step on J added to them

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit" and (self.trainer.world_size > 1 or parallel.shards(self.trainer)):
            raise ConfigError(
                "model is MetaLearner, whose step on the scores is that of one process; set trainer.devices=1 "
                "trainer.num_nodes=1 and strategy=auto"
            )

    def training_step(self, batch: Batch, index: int) -> Tensor:
        labelled = batch["preference"] != 0
        self._separate(batch.select((~labelled).nonzero()[:, 0]))
        # the weights of the labelled rows count as much as those of all rows did
        weights = batch["loss_weights"]
        shares = weights.abs().sum() / weights[labelled].abs().sum().clamp(min=1e-12)
        rows = batch.with_columns(loss_weights=weights * shares).select(labelled.nonzero()[:, 0])
        return super().training_step(rows, index)

    def _separate(self, rows: Batch) -> None:
        """Move the weights by the gradient of J, and remember the step."""
        if not rows.rows:
            return
        values = self.policy(rows).values
        if values is None:
            raise ValueError("MetaLearner learns a reward model; take a scorer as the policy (policy=scorer)")
        parameters = [parameter for parameter in self.policy.parameters() if parameter.requires_grad]
        objective = separation(values, rows["group"])
        gradients = torch.autograd.grad(objective, parameters, allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                if gradient is not None:
                    before = parameter.detach().clone()
                    parameter.add_(gradient, alpha=self.meta_lr)
                    self._steps.append((parameter, before))

    def on_after_backward(self) -> None:
        """Take the step on J back: the gradients stay."""
        super().on_after_backward()
        with torch.no_grad():
            for parameter, before in self._steps:
                parameter.copy_(before)
        self._steps.clear()
