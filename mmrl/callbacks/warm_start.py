"""Warm start: train a policy's initial weights in earlier stages, each a run of its own."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L

from mmrl.callbacks.progress import STAGE
from mmrl.distributed import parallel
from mmrl.distributed.first_process import has_weights
from mmrl.experiments.content import hash_content
from mmrl.files.atomic import replace_file
from mmrl.files.weight_names import current_names
from mmrl.policies.processor import refuse_other
from mmrl.policies.weights import check_fits, checkpoint_weights
from mmrl.runs import child_process
from mmrl.runs.checkpoint_file import read_weights

log = logging.getLogger(__name__)


class WarmStart(L.Callback):
    """Run stages one after the other and load the last one's weights into the policy before training.

    A stage is the arguments of an `mmrl fit` command. It runs in a process of its own, in <run_dir>/start/<name>, and
    starts with the weights of the stage before it. A policy that was loaded from a path skips the stages unless
    `pretrained` is set, and a run that resumes skips stages and checkpoint. A stage with the name of one of
    `model.frozen_models`, such as teacher, trains that model in the same way, by itself. Where the environment variable
    MMRL_STARTS names a folder, the checkpoints of stages are cached there, and stages with the same arguments, seed
    included, are loaded instead of run again.

    Args:
        run_dir: folder of the run.
        stages: arguments of each stage, in order.
        common: arguments that all stages share, such as the task and the policy.
        checkpoint: start with these weights, also where the policy was loaded from a path; with stages that run, the
            first of them does.
        frozen_only: load only the weights that this run does not train, and initialise the others at random: a network
            that is certain of the answers to an earlier task learns a new one more slowly than a fresh one.
        pretrained: run the stages for a policy that was loaded from a path, too: the first one starts from its weights.
    """

    def __init__(
        self,
        run_dir: str,
        stages: dict[str, list[str]] | None = None,
        common: list[str] | None = None,
        checkpoint: str | None = None,
        frozen_only: bool = False,
        pretrained: bool = False,
    ):
        self.run_dir, self.stages, self.common, self.checkpoint = Path(run_dir), stages or {}, common or [], checkpoint
        self.frozen_only, self.pretrained = frozen_only, pretrained
        self.trust = False  # whether the checkpoint may hold pickled objects; the command line says so

    @classmethod
    def stage_arguments(cls, options: Mapping[str, Any], loaded: bool) -> dict[str, list[str]]:
        """The arguments of each stage that will run, the common ones included.

        Args:
            options: arguments of the callback.
            loaded: whether the policy is loaded from a path.
        """
        if loaded and not options.get("pretrained"):
            return {}
        common = list(options.get("common") or ())
        return {name: [*_select_common(common, words), *words] for name, words in (options.get("stages") or {}).items()}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage != "fit" or trainer.ckpt_path is not None:
            return
        frozen = getattr(pl_module, "frozen_models", frozenset())
        policy_stages = {name: words for name, words in self.stages.items() if name not in frozen}
        for name in sorted(frozen & set(self.stages)):
            self._train(trainer, pl_module.models[name], {name: self.stages[name]}, None)
        self._train(trainer, pl_module.policy, policy_stages, self.checkpoint)

    def _train(self, trainer: L.Trainer, model: Any, stages: dict[str, list[str]], checkpoint: str | None) -> None:
        """Run these stages, which a loaded model skips without `pretrained`, and load the last one's weights."""
        skips = getattr(model, "path", None) is not None and not self.pretrained
        for name, words in {} if skips else stages.items():
            folder = self.run_dir / "start" / name
            if trainer.is_global_zero:
                self._run(name, words, folder, checkpoint)
            checkpoint = str(folder / "checkpoints" / "last.ckpt")
        parallel.barrier(trainer, "start")
        if checkpoint is not None and has_weights(model):  # otherwise they come from the first process
            load_policy(model, checkpoint, self.frozen_only, self.trust)

    def _run(self, name: str, words: list[str], folder: Path, checkpoint: str | None) -> None:
        cache = _find_cached([*self.common, *words], checkpoint)
        last = folder / "checkpoints" / "last.ckpt"
        if cache is not None and cache.exists():
            log.info("warm-start stage %r: taken from %s", name, cache)
            _copy(cache, last)
            return
        # the stage is part of this run, so it may replace what an earlier start left in its folder
        command = [*_select_common(self.common, words), *words, f"run_dir={folder}", "overwrite=true"]
        if checkpoint is not None:
            command.append(f"trainer.callbacks.warm_start.checkpoint={checkpoint}")
        if self.trust:
            command.append("trust=true")
        log.info("warm-start stage %r: mmrl fit %s", name, " ".join(command))
        log.warning(
            "warm start: %s runs first, in %s, with an epoch count and batches of its own; "
            "trainer.callbacks.warm_start.stages=null leaves it out",
            name,
            folder,
        )
        environment = {**{k: v for k, v in os.environ.items() if k not in _LAUNCHED}, STAGE: name}
        child_process.run([sys.executable, "-m", "mmrl", "fit", *command], environment)
        if cache is not None:
            _copy(last, cache)


def _copy(source: Path, target: Path) -> None:
    """Copy a file atomically, because another run may read it."""
    with source.open("rb") as read, replace_file(target, f"{os.getpid()}.part") as write:
        shutil.copyfileobj(read, write)


def _select_common(common: list[str], words: list[str]) -> list[str]:
    """Return the common arguments without the config groups that the stage sets: each can be given once."""
    keys = {word.partition("=")[0] for word in words}
    return [word for word in common if "." in word.partition("=")[0] or word.partition("=")[0] not in keys]


def _find_cached(words: list[str], checkpoint: str | None) -> Path | None:
    """Return the cached checkpoint of a stage with these arguments and starting weights; None if there is none."""
    folder = os.environ.get("MMRL_STARTS")
    if not folder:
        return None
    before = hashlib.sha256(Path(checkpoint).read_bytes()).hexdigest() if checkpoint else ""
    key = hashlib.sha256(repr([hash_content(words), words, before]).encode()).hexdigest()[:24]
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"{key}.ckpt"


_LAUNCHED = {"WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK"}


def load_policy(policy: Any, checkpoint: str, frozen_only: bool = False, trust: bool = False) -> None:
    """Load a checkpoint's weights into the policy; optional parts that it lacks, such as a value head, are kept.

    Args:
        policy: the policy to change.
        checkpoint: the file.
        frozen_only: load only the weights that the policy does not train.
        trust: whether pickled objects in the file may be loaded.
    """
    saved = read_weights(checkpoint, trust)
    weights = current_names(policy, checkpoint_weights(saved, str(checkpoint)))
    refuse_other(saved.get("policy_contract"), policy.contract(), str(checkpoint))
    exclusions = {name for name, part in policy.named_parameters() if frozen_only and part.requires_grad}
    if frozen_only and not any(not part.requires_grad for part in policy.parameters()):
        raise ValueError(
            "trainer.callbacks.warm_start.frozen_only=true: this run's policy trains all its weights; freeze a part"
        )
    source = {name: tensor for name, tensor in weights.items() if name not in exclusions}
    target = {name: tensor for name, tensor in policy.state_dict().items() if name not in exclusions}
    check_fits(target, source, str(checkpoint), may_lack=policy.optional)
    policy.load_state_dict(source, strict=False)
