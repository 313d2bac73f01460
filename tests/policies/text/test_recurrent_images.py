"""GRPO teaches a vision-language hybrid with random weights to answer by what a picture shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Episode, Prompt, Task
from scripts.model_sweep.checkpoints import build_checkpoint

REWARD = "rollout/reward"


@dataclass(frozen=True)
class Shades(Task):
    """Write digits under a bright picture and others under a dark one.

    `digits` is the share of five characters that are right, `exact` whether all are. Half of the pictures are bright,
    so their sum is at most 1 for a policy that does not look: 1/2 of either.
    """

    split: str = "train"
    name = "shades"

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Prompt:
        noise = np.random.default_rng(index).integers(0, 40, (32, 32, 3))
        picture = (noise + 215 * (index % 2)).astype(np.uint8)
        content = [{"type": "image"}, {"type": "text", "text": "?"}]
        return Prompt(f"shades/{self.split}/{index}", ({"role": "user", "content": content},), (picture,), index % 2)

    def on(self, split: str) -> Shades:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        digits = sum(character.isdigit() for character in episode.output[:5])
        share = (digits if episode.prompt.answer else len(episode.output[:5]) - digits) / 5
        return {"digits": share, "exact": float(share == 1)}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen3_5") / "start"
    build_checkpoint("qwen3_5", "image", folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_grpo_teaches_random_weights_of_qwen3_5_to_look(seed, checkpoint, tmp_path):
    """Settings were chosen with seeds 101 and 102."""
    words = ("recipe=grpo", "policy=vlm", f"policy.path={checkpoint}", f"seed={seed}")
    words += ("data.task._target_=tests.policies.text.test_recurrent_images.Shades", "sampling.max_tokens=5")
    words += ("data.reward.weights={digits: 1.0, exact: 1.0}",)
    words += ("data.num_prompts=8", "data.num_minibatches=2", "optimizer.lr=3e-3", "trainer.max_epochs=30")
    words += ("trainer.check_val_every_n_epoch=30", "trainer.logger=false", "trainer.callbacks.progress=null")
    words += ("trainer.accelerator=cpu",)
    cli, rewards = CLI(to_lightning(compose([*words, f"run_dir='{tmp_path}'"]))), []
    note = LambdaCallback(on_train_epoch_end=lambda trainer, _: rewards.append(trainer.callback_metrics[REWARD]))
    cli.trainer.callbacks.append(note)
    cli.fit()
    first, last = torch.stack(rewards[:3]).mean(), torch.stack(rewards[-3:]).mean()
    assert first < 0.9 and last > 1.2
