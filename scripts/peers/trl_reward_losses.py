"""Compare losses of reward models with TRL's RewardTrainer: python scripts/peers/trl_reward_losses.py [BATCHES].

As scripts/peers/trl_losses.py: one row a loss, with both numbers and the largest differences of loss and gradient.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl import RewardConfig, RewardTrainer
from trl_losses import Result, backward, main, options

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch

_CENTERED = (
    "+objective.terms.centered={_target_: mmrl.objectives.scores.centered.CenteredScores}",
    "+objective.coefficients={centered: 0.01}",
)
CASES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "reward": ([], {}),
    "reward, margins": (["objective.terms.preference.margins=true"], {}),
    "reward, centred": ([*_CENTERED], {"center_rewards_coefficient": 0.01}),
    "reward, both": (
        [*_CENTERED, "objective.terms.preference.margins=true"],
        {"center_rewards_coefficient": 0.01},
    ),
}


def compare_reward(words: list[str], theirs: dict[str, Any], folder: str, seed: int) -> tuple[Result, Result]:
    """TRL's result and ours of one reward loss on four random pairs."""
    quiet = ("trainer.logger=false", "trainer.callbacks=null", "trainer.accelerator=cpu", f"run_dir='{folder}'")
    rows = [{"prompt": str(n), "chosen": "2", "rejected": "3", "margin": 1.0} for n in range(20)]  # not trained on
    file = Path(folder) / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cli = CLI(to_lightning(compose(["recipe=bradley_terry", f"task.path='{file}'", *words, *quiet])))
    learner, policy = cli.model, cli.model.policy
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    ids = [torch.randint(5, 60, (int(length),), generator=generator) for length in range(4, 12)]
    margins = torch.rand(4, generator=generator)
    pairs = Dataset.from_list([{"prompt": "1", "chosen": "2", "rejected": "3"}] * 8)
    args = options(RewardConfig, folder, **theirs)
    model = copy.deepcopy(policy.model)
    trainer = RewardTrainer(model=model, args=args, train_dataset=pairs, processing_class=policy.tokenizer)
    inputs = dict(policy.collate([{"input_ids": row} for row in ids]))  # chosen rows first
    if "objective.terms.preference.margins=true" in words:
        inputs["margin"] = margins
    result = backward(trainer.compute_loss(trainer.model, inputs), trainer.model)
    return result, backward(_loss(learner, cli.datamodule.weighting, ids, margins), policy.model)


def _loss(learner: Any, weighting: Any, ids: list[Tensor], margins: Tensor) -> Tensor:
    """Our loss of the same rows."""
    rows = len(ids)
    observation = learner.policy.collate([{"input_ids": row} for row in ids])
    batch = Batch(
        {f"obs.{name}": column for name, column in observation.items()},
        action=torch.zeros(rows, 1, dtype=torch.long),
        action_mask=torch.ones(rows, 1, dtype=torch.bool),
        group=torch.arange(rows) % (rows // 2),
        episode=torch.arange(rows),
        preference=torch.tensor([1.0] * (rows // 2) + [-1.0] * (rows // 2)),
        preference_margin=margins.repeat(2),
    )
    batch = batch.with_columns(loss_weights=weighting(batch, lambda number: number))
    return learner.objective(learner.outputs(batch), batch)[0]


def compare(seed: int = 0) -> dict[str, tuple[Result, Result]]:
    """TRL's result and ours of every loss of reward models on one random batch."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: compare_reward(*case, folder, seed) for name, case in CASES.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches", nargs="?", type=int, default=1, metavar="BATCHES", help="random batches")
    main(parser.parse_args().batches, compare)
