"""B-Coder's losses: squared Bellman errors with the frozen checkpoint's next choice, and advantages of right programs.

B-Coder, 2023, section 4 and appendices G and H, arXiv:2310.03173.

- the checkpoint's choice and base value of each row: `CheckpointChoices`
- stage phi, y = r + gamma V(s'): `ValueBellman`
- stage theta, y = r + gamma Q(s', a*) with a* = argmax_b p_checkpoint(b given s'): `ConservativeBellman`
- |A(s*, a*)| on programs of humans: `AdvantageMagnitude`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from mmrl.annotators.logprobs import ForwardAnnotator, evaluate_rows, reference_of
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_fraction, check_positive
from mmrl.core.types import Context, PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.ops.soft_returns import next_inside, place_at_end

register_columns(
    {
        "checkpoint_choice": Column(
            "[N, T]", "ids", "B-Coder: the most likely token of the frozen checkpoint at each choice"
        ),
        "checkpoint_values": Column(
            "[N, T]", "reward", "B-Coder: base value of the frozen checkpoint before each choice, not squashed"
        ),
    }
)


def squash_value(
    logit: Tensor,  # [...]
    r_max: float,
) -> Tensor:  # [...], below r_max
    """V = R_max - log(1 + exp(-x)): R_max is the largest return, which no value reaches."""
    return r_max - softplus(-logit)


def dueling_q(
    relative: Tensor,  # [..., V], at most 0
    values: Tensor,  # [...]
    action: Tensor,  # [...] ids
    alpha: float,
) -> Tensor:  # [...]
    """Q(s, a) = alpha (l(s, a) - max_b l(s, b)) + V(s). Source: B-Coder, 2023, section 4, arXiv:2310.03173."""
    return alpha * relative.gather(-1, action[..., None]).squeeze(-1) + values


def recovered_rewards(
    q: Tensor,  # [N, T] of the choices
    values: Tensor,  # [N, T]
    mask: Tensor,  # [N, T] bool
    gamma: float,
) -> Tensor:  # [N, T], 0 outside the mask
    """r_t = Q(s_t, a_t) - gamma V(s_{t+1}), with the value 0 after the last choice; the paper ranks programs by their
    sum. Source: B-Coder, 2023, section 4, arXiv:2310.03173.
    """
    inside = zero_outside(values, mask)
    return zero_outside(q - gamma * next_inside(inside, mask), mask)


@dataclass(frozen=True)
class CheckpointChoices(ForwardAnnotator):
    """The frozen checkpoint's most likely token and base value of every state, from `model.reference`."""

    def writes(self) -> frozenset[str]:
        return frozenset({"checkpoint_choice", "checkpoint_values"})

    def models(self) -> frozenset[str]:
        return frozenset({"reference"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        reference = reference_of(ctx, "checkpoint_choices")

        def read(rows: Batch) -> Tensor:
            out = reference(rows)
            if "base_values" not in out.extra:
                raise ValueError(
                    "annotator checkpoint_choices: the reference has no base values; choose policy "
                    "mmrl.methods.offline.b_coder.policy.DuelingPolicy"
                )
            best = out.extra["relative_logits"].argmax(-1)
            return torch.stack([best.to(out.extra["base_values"].dtype), out.extra["base_values"]], dim=-1)

        choice, values = evaluate_rows(reference, batch, read, self.rows, ctx.device).unbind(-1)
        return batch.with_columns(checkpoint_choice=choice.long(), checkpoint_values=values)


@dataclass(frozen=True)
class ValueBellman(Term):
    """(y - Q)^2 of each choice with y = r + gamma V(s') and V the base value: stage phi, in which logits are frozen.

    The largest advantage is 0, so that V(s') = max_b Q(s', b), the next Q of the checkpoint's own choice. The reward of
    a row is earned by its last choice, after which the value is 0. Targets have no gradient.

    Args:
        gamma: discount per choice.
        alpha: reward per unit of the logits.
        r_max: bound of the values.
    """

    gamma: float = 0.999
    alpha: float = 1.0
    r_max: float = 1.0

    def __post_init__(self) -> None:
        check_fraction(type(self).__name__, gamma=self.gamma)
        check_positive(type(self).__name__, alpha=self.alpha)

    def reads(self) -> frozenset[str]:
        return frozenset({"action", "action_mask", "episode_reward"})

    def needs(self) -> frozenset[str]:
        return frozenset({"relative_logits", "base_values"})

    def predict_values(self, out: PolicyOutput, batch: Batch) -> Tensor:
        """V [N, T]."""
        return squash_value(out.extra["base_values"], self.r_max)

    def backup(self, out: PolicyOutput, batch: Batch, values: Tensor) -> Tensor:
        """What a target takes of each state s', [N, T]."""
        return values

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        values = self.predict_values(out, batch)
        q = dueling_q(out.extra["relative_logits"], values, batch["action"], self.alpha)
        later = next_inside(zero_outside(self.backup(out, batch, values), mask), mask)
        target = place_at_end(batch["episode_reward"].to(q.dtype), mask) + self.gamma * later
        return zero_outside(target.detach() - q, mask).square()

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        return {"v": zero_outside(self.predict_values(out, batch).detach(), batch["action_mask"])}


@dataclass(frozen=True)
class ConservativeBellman(ValueBellman):
    """(y - Q)^2 of each choice, y = r + gamma Q(s', a*), a* the frozen checkpoint's most likely token: stage theta.

    V is the checkpoint's base value plus the residual value. Source: B-Coder, 2023, conservative Bellman operator,
    arXiv:2310.03173.

    Args:
        conservative: False takes max_b Q(s', b) in place of the checkpoint's choice, the ordinary Bellman target.
    """

    conservative: bool = True

    def reads(self) -> frozenset[str]:
        return super().reads() | {"checkpoint_values"} | ({"checkpoint_choice"} if self.conservative else set())

    def needs(self) -> frozenset[str]:
        return frozenset({"relative_logits", "residual_values"})

    def predict_values(self, out: PolicyOutput, batch: Batch) -> Tensor:
        base = zero_outside(batch["checkpoint_values"], batch["action_mask"])
        return squash_value(base + out.extra["residual_values"], self.r_max)

    def backup(self, out: PolicyOutput, batch: Batch, values: Tensor) -> Tensor:
        if not self.conservative:
            return values  # the largest advantage is 0
        return dueling_q(out.extra["relative_logits"], values, batch["checkpoint_choice"], self.alpha)


@dataclass(frozen=True)
class AdvantageMagnitude(Term):
    """|A(s, a)| = alpha (max_b l(s, b) - l(s, a)) of each choice: that of a human's program should be the best one.

    Args:
        alpha: reward per unit of the logits.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_positive("AdvantageMagnitude", alpha=self.alpha)

    def reads(self) -> frozenset[str]:
        return frozenset({"action", "action_mask"})

    def needs(self) -> frozenset[str]:
        return frozenset({"relative_logits"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        relative = out.extra["relative_logits"]
        return -zero_outside(
            dueling_q(relative, relative.new_zeros(()), batch["action"], self.alpha), batch["action_mask"]
        )
