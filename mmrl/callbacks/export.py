"""Export a run's starting weights, its simulator's contract, and the trained policy."""

from __future__ import annotations

from pathlib import Path

import lightning as L

from mmrl.data.rollout_data import RolloutData
from mmrl.distributed.sharding import collect_weights
from mmrl.files.atomic import replace_folder
from mmrl.files.contract import ENVIRONMENT, differences, read_contract, warn, write_contract
from mmrl.runs.versions import environment


class Export(L.Callback):
    """Save the starting weights as checkpoints/start.ckpt and the trained policy in <run_dir>/policy.

    <run_dir>/contract.json has the simulator's contract; resuming under another contract is refused.
    <run_dir>/environment.json has the installed versions; a resumed run reports differences.

    Args:
        run_dir: folder of the run.
    """

    def __init__(self, run_dir: str):
        self.run_dir = Path(run_dir)

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        data = getattr(trainer, "datamodule", None)  # absent without a data module
        if not trainer.is_global_zero or not isinstance(data, RolloutData):
            return
        contract, before = data.task.contract(), read_contract(self.run_dir)
        if trainer.ckpt_path is not None and before is not None and (lines := differences(before, contract)):
            warn("The simulator is not the one of this run:", lines)
            raise ValueError(f"{self.run_dir} cannot be resumed, its simulator has changed: " + "; ".join(lines))
        was = read_contract(self.run_dir, ENVIRONMENT)
        if trainer.ckpt_path is not None and was is not None and (lines := differences(was, environment())):
            warn("This run goes on with other versions:", lines)
        write_contract(self.run_dir, contract)
        write_contract(self.run_dir, environment(), ENVIRONMENT)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch == 0:
            trainer.save_checkpoint(self.run_dir / "checkpoints" / "start.ckpt", weights_only=True)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        with collect_weights(pl_module.policy) as policy:
            if trainer.is_global_zero:
                with replace_folder(self.run_dir / "policy") as folder:
                    policy.save_pretrained(folder)
