"""A start ends while the policy is weak, not while it gives one answer to all problems; an early end is said."""

import re
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from mmrl.__main__ import main
from mmrl.callbacks.progress import STAGE
from mmrl.callbacks.weak_start import WeakStart
from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.task_baselines import measure_baselines, score_commonest_answer
from mmrl.rollouts.text.single_turn import SingleTurn
from tests.tiny_recipes import Counting, words


@dataclass(frozen=True)
class YesNo(Counting):
    """Seven of ten answers are "n", as in a dataset of questions most of which are answered with no."""

    common: int = 7

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        return Prompt(prompt.key, prompt.messages, answer=self.demonstrate(index))

    def demonstrate(self, index: int) -> str:
        return "n" if index % 10 < self.common else str(index % 10)

    def score(self, episode: Episode) -> dict[str, float]:
        return {"exact": float(episode.output == episode.prompt.answer)}


def start(folder, *more: str) -> int:
    chosen = [
        "start=sums",
        f"data.task._target_={__name__}.YesNo",
        "data.reward.weights={exact: 1.0}",
        "data.num_prompts=40",
        "data.group_size=1",
        "data.evaluation.count=20",
        "trainer.max_epochs=6",
        "data.num_minibatches=8",
        "data.sampling.max_tokens=2",
        "optimizer.lr=1e-2",
        *more,
    ]
    return main(["fit", *words(folder, *chosen)])


def test_a_policy_that_gives_one_answer_to_all_problems_is_no_start(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(STAGE, "sft")
    assert start(tmp_path) == 0
    assert "ended after" not in capsys.readouterr().out  # the rate is that of the commonest answer, above 35 %
    assert start(tmp_path, "overwrite=true", "trainer.callbacks.stop.stopping_threshold=0.35") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "ended after" in line]
    reason = r"Stopping threshold reached: val/greedy/exact/mean = 0.[67]\d* > 0.35."
    assert re.fullmatch(rf"sft: ended after [12345] of 6 iterations: {reason}", line)


@pytest.mark.parametrize(
    "mean, lower, common, stops",
    [
        (0.36, 0.31, 2, True),  # as tasks whose commonest answer solves little
        (0.34, 0.30, 2, False),
        (0.36, 0.19, 2, False),  # not known to be better than the commonest answer
        (0.70, 0.55, 7, False),
        (0.80, 0.71, 7, True),
        (0.99, 0.90, 9, False),
    ],
)
def test_the_rate_has_to_be_above_that_of_the_commonest_answer(mean, lower, common, stops, tmp_path):
    held_out = HeldOut(SingleTurn(), {}, {"exact": SuccessRate()}, count=40, split="train")
    data = SimpleNamespace(task=YesNo(common=common), evaluation=held_out)
    callback = WeakStart("val/greedy/exact/mean")
    metrics = {"val/greedy/exact/mean": torch.tensor(mean), "val/greedy/exact/lower": torch.tensor(lower)}
    callback._trainer = SimpleNamespace(callback_metrics=metrics, datamodule=data)
    assert callback._evaluate_stopping_criteria(torch.tensor(mean))[0] == stops


def test_the_commonest_answer_has_the_floor_of_the_stored_baselines():
    task = YesNo(common=7)
    held_out = task.on("held_out")
    scores = score_commonest_answer(held_out, [held_out[index] for index in range(40)])
    assert scores == measure_baselines(task, 40).majority == {"exact": 0.7}


def test_a_share_outside_of_0_and_1_is_refused():
    with pytest.raises(ValueError, match="share must be in"):
        WeakStart("val/greedy/exact/mean", share=35)
