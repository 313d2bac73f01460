"""The command line of `mmrl fit`: parse, check the wiring, build, and run with Lightning."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, Namespace, set_dumper, set_parsing_settings
from lightning.fabric.plugins.io import CheckpointIO
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback

from mmrl.callbacks.warm_start import WarmStart
from mmrl.commands.project import enter_project
from mmrl.config.code.packages import check_packages
from mmrl.config.code.slots import check_empty_names, check_slots
from mmrl.config.code.trust import check_named_code
from mmrl.config.dry_calls.answers import check_answers
from mmrl.config.dry_calls.data import check_data, check_row_columns
from mmrl.config.dry_calls.logged_rewards import check_logged_rewards
from mmrl.config.dry_calls.parser import DataFirstParser
from mmrl.config.dry_calls.processor import build_configured, check_processor
from mmrl.config.dry_calls.stages import check_stages
from mmrl.config.errors.parser import check_empty, format_parser_error
from mmrl.config.errors.part import explain_error, explain_fit_error, place_of
from mmrl.config.part_checks import check_decodes, check_division, check_parts, check_settings, check_trainable
from mmrl.config.paths import move_outputs, resolve_inputs
from mmrl.config.preflight import check_config, check_numbers, check_seed
from mmrl.config.renamed import check_argument_names
from mmrl.config.signatures import pass_nulls, pass_workers
from mmrl.config.strategy_checks import check_strategy_options
from mmrl.config.thread_checks import check_threads
from mmrl.config.wiring import check_wiring, find_row_readers
from mmrl.config.yaml_files import check_yaml, list_given
from mmrl.core.errors import ConfigError, is_user_error
from mmrl.distributed import parallel
from mmrl.distributed.first_process import build_without_weights, is_first_process
from mmrl.distributed.fsdp2 import is_fsdp2
from mmrl.files.atomic import replace_path
from mmrl.loggers.base import ContinuedLogger
from mmrl.policies.base import Policy
from mmrl.policies.processor import Processor
from mmrl.runs.checkpoint_io import CheckpointFiles
from mmrl.runs.resumable import check_resumable

set_parsing_settings(instantiate_subclass_spec_in_any=False)  # a {class_path: ...} in plain values is not built
# the parser writes every part by itself: PyYAML in Python is ten times slower than libyaml
_DUMPER, _LOADER = getattr(yaml, "CSafeDumper", yaml.SafeDumper), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
set_dumper("yaml", lambda part: yaml.dump(part, None, _DUMPER, allow_unicode=True, sort_keys=False))

# this CLI parses its own arguments; they stay in sys.argv, because further processes are started with the same command
warnings.filterwarnings("ignore", message=r"Found \d+ module\(s\) in eval mode")  # dropout is removed from checkpoints
warnings.filterwarnings("ignore", message=r"Checkpoint directory .* exists and is not empty")  # a resumed run's
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
        options = {"skip_none": False, "skip_validation": True, "overwrite": True, "multifile": False}  # it was parsed
        with replace_path(folder / "config.yaml") as file:
            self.parser.save(self.config, file, **options)
        for logger in trainer.loggers:
            logger.log_hyperparams(yaml.load((folder / "config.yaml").read_text(), _LOADER))


class CLI(LightningCLI):
    """LightningCLI over any learner and data module.

    Args:
        args: command-line arguments, or the nested dictionary that `mmrl.config.compose.to_lightning` makes.
        build: False parses and checks only; no model is made.
        trains: False builds no optimiser, for a run that is measured.
        check: refuses a data module before a model is built: check(data, reward) with a reward like the data's, whose
            state no run reads; `check_data` tries that reward and the task once.
    """

    def __init__(
        self,
        args: Sequence[str] | dict[str, Any],
        build: bool = True,
        trains: bool = True,
        check: Callable[..., Any] = check_data,
    ):
        self._build, self._trains, self._check = build, trains, check
        self.checkpoints = CheckpointFiles()
        self._failed: tuple[Any, dict[str, Any], Exception] | None = None  # the first part that could not be built
        self._whole = False  # whether all parts are built
        self._processor: Processor | None = None  # that the configuration states for the policy
        self._receives = False  # whether the weights of policies come from the first process
        if isinstance(args, dict):
            check_seed("seed", args.get("seed_everything"))
            check_strategy_options(args.get("trainer"))
            check_numbers(args)  # before the parser, which needs longer
            check_empty_names(args)
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
                parser_class=DataFirstParser,
                parser_kwargs={"exit_on_error": False},
            )
        except ArgumentError as error:
            raise ConfigError(format_parser_error(str(error))) from error

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--recipe", type=str | None, default=None, help="name of the recipe, for messages")
        parser.add_argument("--method", type=str | None, default=None, help="name of the method, for the model card")
        parser.add_argument("--run_dir", type=str, default="runs/run", help="folder of this run")
        parser.add_argument("--project", type=str | None, default=None, help="folder of the run's own modules")
        parser.add_argument("--ckpt_path", type=str | None, default=None, help="checkpoint to resume from")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        arguments = copy.deepcopy(args)  # the parser changes a nested dictionary
        for each in list_given(arguments):
            check_packages({name: each.get(name) for name in ("model", "data")})
        super().parse_arguments(parser, args)
        for each in list_given(arguments):
            check_empty(each, self.config)
        check_slots(self._plain(), {"trainer": None, "model": LightningModule, "data": LightningDataModule})
        check_packages(self._plain())
        check_config(self._plain())
        for root in ("model", "data"):
            resolve_inputs(self.config.get(root), self.config.run_dir)

    def _plain(self) -> dict[str, Any]:
        return self.config.as_dict() if isinstance(self.config, Namespace) else self.config

    def before_instantiate_classes(self) -> None:
        config = self._plain()
        reward = check_parts(config["model"], config["data"], self._trains)
        check_settings(config["model"])
        check_wiring(config["model"], config["data"], config.get("recipe"))
        check_threads(config["trainer"], config["model"], config["data"])
        check_division(config["model"], config["trainer"])
        self._processor = build_configured(config["model"])
        self.parser.add_instantiator(self._part, object)
        if is_first_process():
            self.parser.check = partial(self._check_data, reward=reward)  # type: ignore[attr-defined]
        self._receives = not is_first_process() and is_fsdp2(config["trainer"]["strategy"])

    def _check_data(self, data: Any, reward: Any) -> None:
        scores = self._check(data, reward=reward)
        if self._trains:
            config = self._plain()
            check_stages(config)
            check_answers(data, reward, config, scores)
            check_logged_rewards(data)
            check_row_columns(data, find_row_readers(config["model"], config["data"]))
        check_processor(self._processor, data)

    def _dump_config(self) -> None:
        """Give the parts their hyperparameters, as Lightning does, without validating what has just been parsed."""
        if not hasattr(self, "config_dump"):
            options = {"skip_link_targets": False, "skip_none": False, "skip_validation": True}
            self.config_dump = yaml.load(self.parser.dump(self.config, **options, format="yaml"), _LOADER)

    def _part(self, class_type: Any, *args: Any, **kwargs: Any) -> Any:
        """Build one part; what it raises is remembered, because the parser wraps it in texts of its own."""
        try:
            if self._receives and issubclass(class_type, Policy):
                return build_without_weights(class_type, kwargs)
            return class_type(*args, **kwargs)
        except Exception as error:
            if self._whole:  # an optimiser, which waited for its parameters
                raise self._explain_error(class_type, kwargs, error) from error
            self._failed = self._failed or (class_type, kwargs, error)
            raise

    def _explain_error(self, class_type: Any, arguments: dict[str, Any], error: Exception) -> ConfigError:
        path = f"{class_type.__module__}.{class_type.__qualname__}"
        return explain_error(error, place_of(self._plain(), path, arguments) or class_type.__name__, path, arguments)

    def instantiate_classes(self) -> None:
        if not self._build:
            return
        try:
            super().instantiate_classes()
        except ConfigError:
            raise
        except Exception as error:  # jsonargparse wraps what a constructor raised
            if self._failed is not None:
                raise self._explain_error(*self._failed) from self._failed[2]
            cause = error if is_user_error(error) else error.__cause__ or error
            raise explain_error(cause, "model or data", type(cause).__name__) from cause
        self._whole = True
        processor = getattr(getattr(self.model, "policy", None), "processor", None)
        if self._processor is None and self.parser.check is not None:  # type: ignore[attr-defined]  # of a checkpoint
            check_processor(processor, self.datamodule)

    def to_yaml(self) -> str:
        """The whole configuration as YAML."""
        return self.parser.dump(self.config, skip_none=False)

    def build(self) -> None:
        """Make the parts, where the constructor only parsed and checked."""
        self._build = True
        self.instantiate_classes()

    def move_outputs(self, run_dirs: Sequence[str]) -> None:
        """Let everything that a configuration file writes below its own run folder go below this run's.

        Args:
            run_dirs: run folders that the files name.
        """
        for old in run_dirs:
            move_outputs(self.config.get("trainer"), old.rstrip("/"), self.config.run_dir)
            move_outputs(self.config.get("data"), old.rstrip("/"), self.config.run_dir)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Lightning's Trainer, which saves and loads checkpoints by `CheckpointFiles`."""
        value = self.config_init["trainer"].get("plugins") or []
        plugins = list(value) if isinstance(value, (list, tuple)) else [value]
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            plugins.append(self.checkpoints)
        try:
            return super().instantiate_trainer(plugins=plugins, **kwargs)
        except ConfigError:
            raise
        except Exception as error:  # what Lightning finds wrong with the trainer's arguments
            text = " ".join(str(error).split())
            raise ConfigError(f"trainer: {text} (trainer.callbacks.NAME=null takes a callback out)") from error

    def fit(self, trust: bool = False) -> None:
        """Train, from the start or from ckpt_path.

        Args:
            trust: also load pickled objects from ckpt_path and warm_start.checkpoint; their author can run any code.
        """
        check_trainable(getattr(self.model, "policy", None))
        path = self.config.ckpt_path
        self.checkpoints.trust = trust
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, WarmStart):
                callback.trust = trust
        if path is not None:
            check_resumable(path, trust, parallel.shards(self.trainer))
        check_decodes(getattr(self.model, "policy", None), self.datamodule)
        if path is not None:
            for logger in self.trainer.loggers:
                if isinstance(logger, ContinuedLogger):
                    logger.continue_run()
        try:
            self.trainer.fit(self.model, self.datamodule, ckpt_path=path, weights_only=not trust if path else None)
        except Exception as error:
            if (message := explain_fit_error(error, path)) is None:
                raise
            raise ConfigError(message) from error


def enter_project_of(config: Path, trust: bool = False) -> dict[str, Any]:
    """Check a run's config.yaml; with `trust`, Python finds the modules of the folder that the run was started in."""
    content = check_yaml(config)
    check_named_code(content, config, trust)
    if trust and isinstance(folder := content.get("project"), str) and Path(folder).is_dir():
        enter_project(Path(folder))
    return content


def load_run(
    config: str | Path,
    arguments: Sequence[str] = (),
    loggers: bool = False,
    trust: bool = False,
    check: Callable[..., Any] = check_data,
) -> CLI:
    """The parts of a run, built again from its resolved configuration; `load_policy` gives them a checkpoint's weights.

    Args:
        config: the run's config.yaml.
        arguments: LightningCLI arguments that change the configuration.
        loggers: build the loggers of the run too.
        trust: whether code that the configuration names may be run, see `check_named_code`.
        check: see `CLI`.
    """
    config = Path(config)
    read = enter_project_of(config, trust)
    check_argument_names(read, arguments)
    arguments = pass_nulls(read, pass_workers(read, arguments))
    none = [] if loggers else ["--trainer.logger=false"]
    return CLI(["--config", str(config), *none, "--trainer.callbacks=null", *arguments], trains=False, check=check)
