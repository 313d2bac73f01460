"""Mixed precision is Lightning's, and sampling, annotation and learning all run in it."""

import lightning as L
import pytest
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.distributed import parallel
from mmrl.policies.text.policy import TextPolicy
from tests.tiny_recipes import words


class Typed(TextPolicy):
    """Remembers in which dtype its logits came, and whether gradients were wanted."""

    seen: set[tuple[torch.dtype, bool]] = set()

    def _mask_forbidden(self, logits):
        type(self).seen.add((logits.dtype, torch.is_grad_enabled()))
        return super()._mask_forbidden(logits)


class Scored(L.Callback):
    """Scores every micro-batch just before it is trained on."""

    def __init__(self):
        self.pairs = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        with torch.no_grad(), parallel.precision(trainer):
            self.pairs.append((batch, pl_module.policy(batch).logprobs))


def micro_batches(folder, precision):
    """The micro-batches of an iteration that changes nothing, and the policy's log-probs of them."""
    chosen = words(folder, "trainer.max_epochs=1", "model.policy._target_=tests.learners.test_precision.Typed")
    annotators = ("data.pipeline=[old, reference, group_advantage]", "model.reference=true")
    cli = CLI(to_lightning(compose([*chosen, *annotators, "optimizer.lr=0.0", f"trainer.precision={precision}"])))
    cli.trainer.callbacks.append(scored := Scored())
    Typed.seen.clear()
    cli.fit()
    return scored.pairs


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_ratio_starts_at_one(precision, tmp_path):
    """fp32: as close as arithmetic allows. bf16 keeps 8 bits, so a logit of 1 is off by up to 2^-8 = 0.004; a cache
    and other paddings round differently, but the learner's own log-probs come from the same rows.
    """
    wanted = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16}[precision]
    tolerance = {"32-true": 1e-4, "bf16-mixed": 0.02}[precision]
    batches = micro_batches(tmp_path, precision)
    assert {dtype for dtype, _ in Typed.seen} == {wanted}
    assert {grad for _, grad in Typed.seen} == {True, False}
    for batch, logprobs in batches:
        mask = batch["action_mask"]
        for column in ("behavior_logprobs", "old_logprobs", "ref_logprobs"):
            assert batch[column].dtype == torch.float32
            assert (logprobs - batch[column])[mask].abs().max() < tolerance
        assert batch["advantages"].dtype == batch["loss_weights"].dtype == torch.float32
