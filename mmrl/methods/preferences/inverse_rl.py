"""Inverse RL on language models: the reward that tells answers of an aligned model from those of its base.

Insights from the Inverse: Reconstructing LLM Training Goals Through Inverse Reinforcement Learning, 2024,
arXiv:2410.12491.

- R_w(x, y) = w . phi(x, y) with ||w|| at most a bound, phi the mean of the last hidden states: `PooledScorer`
- max-margin: maximise sum p(R(y_d) - R(y_o)), with p(z) = z for z >= 0, else 2 z; the hinge max(0, 1 - z) in its
  place: `MaxMarginLoss`
- max-entropy: log-likelihood of y_d under the softmax of R over the candidates: `MaxEntropyLoss`
- the answers y_d of the aligned model and y_o of the base: `DemonstratedAnswers`
- what the reward says of other answers, and how far two such rewards agree: `RewardRecovery`, `HeadSimilarity`

More than 150 lines, since rewards are recovered in three ways, and compared with the truth and with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import linear

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.types import Context, Episode, Observation, PolicyOutput, Prompt, Request, Turn
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score, get_score
from mmrl.objectives.objective import Term
from mmrl.objectives.preference import read_scores
from mmrl.ops.preference import hinge_loss, paired_margin
from mmrl.policies.base import require_inputs
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rollouts.base import Rollout, text_observation
from mmrl.rollouts.offline.answers import Answers
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.transforms.best_worst import label_preference

HEAD = "score_head.safetensors"
REWARD, HARMLESS = "reward_model", "harmless"
"""Names of the scores: of the recovered reward, and 1 for an answer that the true reward prefers."""


def margin_objective(
    margin: Tensor,  # [P] R(y_d) - R(y_o)
) -> Tensor:  # [P], to be maximised
    """p(z) = z for z >= 0, else 2 z. Source: Ng and Russell, Algorithms for Inverse Reinforcement Learning, 2000."""
    return torch.where(margin >= 0, margin, 2 * margin)


def entropy_loss(
    rewards: Tensor,  # [N]
    sign: Tensor,  # [N] 1 the demonstration, -1 another candidate, 0 neither
    group: Tensor,  # [N] ids of the prompts
) -> Tensor:  # [N] nats, of the row's group; 0 where the sign is
    """-log of the softmax of R over a prompt's candidates at its demonstration. Source: arXiv:2410.12491."""
    same = (group[:, None] == group[None]) & (sign != 0)[None]
    total = torch.where(same, rewards[None], -torch.inf).logsumexp(1)
    shown = paired_margin(rewards, sign.clamp(min=0), group)
    return torch.where(sign != 0, total - shown, 0)


@dataclass(frozen=True)
class MaxMarginLoss(Term):
    """Loss of a demonstration against another answer, per row [N]: -p(z), or the hinge max(0, 1 - z), of z = R_d - R_o.

    Both rows of a pair carry it. -p(z) has no lower end, so that the reward needs a bound (`PooledScorer`).
    Source: Insights from the Inverse, 2024, arXiv:2410.12491.

    Args:
        kind: margin or hinge.
    """

    kind: Literal["margin", "hinge"] = "margin"

    whole_groups = True

    def __post_init__(self) -> None:
        if self.kind not in ("margin", "hinge"):
            raise ValueError(f"max_margin_loss.kind must be margin or hinge, got {self.kind!r}")

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        margin = self._margin(out, batch)
        loss = hinge_loss(margin) if self.kind == "hinge" else -margin_objective(margin)
        return torch.where(batch["preference"] != 0, loss, 0)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """margin: in units of the reward; accuracy: fraction of pairs whose demonstration has more."""
        margin = self._margin(out, batch)
        return {"margin": margin, "accuracy": (margin > 0).to(margin.dtype)}

    def _margin(self, out: PolicyOutput, batch: Batch) -> Tensor:
        rewards = read_scores(out, "max_margin_loss").mean(1)
        return paired_margin(rewards, batch["preference"], batch["group"])


@dataclass(frozen=True)
class MaxEntropyLoss(Term):
    """Negative log-likelihood of a demonstration under the softmax of the reward over the candidates, per row [N].

    All rows of a prompt carry it. Source: Insights from the Inverse, 2024, arXiv:2410.12491.
    """

    whole_groups = True

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "preference"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        rewards = read_scores(out, "max_entropy_loss").mean(1)
        return entropy_loss(rewards, batch["preference"], batch["group"])


class PooledScorer(ScoringPolicy):
    """Linear reward w . phi of the mean phi of the last hidden states of a frozen language model, ||w|| <= max_norm.

    A longer w is scaled to the bound wherever it is used. Answers are embedded once, when they are encoded.

    Args:
        path: folder of the language model, or of such a scorer, whose w is read.
        max_norm: bound of ||w||.
        head_seed: of the first w, for a comparison of several.
    """

    def __init__(self, path: str, max_norm: float = 1.0, head_seed: int = 0):
        check_positive("policy", max_norm=max_norm)
        super().__init__(path=path, hidden=[])
        self.max_norm = max_norm
        last: Any = self.head[-1]  # type: ignore[index]
        last.bias.requires_grad_(False)  # no difference of rewards depends on it
        if not (Path(path) / HEAD).exists():
            weight = torch.randn(last.weight.shape, generator=torch.Generator().manual_seed(head_seed))
            with torch.no_grad():
                last.weight.copy_(weight * max_norm / weight.norm())
                last.bias.zero_()

    def head_scores(self, observation: Mapping[str, Any]) -> Tensor:
        weight = self.head[-1].weight  # type: ignore[index]
        return linear(observation["embedding"], weight * (self.max_norm / weight.norm().clamp(min=self.max_norm)))

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        require_inputs(raw, ["messages", "answer"], self)
        with torch.no_grad():
            ids = torch.tensor(self._ids(raw), dtype=torch.long)[None].to(self.device)
            states = self.model.base_model(input_ids=ids).last_hidden_state[0]
        return {"embedding": states.float().mean(0).cpu()}


class DemonstratedAnswers(Answers):
    """The answer of an aligned model and those of its base to the same problems, as groups of one demonstration.

    Args:
        path: file of the aligned model's rows, as `mmrl rounds` writes them; the first one of a problem counts.
        others: file of the base's rows.
        candidates: of the base's answers of a problem, beside the demonstration; those that are equal to it are left
            out, and so are problems without one.
    """

    def __init__(self, path: str, others: str, candidates: int = 1):
        super().__init__(path)
        check_at_least(1, "rollout", candidates=candidates)
        self.others, self.candidates = Answers(others), candidates

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference"})

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        by_key: dict[str, list[str]] = {}
        for row in self.others._rows:
            by_key.setdefault(row["key"], []).append(row["completion"])
        first = {row["key"]: row for row in reversed(Answers(str(self.path))._rows)}
        rows = []
        for key, row in sorted(first.items(), key=lambda item: item[1]["index"]):
            texts = list(dict.fromkeys(text for text in by_key.get(key, []) if text != row["completion"]))
            if texts:
                rows.append({**row, "others": texts[: self.candidates]})
        if not rows:
            raise ValueError(
                f"rollout.path={self.path} and rollout.others={self.others.path} have no two different answers to one "
                "problem; sample both with the same count and offset"
            )
        return rows

    def _build(self, row: Mapping[str, Any], slot: int, ctx: Context) -> list[Episode]:
        prompt = self._find_prompt(row, ctx)
        episodes = []
        for number, text in enumerate([row["completion"], *row["others"]]):
            turn = Turn(demonstration({**text_observation(prompt), "answer": text}, text, ctx))
            episode = Episode(prompt, slot, number, [turn], source="demo")
            episodes.append(label_preference(episode, -1 if number else 1))
        return episodes


class ScoredTexts(Rollout):
    """Score the text of every problem with a recovered reward: `reward_model`, and `harmless`, 1 without any label."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        requests = [Request({**prompt.observation, "answer": prompt.info["chosen"]}, 0) for _, prompt in prompts]
        episodes = []
        for (slot, prompt), done in zip(prompts, ctx.engine.sample(requests, ctx.sampling)):
            scores = {REWARD: float(done.output), HARMLESS: float(not any(prompt.info["labels"].values()))}
            episodes.append(Episode(prompt, slot, 0, [Turn(done)], info={"scores": scores}))
        return episodes


@dataclass(frozen=True)
class RewardRecovery(Evaluator):
    """How well a recovered reward orders answers: `mean`, `f1`, `correlation`, n and errors.

    mean is the accuracy over all pairs of a harmless and a harmful answer, ties one half; correlation Spearman's, of
    the reward and the truth; f1 that of the harmful answers, if as many of the lowest rewards are called harmful.
    Without both kinds mean and correlation are NaN.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        rewards = np.array([get_score(episode, REWARD) for episode in valid])
        harmless = np.array([get_binary_score(episode, HARMLESS) for episode in valid]) > 0
        apart = rewards[harmless][:, None] - rewards[~harmless][None]
        count = int((~harmless).sum())
        lowest = np.argsort(rewards, kind="stable")[:count]
        return {
            "mean": float(((apart > 0) + 0.5 * (apart == 0)).mean()) if apart.size else float("nan"),
            "f1": float((~harmless[lowest]).mean()) if count else 0.0,
            "correlation": _correlate(_rank(rewards), _rank(harmless.astype(float))),
            "n": float(len(valid)),
            "errors": count_errors(episodes),
        }


def _rank(values: np.ndarray) -> np.ndarray:
    """Ranks, of equal values their mean."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def _correlate(first: np.ndarray, second: np.ndarray) -> float:
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / scale if scale else float("nan")


@dataclass(frozen=True)
class HeadSimilarity(Evaluator):
    """Cosine of the weights of two recovered rewards, the `mean`; the episodes do not count.

    Args:
        paths: folders of two scorers.
    """

    paths: Sequence[str] = ()

    def __post_init__(self) -> None:
        if len(self.paths) != 2:
            raise ValueError(f"evaluators.paths must be the folders of two scorers, got {list(self.paths)}")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        first, second = (_read_weight(Path(path)) for path in self.paths)
        if first.shape != second.shape:
            raise ValueError(f"{list(self.paths)} have weights of {len(first)} and {len(second)} states; compare alike")
        return {"mean": float(first @ second / (first.norm() * second.norm())), "errors": count_errors(episodes)}


def _read_weight(folder: Path) -> Tensor:
    if not (folder / HEAD).is_file():
        raise ValueError(f"{folder} has no {HEAD}; give the folder `policy` of a fit with PooledScorer")
    weights = [value for name, value in load_file(folder / HEAD).items() if name.endswith("weight")]
    return weights[-1].flatten()
