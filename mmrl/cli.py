"""The typed front door: parses, checks the wiring, builds, and runs with Lightning."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentError, Namespace
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from mmrl.config import ConfigError
from mmrl.refusal import raised_on_purpose, readable
from mmrl.wiring import check_wiring

# the words are ours to read; they stay in sys.argv, because further processes are started with the same command
warnings.filterwarnings("ignore", message="LightningCLI's args parameter is intended")
warnings.filterwarnings("ignore", message="Total length of `list` across ranks is zero")  # data.evaluation=null
warnings.filterwarnings("ignore", message=".isinstance.treespec, LeafSpec.. is deprecated")  # inside Lightning


class SavedConfig(SaveConfigCallback):
    """Writes the fully resolved configuration into the run folder; `mmrl fit --config` takes it as it is."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit" or not trainer.is_global_zero:
            return
        folder = Path(self.config.run_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self.parser.save(self.config, folder / "config.yaml", skip_none=False, overwrite=True, multifile=False)


class CLI(LightningCLI):
    """LightningCLI over any learner and data module.

    Args:
        args: command-line words, or the nested dictionary that `mmrl.config.typed` makes.
        build: False parses and checks only; no model is made.
    """

    def __init__(self, args: Sequence[str] | dict[str, Any], build: bool = True):
        self._build = build
        try:
            super().__init__(
                LightningModule,
                LightningDataModule,
                subclass_mode_model=True,
                subclass_mode_data=True,
                run=False,
                save_config_callback=SavedConfig,
                seed_everything_default=0,
                args=args if isinstance(args, dict) else list(args),
                parser_kwargs={"exit_on_error": False},
            )
        except ArgumentError as error:
            raise ConfigError(readable(str(error))) from error

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--recipe", type=str | None, default=None, help="name of the recipe, for messages")
        parser.add_argument("--run_dir", type=str, default="runs/run", help="folder of this run")
        parser.add_argument("--ckpt_path", type=str | None, default=None, help="checkpoint to resume from")

    def before_instantiate_classes(self) -> None:
        config = self.config.as_dict() if isinstance(self.config, Namespace) else self.config
        check_wiring(config["model"], config["data"], config.get("recipe"))

    def instantiate_classes(self) -> None:
        if not self._build:
            self.before_instantiate_classes()
            return
        try:
            super().instantiate_classes()
        except ValueError as error:  # jsonargparse wraps what a constructor raised
            cause = error.__cause__ or error.__context__
            if cause is None or not raised_on_purpose(cause):
                raise
            raise ConfigError(str(cause)) from cause
        except MisconfigurationException as error:  # what Lightning finds wrong with the trainer's words
            raise ConfigError(f"trainer: {error} (trainer.callbacks.NAME=null takes a callback out)") from error

    def resolved(self) -> str:
        """The whole configuration as YAML."""
        return self.parser.dump(self.config, skip_none=False)

    def fit(self) -> None:
        """Train, from the start or from ckpt_path."""
        path = self.config.ckpt_path
        if path is not None:
            check_checkpoint(path)
        self.trainer.fit(self.model, self.datamodule, ckpt_path=path, weights_only=False if path else None)


def check_checkpoint(path: str) -> None:
    """Refuse a checkpoint that is not there or cannot be read, by name."""
    if not os.path.exists(path):
        raise ConfigError(f"ckpt_path={path}: no such file; give a .ckpt file of a run's checkpoints folder")
    if os.path.isdir(path):  # a sharded checkpoint
        return
    try:
        torch.load(path, map_location="cpu", weights_only=False, mmap=zipfile.is_zipfile(path))
    except Exception as error:
        raise ConfigError(f"ckpt_path={path}: not a readable checkpoint ({type(error).__name__}: {error})") from error


def load_run(config: str | Path, words: Sequence[str] = ()) -> CLI:
    """The parts of a run, built again from its resolved configuration; `load_policy` gives them a checkpoint's weights.

    Args:
        config: the run's config.yaml.
        words: LightningCLI words that change the configuration.
    """
    config = Path(config)
    if not config.exists():
        raise ConfigError(f"{config}: no such file; is this the folder of a run?")
    return CLI(["--config", str(config), "--trainer.logger=false", "--trainer.callbacks=null", *words])
