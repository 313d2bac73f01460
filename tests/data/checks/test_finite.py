"""Numbers that are not finite stop a run before they reach a checkpoint or an export."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from mmrl.__main__ import main
from mmrl.annotators.group_advantage import GroupAdvantage
from mmrl.core.batch import Batch
from mmrl.core.types import Episode, Prompt
from mmrl.data.checks.finite import NonFiniteError, check_columns, check_weights
from mmrl.objectives.policy import PolicyGradient
from mmrl.rewards.base import Reward
from mmrl.rewards.scoring import score
from tests.tiny_recipes import Counting, words

HERE = "tests.data.checks.test_finite"


@dataclass(frozen=True)
class InfiniteTerm(PolicyGradient):
    """A loss that overflows."""

    def __call__(self, out, batch):
        return super().__call__(out, batch) + float("inf")


class BackwardNan(torch.autograd.Function):
    """The identity, with a gradient that is NaN."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("nan")


@dataclass(frozen=True)
class NanGradient(PolicyGradient):
    """A finite loss with a gradient that is NaN."""

    def __call__(self, out, batch):
        return BackwardNan.apply(super().__call__(out, batch))


@dataclass(frozen=True)
class NanAdvantage(GroupAdvantage):
    """An annotator that divides nothing by nothing in one row."""

    def __call__(self, batch, ctx):
        result = super().__call__(batch, ctx)["advantages"].clone()
        result[1] = float("nan")
        return batch.with_columns(advantages=result)


class Poison(torch.optim.AdamW):
    """Writes NaN into a weight in its last step of the second iteration."""

    taken = 0

    def step(self, closure=None):
        loss = super().step(closure)
        self.taken += 1
        if self.taken == 4:
            self.param_groups[0]["params"][0].data.view(-1)[0] = float("nan")
        return loss


TERM = "objective.terms.nan={_target_: " + HERE
CASES = {  # words, and what the message names
    "loss": ((TERM + ".InfiniteTerm}",), ("iteration 0", "term 'nan' of the loss is inf", "start.ckpt")),
    "gradient": ((TERM + ".NanGradient}",), ("iteration 0", "the gradient of 'policy.", "start.ckpt")),
    "column": (
        (f"data.annotators.group_advantage._target_={HERE}.NanAdvantage",),
        ("iteration 0", "column 'advantages', written by annotator 'group_advantage'", "nan in row 1"),
    ),
    "weight": (
        (f"model.optimizer._target_={HERE}.Poison",),
        ("iteration 1", "parameter 'policy.", "last.ckpt"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_stops_there_and_exports_nothing(case, tmp_path, capfd):
    more, named = CASES[case]
    assert main(["fit", *words(tmp_path, "data.evaluation=null", "trainer.max_epochs=3", *more)]) == 1
    reported = capfd.readouterr().err
    assert all(name in reported for name in named) and "Traceback" not in reported, reported
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4)])
def test_columns_are_checked_at_choices_and_not_at_padding(shape):
    trainer = SimpleNamespace(current_epoch=3, callbacks=[], checkpoint_callbacks=[])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    column = torch.zeros(shape)
    column[~mask] = float("nan")
    check_columns(Batch(action_mask=mask, means=column), ["means"], "the rollout", trainer)
    column[1, 0] = float("nan")
    with pytest.raises(NonFiniteError, match=r"iteration 3: column 'means', written by the rollout, is nan in row 1"):
        check_columns(Batch(action_mask=mask, means=column), ["means"], "the rollout", trainer)


@pytest.mark.parametrize("values", [[float("nan")], [float("inf")], [float("inf"), -float("inf")]])
def test_weights_that_are_not_finite_are_named_and_counted(values):
    trainer = SimpleNamespace(current_epoch=3, callbacks=[], checkpoint_callbacks=[])
    weights = {name: torch.nn.Parameter(torch.full((2, 8), value)) for name, value in (("low", -1e38), ("high", 1.0))}
    check_weights(weights.items(), trainer)
    weights["high"].data.view(-1)[: len(values)] = torch.tensor(values)
    with pytest.raises(NonFiniteError, match=rf"parameter 'high' has {len(values)} of 16 numbers"):
        check_weights(weights.items(), trainer)


class NanReward(Reward):
    """Pays NaN for every second problem."""

    def __call__(self, group):
        return [float("nan") if episode.prompt.index % 2 else 1.0 for episode in group]


class ShortReward(Reward):
    """Forgets the last episode."""

    def __call__(self, group):
        return [1.0] * (len(group) - 1)


@dataclass(frozen=True)
class InfiniteScore(Counting):
    """A verifier that divides by nothing."""

    def score(self, episode):
        return {"digits": float("inf")}


@dataclass(frozen=True)
class OneScore(Counting):
    """A verifier that is content with everything."""

    def score(self, episode):
        return {"digits": 1.0}


def episodes() -> list[Episode]:
    return [Episode(Prompt(f"counting/train/{index}"), index, 0) for index in (0, 1)]


def test_rewards_and_scores_that_are_no_numbers_name_the_problem_and_the_part():
    with pytest.raises(ValueError, match=r"NanReward.*counting/train/1.* nan"):
        score(episodes(), OneScore(), NanReward())
    with pytest.raises(ValueError, match=r"ShortReward.*gave 0 rewards to the 1 episodes of 'counting/train/0'"):
        score(episodes(), OneScore(), ShortReward())
    with pytest.raises(ValueError, match=r"'counting' scored 'counting/train/0' digits=inf"):
        score(episodes(), InfiniteScore(), NanReward())
