"""Export a run's starting weights, its simulator's contract, and the trained policy."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import lightning as L
import torch

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
        adapters: also save the adapters of a policy with `lora` alone, in <run_dir>/adapters as peft reads them.
    """

    def __init__(self, run_dir: str, adapters: bool = False):
        self.run_dir, self.adapters = Path(run_dir), adapters

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if self.adapters and require_adapters(pl_module.policy).device.type != "meta":
            with tempfile.TemporaryDirectory() as folder:  # what peft would read otherwise is refused before training
                save_adapters(pl_module.policy, Path(folder))

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
                if self.adapters:
                    with replace_folder(self.run_dir / "adapters") as folder:
                        save_adapters(policy, folder)


def require_adapters(policy: Any) -> Any:
    """Return a policy's model with adapters.

    Raises:
        ValueError: it has none that peft saves.
    """
    model = getattr(policy, "model", None)
    if not hasattr(model, "peft_config"):
        raise ValueError(
            "trainer.callbacks.export.adapters=true saves low-rank adapters, and the policy has none: give it "
            "policy.lora.r=16, or leave it out"
        )
    return model


def save_adapters(policy: Any, folder: Path) -> None:
    """Save the adapters of a policy without their base, whose name or folder they say.

    Raises:
        ValueError: peft would read others from the files.
    """
    model = require_adapters(policy)
    if policy.path is not None:
        for config in model.peft_config.values():
            config.base_model_name_or_path = str(policy.path)
    model.save_pretrained(folder, save_embedding_layers=False)
    if wrong := _list_misread(model, folder):
        raise ValueError(
            f"trainer.callbacks.export.adapters=true: peft does not read {len(wrong)} adapters of "
            f"{model.config.model_type} as it wrote them, the first of them {wrong[0]}; leave it out: policy/ has them "
            "merged"
        )


@torch.no_grad()
def _list_misread(model: Any, folder: Path) -> list[str]:
    """List the trained weights of a model that peft reads otherwise from a folder of adapters."""
    from peft.utils import load_peft_weights, set_peft_model_state_dict

    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    before = {name: weight.clone() for name, weight in weights.items()}
    try:
        for weight in weights.values():
            weight.fill_(torch.nan)
        set_peft_model_state_dict(model, load_peft_weights(str(folder), device="cpu"))
        return [name for name, weight in weights.items() if not torch.equal(weight, before[name])]
    finally:
        for name, weight in weights.items():
            weight.copy_(before[name])
