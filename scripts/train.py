"""Train through Hydra, one run or many: python scripts/train.py --multirun recipe=grpo seed=0,1,2.

Words are those of `mmrl fit`. Each job of a sweep writes to <run_dir>/<number>, by default below runs/sweep/<time>.
"""

from __future__ import annotations

import os
import sys

import hydra
from omegaconf import DictConfig, OmegaConf

from mmrl.commands.sweep import job_folder, to_fit_arguments, to_train_overrides
from mmrl.config.compose import CONF, finish, to_lightning
from mmrl.errors import ConfigError

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def main(cfg: DictConfig) -> None:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from mmrl.commands.cli import CLI
    from mmrl.commands.fit import train
    from mmrl.runs.signals import stop_request

    about = HydraConfig.get()
    many = about.mode == RunMode.MULTIRUN
    cfg.run_dir = job_folder(cfg.run_dir, about.sweep.dir if many else None, about.job.num if many else None)
    choices = OmegaConf.to_container(about.runtime.choices)
    with stop_request() as request:
        cli = CLI(to_lightning(finish(cfg, choices, to_fit_arguments(about.overrides.task))), build=False)  # type: ignore[arg-type]
        train(cli, request)


if __name__ == "__main__":
    try:
        sys.argv[1:] = to_train_overrides(sys.argv[1:])
        main()
    except ConfigError as error:
        sys.exit(f"train: {error}")
