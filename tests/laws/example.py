"""What is tried of a part, and the batch and the policy that the laws try it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.methods.entropy.critical_tokens import certainty
from mmrl.methods.entropy.siren import nucleus_entropy
from mmrl.methods.losses.rover import MeanLogprob
from mmrl.ops.logprob import logprob_entropy


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


class NoSteps:
    """A scorer of steps without steps."""

    def bind(self, ctx):
        return self

    def score_steps(self, *parts):
        return []


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

    def top_logprobs(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids [N, T, 2] and log-probs of the two most likely choices."""
        logprobs, ids = self.logits[batch["obs.state"]].detach().log_softmax(-1).topk(2)
        return ids, logprobs

    def span_advantages(self, batch: Batch, policy: nn.Module) -> torch.Tensor:
        """A number for every choice, whether it was chosen or not."""
        return self.value[batch["obs.state"]].detach()

    def forward(self, batch: Batch) -> PolicyOutput:
        state = batch["obs.state"]
        t = state.shape[1]
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
            "q_soft": self.logits.flip(0)[state],
            "v": self.value.flip(0)[state],
            "error": self.value[state].square(),
            "min_target_q": self.value.flip(0)[state],
            "q_logprobs": choices,
            "skill_reward": self.logits[state][..., 0],
            "temporal_errors": self.logits[state],
            "temporal_advantage": self.value.flip(0)[state],
            "reconstruction_error": self.logits[state][..., 2].square(),
            "reward_prediction": self.logits[state][..., 0],
            "continuation_logits": self.logits[state][..., 3],
            "information": self.value[state].square(),
            "returns": self.logits[state][..., 1],
            "reach": self.value.flip(0)[state].detach().sigmoid(),
            "slack": self.logits[state][..., 1],
            "log_ent_coef": self.value[:1],
            "log_multiplier": self.value[:1],
            "latent_kl": self.value[state[:, 0]].square(),  # of a row
            "router_probs": self.logits[state].softmax(-1).sum(1),  # [N, 4] of rows of T tokens
            "expert_counts": torch.nn.functional.one_hot(self.logits[state].argmax(-1), 4).sum(1).float(),
            "routed_lengths": torch.full((batch.rows,), float(state.shape[1])),
            "relative_logits": self.logits[state] - self.logits[state].amax(-1, keepdim=True),
            "base_values": self.value.flip(0)[state],
            "residual_values": self.value[state],
            "features": torch.stack([self.value[state[:, 0]], self.value[state[:, 1]].square()], 1),  # of a row
            "token_features": self.logits[state],  # [N, T, 4] of tokens
            "token_places": torch.tensor([1.0, t - 1.0]).expand(batch.rows, 2),
            "strength_logits": error,  # [N, T, 2, 4] of two strengths with four levels each
            "visual_loss": self.value[state[:, 1]].square(),  # of a row
            "visible_logits": self.value[state[:, 0]],  # of a row
            "cell_logits": self.logits[state[:, 0]],  # [N, 4] of a row
        }
        flipped = logprob_entropy(self.logits.flip(0)[state], batch["action"], batch["temperature"])
        others = {name: PolicyOutput(*flipped) for name in ("blind", "reward")}
        others["blind"].values = self.value.flip(0)[state[:, 0] if self.per_row else state]
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
    likely = torch.stack([torch.arange(t) % 4, torch.arange(1, t + 1) % 4], -1).expand(n, t, 2)
    real["min_p_probs"] = 0.3 * (real["token_rewards"] > 0).float()
    real["behavior_logprobs"] = -real["behavior_logprobs"].abs()
    real["imitation_weights"] = 0.5 * (real["token_rewards"] > 0).float()
    real["recorded_advantages"] = real["penalty_slope"].flip(0)
    real["previous_reward"] = real["penalty_slope"].flip(1)
    real["reach"] = real["penalty_slope"].sigmoid()
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
        observed=mask & (torch.arange(t) % 4 > 0),
        continues=(torch.arange(t) % 2).float().expand(n, t).clone(),
        key_tokens=mask & (torch.arange(t) % 3 == 0),
        clip_high=torch.linspace(0.2, 0.4, n),
        self_reward_weight=self_reward_mask.any(1) * torch.linspace(0.5, 1.5, n),
        self_reward=self_reward_mask.any(1) * torch.rand(n, generator=generator),
        temperature=torch.linspace(0.5, 1.5, n),
        group=torch.tensor([0, 0, 0, 8, 8, 8])[episode],
        prompt_id=torch.arange(len(episode)) // 2,
        prompt_length=torch.zeros(len(episode), dtype=torch.long),
        episode=episode,
        step=step,
        durations=1.0 + step,
        reward=torch.randn(n, generator=generator) + episode_reward * last,
        episode_reward=episode_reward,
        greedy_reward=torch.linspace(0, 1, n),
        is_first=step == 0,
        baseline_group=episode % 2,
        proposes=episode % 3 == 0,
        abstraction=episode % 2 - 1,
        perceived=torch.where(episode % 2 > 0, torch.tensor(0.4), torch.tensor(-1.0)),
        voter=episode % 2 - 1,
        role_baseline=0.1 * episode,
        segment=(torch.arange(t) // 2).expand(n, t).clone(),
        is_last=last,
        is_terminal=last & (episode % 2 == 0),
        bootstrap_value=torch.where(last & (episode % 2 == 1), 0.7, 0.0),
        is_demo=(episode == 2) | (episode == 5),
        policy_version=torch.zeros(n).long(),
        reference_point=torch.full((len(episode),), 0.3),
        preference=torch.tensor([0, 1, -1, 0, 0, 1, 0, 0, -1, 0, 0]).float(),
        preference_margin=torch.tensor([0, 0.3, 0.3, 0, 0, 0.7, 0, 0, 0.7, 0, 0]),
        preference_probability=torch.tensor([1, 0.9, 0.9, 1, 1, 0.6, 1, 1, 0.6, 1, 1]),
        labels=torch.linspace(0, 1, n)[:, None],
        checkpoint_choice=(torch.arange(n)[:, None] + torch.arange(t)) % 4,
        checkpoint_values=real["recorded_advantages"].flip(1),
        teacher_ids=likely,
        teacher_logprobs=torch.tensor([0.6, 0.3]).log().expand(n, t, 2),
        target_mask=torch.rand(n, 1, 4, 4, generator=generator) < 0.5,
        target_visible=episode % 2 == 0,
        target_centroid=torch.stack([torch.linspace(0, 1, n), torch.linspace(1, 0.3, n)], 1),
        strength_levels=(torch.arange(n * t * 2).view(n, t, 2) % 5 - 1).where(torch.arange(t)[:, None] % 2 == 0, -1),
        **real,
    )


def context(per_row: bool) -> Context:
    models = {"reference": Tabular(3, per_row), "teacher": Tabular(4, per_row)}
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
