"""What the learner holds between its steps."""

import lightning as L

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from tests.tiny_recipes import QUIET, TEXT

HERE = "tests.learners.test_learner"


class GradientWatcher(L.Callback):
    """Records whether a parameter has a gradient: before every micro-batch, and after its backward pass."""

    def __init__(self):
        self.before: list[bool] = []
        self.after: list[bool] = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.before.append(any(p.grad is not None for p in pl_module.parameters()))

    def on_after_backward(self, trainer, pl_module):
        self.after.append(any(p.grad is not None for p in pl_module.parameters()))


def test_gradients_are_freed_after_each_step(tmp_path):
    """Between the micro-batches of a minibatch they are accumulated, else nothing is held."""
    words = [*TEXT, *QUIET, "capture=false", "trainer.max_epochs=2", "trainer.accumulate_grad_batches=2"]
    watcher = f"trainer.callbacks.watcher={{_target_: {HERE}.GradientWatcher}}"
    cli = CLI(to_lightning(compose([*words, watcher, f"run_dir={tmp_path}"])))
    cli.fit()
    [seen] = [each for each in cli.trainer.callbacks if isinstance(each, GradientWatcher)]
    assert seen.before == [False, True] * 4 and seen.after == [True] * 8
