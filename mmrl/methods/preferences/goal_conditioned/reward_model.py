"""Goal-conditioned reward model: states of a preferred answer point to its end, and not to that of a rejected one.

Learning Goal-Conditioned Representations for Language Reward Models, 2024, arXiv:2407.13887.

- sim+ = mean sigmoid(cos(h+_source, h+_goal)), sim- = mean sigmoid(cos(h+_source, h-_goal)) of sampled tokens, and
  L = -log sim+ - log(1 - sim-): `goal_contrastive_loss`, `GoalContrastiveLoss`
- the goal, a mean of the last states of preferred answers, and Q = cos(h, goal) of an answer or the beginning of one:
  `GoalScoringPolicy`; answers are discarded and steered by it while they are sampled: `guidance.py`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError, check_at_least, check_interval
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.rng import derive_seed
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.policies.weights import read_weights


def goal_contrastive_loss(
    source: Tensor,  # [S, D] states of the preferred answer, before the goals
    goal: Tensor,  # [S, D] of the preferred answer
    far_source: Tensor,  # [S, D] of the preferred answer
    far_goal: Tensor,  # [S, D] of the rejected answer
) -> Tensor:  # []
    """Contrastive loss: -log sim+ - log(1 - sim-), sim the mean over all pairs of sigmoid(cos).

    Source: Goal-Conditioned Representations, 2024, section 3, arXiv:2407.13887.
    """
    near, far = (
        (normalize(a, dim=-1) @ normalize(b, dim=-1).T).sigmoid().mean()
        for a, b in ((source, goal), (far_source, far_goal))
    )
    return -near.log() - (1 - far).log()


GOAL_FILE = "goal.safetensors"
"""File of the goal in a saved policy's folder."""


class GoalScoringPolicy(ScoringPolicy):
    """Scorer that also gives the states of an answer's tokens, and knows the goal of preferred answers.

    In training its output has `token_features` [N, S, D] and `token_places` [N, 2], the first and the last token of the
    answer. The buffer `goal` is the moving average of the last states of preferred answers, and is saved with the
    classifier. As the reward model of a run with `scored_by: goal`, `FilteredVote` with `filter_score: reward_model`
    votes among the answers whose Q is high.

    Args:
        scored_by: head: the Bradley-Terry score; goal: Q = cos(state of the last token, goal), of whole answers or
            beginnings.
        momentum: of the goal's moving average.
        options: of ScoringPolicy.
    """

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        scored_by: Literal["head", "goal"] = "head",
        momentum: float = 0.99,
        **options: Any,
    ):
        if scored_by not in ("head", "goal"):
            raise ValueError(f"policy.scored_by must be head or goal, got {scored_by!r}")
        check_interval("policy", "[0, 1)", momentum=momentum)
        super().__init__(path, config, **options)
        if self.head is not None or self.heads != 1:
            raise ValueError("policy: a goal-conditioned scorer has one head and no policy.hidden")
        self.scored_by, self.momentum = scored_by, momentum
        self.goal: Tensor
        self.register_buffer("goal", torch.zeros(self.model.config.get_text_config().hidden_size))
        saved = Path(path or "") / GOAL_FILE
        if path is not None and saved.exists():
            weights = read_weights(saved, "save the policy there again")
            if weights["goal"].shape != self.goal.shape:
                raise ValueError(
                    f"{saved}: its goal is for states of {weights['goal'].shape[0]} numbers; save it again"
                )
            self.goal.copy_(weights["goal"])

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | {"token_features", "token_places"}

    def encode(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        ids, empty = self._ids(raw), self._ids({**raw, "answer": ""})
        same = [a == b for a, b in zip(ids, empty)]
        start = same.index(False) if False in same else min(len(ids), len(empty)) - 1
        return {"input_ids": torch.tensor(ids), "start": torch.tensor(start)}

    def collate(self, observations: Any) -> dict[str, Tensor]:
        return {**super().collate(observations), "start": torch.stack([row["start"] for row in observations])}

    def head_scores(self, observation: Mapping[str, Any]) -> Tensor:
        if self.scored_by == "head":
            return super().head_scores(observation)
        return self._compare_goal(observation)[:, None]

    @torch.no_grad()
    def score_beginnings(self, rows: Sequence[Mapping[str, Any]], ended: Sequence[bool]) -> list[float]:
        """Q = cos(h_t, goal) of the last token t of answers and of beginnings of answers.

        Args:
            rows: messages and answer so far.
            ended: whether an answer has ended; the last token of one is the end, of a beginning its last character.
        """
        if not rows:
            return []
        encoded = [self.encode(row) for row in rows]
        cut = [e if end else {**e, "input_ids": e["input_ids"][:-1]} for e, end in zip(encoded, ended, strict=True)]
        observation = {name: column.to(self.device) for name, column in self.collate(cut).items()}
        with evaluation_mode(self):
            return self._compare_goal(observation).tolist()

    def _compare_goal(self, observation: Mapping[str, Any]) -> Tensor:
        """Cosine [N] of the state of the last token of each row with the goal."""
        if not bool(self.goal.any()):
            raise ConfigError(
                "policy.scored_by=goal: there is no goal yet, which training on pairs finds; train first, or give "
                f"policy.path the folder of such a run, with its {GOAL_FILE}"
            )
        states, _ = self._states(observation)
        last = observation["attention_mask"].sum(1) - 1
        ends = states[torch.arange(len(last), device=last.device), last]
        return cosine_similarity(ends, self.goal.to(ends), dim=-1)

    def save_pretrained(self, folder: str | Path) -> None:
        """Save the classifier, and the goal beside it."""
        super().save_pretrained(folder)
        save_file({"goal": self.goal.detach().cpu().contiguous()}, Path(folder) / GOAL_FILE)

    def _states(self, observation: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """States of the last layer [N, S, D], and scores [N, 1]."""
        out = self.model(
            input_ids=observation["input_ids"], attention_mask=observation["attention_mask"], output_hidden_states=True
        )
        return out.hidden_states[-1].float(), out.logits.float()

    def forward(self, batch: Batch) -> PolicyOutput:
        observation = batch.observation()
        states, scores = self._states(observation)
        last = observation["attention_mask"].sum(1) - 1
        if self.training and "preference" in batch and bool((batch["preference"] > 0).any()):
            ends = states[torch.arange(len(last), device=last.device), last].detach()
            mean = ends[batch["preference"] > 0].mean(0)
            keep = self.momentum if bool(self.goal.any()) else 0.0
            self.goal.mul_(keep).add_(mean, alpha=1 - keep)
        nothing = scores.new_zeros(batch["action"].shape)
        places = torch.stack([observation["start"], last], 1).float()
        return PolicyOutput(nothing, nothing, scores[:, 0], {"token_features": states, "token_places": places})


@dataclass(frozen=True)
class GoalContrastiveLoss(Term):
    """Contrastive loss of sampled tokens of a pair's answers, on both of its rows [N]: `goal_contrastive_loss`.

    Sources and goals of one answer are places of it, a source before its goal; those of the other one are any. Places
    depend on the group alone, so that a resumed run draws the same ones. It needs a `GoalScoringPolicy`.

    Args:
        samples: pairs of tokens that are drawn of each pair of answers.
    """

    samples: int = 16

    whole_groups = True

    def __post_init__(self) -> None:
        check_at_least(1, "goal_contrastive_loss", samples=self.samples)

    def needs(self) -> frozenset[str]:
        return frozenset({"token_features", "token_places"})

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if "token_features" not in out.extra:
            raise ValueError(
                "goal_contrastive_loss needs the states of tokens: "
                "policy._target_=mmrl.methods.preferences.goal_conditioned.reward_model.GoalScoringPolicy"
            )
        states, places = out.extra["token_features"], out.extra["token_places"].cpu()
        values = [0 * states[i].sum() for i in range(len(states))]
        group, sign = batch["group"].tolist(), batch["preference"].tolist()
        rows = {(key, side > 0): i for i, (key, side) in enumerate(zip(group, sign)) if side != 0}
        for key in sorted({key for key, _ in rows}):
            if (key, True) not in rows or (key, False) not in rows:
                continue
            better, worse = rows[key, True], rows[key, False]
            generator = torch.Generator().manual_seed(derive_seed("goal_contrastive", key))
            near = self._draw(places[better], generator).sort(0).values  # sources before goals
            far = self._draw(places[better], generator)[0], self._draw(places[worse], generator)[1]
            loss = goal_contrastive_loss(
                states[better][near[0]], states[better][near[1]], states[better][far[0]], states[worse][far[1]]
            )
            values[better], values[worse] = values[better] + loss, values[worse] + loss
        return torch.stack(values)

    def _draw(self, places: Tensor, generator: torch.Generator) -> Tensor:
        """Places [2, samples] of tokens of an answer."""
        first, last = (int(place) for place in places)
        return torch.randint(first, last + 1, (2, self.samples), generator=generator)
