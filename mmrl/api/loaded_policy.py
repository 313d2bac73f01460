"""A run's trained policy, ready to act on observations and to answer questions."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from jsonargparse import ArgumentError, ArgumentParser
from PIL import Image

from mmrl.api.environments import SingleEnv
from mmrl.api.memory import add_memory, split_memory
from mmrl.api.run import Run
from mmrl.callbacks.warm_start import load_policy as load_weights
from mmrl.commands.evaluation.arguments import find_checkpoint
from mmrl.commands.evaluation.data import check_contract
from mmrl.config.code.slots import check_slots
from mmrl.config.code.trust import check_named_code
from mmrl.config.errors.parser import format_parser_error
from mmrl.config.signatures import import_class
from mmrl.config.yaml_files import check_yaml
from mmrl.core.errors import ConfigError
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Request, Sampling, Task, Video
from mmrl.engines.local import LocalEngine
from mmrl.media.images import open_image
from mmrl.media.reading import FrameSampling, open_video, read_video
from mmrl.policies.base import Policy
from mmrl.rollouts.env.memory import MemorySim
from mmrl.runs.checkpoint_file import CheckpointError


def load_policy(
    run: Run | str | Path,
    checkpoint: str | Path = "last",
    decode: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    trust: bool = False,
) -> LoadedPolicy:
    """Build the policy of a run's config.yaml and give it the weights of a checkpoint; nothing else is built.

    Args:
        run: or its folder.
        checkpoint: last, start, or a file.
        decode: how it chooses: one of the run's evaluation (`greedy`), or sample, argmax (temperature 0) or mean. None
            for the first one of the run's evaluation, which is deterministic in all recipes but pass@k; without an
            evaluation, sample.
        seed: of the draws of decode=sample.
        device: of the weights, as torch names it.
        trust: also load pickled objects from the checkpoint, and run code of other folders that config.yaml names;
            their author can run any code.

    Raises:
        ConfigError: the run or the checkpoint cannot be used, or the policy does not have the decode.
    """
    run = run if isinstance(run, Run) else Run(Path(run))
    check_named_code(check_yaml(run.folder / "config.yaml"), run.folder / "config.yaml", trust)
    config = yaml.safe_load((run.folder / "config.yaml").read_text())
    policy = build_part(Policy, config["model"]["init_args"]["policy"], "policy")
    path = find_checkpoint(run.folder, str(checkpoint))
    try:
        load_weights(policy, str(path), trust=trust)
    except (CheckpointError, ValueError, RuntimeError) as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    data = config["data"]["init_args"]
    sampling = _sampling(data, decode)
    try:
        policy.check_sampling(sampling)
    except ValueError as error:
        raise ConfigError(f"decode={decode}: {error}") from error
    return LoadedPolicy(run, policy.to(device).eval(), sampling, seed, data["task"])


def build_part(kind: type, spec: Mapping[str, Any], name: str) -> Any:
    """Build a part of a configuration, {class_path, init_args}, by the typed parser."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(kind, name, fail_untyped=False, required=True)
    try:
        parsed = parser.parse_object({name: spec})
        check_slots(parsed.as_dict(), {name: kind})
        return parser.instantiate_classes(parsed)[name]
    except ConfigError:
        raise
    except (ArgumentError, ValueError) as error:  # jsonargparse repeats what a constructor raised in a ValueError
        raise ConfigError(format_parser_error(str(error))) from error


def _sampling(data: Mapping[str, Any], decode: str | None) -> Sampling:
    training = Sampling(**data["sampling"])
    evaluation = (data.get("evaluation") or {}).get("init_args") or {}
    decodes = {name: Sampling(**values) for name, values in (evaluation.get("sampling") or {}).items()}
    if decode is None:
        return next(iter(decodes.values()), training)
    if decode not in ("sample", "argmax", "mean") and decode not in decodes:
        raise ConfigError(f"decode={decode}: must be sample, argmax, mean or one of the run's {sorted(decodes)}")
    return decodes[decode] if decode in decodes else replace(training, decode=decode)  # type: ignore[arg-type]


class LoadedPolicy:
    """A policy with its weights: `act` on observations of a simulator, `generate` text; inputs and outputs are numpy.

    The policy's own processor converts observations and actions, its own decoding samples them.

    Args:
        run: that it was trained in.
        policy: with its weights.
        sampling: how it chooses.
        seed: of the draws; call number k draws from (seed, k) alone.
        task: {class_path, init_args} of the run's task, for `make_env`.
    """

    def __init__(self, run: Run, policy: Policy, sampling: Sampling, seed: int, task: Mapping[str, Any]):
        self.run, self.policy, self.sampling, self.seed, self._task = run, policy, sampling, seed, task
        self._engine = LocalEngine()
        self._engine.sync(policy, 0)
        self._calls = 0

    @cached_property
    def task(self) -> Task:
        """The run's task on its held-out split; its simulator must be the one of the training (contract.json)."""
        task = build_part(Task, copy.deepcopy(self._task), "task")
        check_contract(self.run.folder, task.contract())
        return task.on("held_out")

    @property
    def acts(self) -> bool:
        """Whether the run's task is one of actions: it has a simulator, or recorded episodes that state their size."""
        return "sim" in (self._task.get("init_args") or {}) or hasattr(import_class(self._task["class_path"]), "sizes")

    def make_env(self) -> SingleEnv:
        """One environment of the run's simulator, by gymnasium's interface: reset(seed=...), step(policy.act(...))."""
        sim = getattr(self.task, "sim", None)
        if sim is None:
            raise ConfigError(f"{self.run.folder}: task {self.task.name!r} has no simulator; use generate(...)")
        dims = getattr(self.policy, "memory_dims", 0)
        return SingleEnv(MemorySim(sim, dims) if dims else sim)

    def act(self, observation: Any) -> Any:
        """The action for one observation, in the environment's units.

        Args:
            observation: as `make_env` gives it: an array (a state), or a mapping of the images, vectors and texts that
                the policy's processor names. `predict` takes those of a gymnasium environment itself.

        Returns:
            float array [A]; [H, A] of a policy with chunks of H control steps; an int where actions are numbered.
        """
        try:
            output = self._sample([_raw(observation)], self.sampling)[0].output
        except ValueError as error:
            raise ValueError(
                f"{error}; act(observation) reads those of make_env(), predict(observation) those of gymnasium.make"
            ) from error
        return np.asarray(output) if np.ndim(output) else output

    def predict(self, observation: Any, action_masks: Any = None, state: Any = None) -> tuple[Any, Any]:
        """The action for one observation of the environment as gymnasium.make gives it, as in Stable-Baselines3.

        `act` reads the observations of `make_env`, where discrete ones are one-hot, dicts are joined and masks are part
        of them; here the environment's own spaces count on both sides.

        Args:
            observation: in the environment's observation space.
            action_masks: legal actions, where the environment's mask is in `info` or its method `action_masks()`.
            state: of a policy with a memory: what the last call returned; None at the start of an episode.

        Returns:
            The action in the environment's action space, and the state for the next call: None without a memory.

        Raises:
            ConfigError: the run's simulator is no environment of gymnasium.
            ValueError: the observation or the mask is none of the environment's.
        """
        view = self._outer_view
        read = add_memory(self.policy, _raw(view.read(observation, action_masks)), state)
        action, state = split_memory(self.policy, self.act(read))
        return view.decode(action), state

    @cached_property
    def _outer_view(self) -> Any:
        sim = getattr(self.task, "sim", None)
        if not getattr(sim, "reads_spaces", False):
            raise ConfigError(
                f"{self.run.folder}: predict(...) is for environments of gymnasium (sim=gym); act(...) reads those of "
                "make_env(), generate(...) answers questions"
            )
        return sim.outer_view()

    def act_batch(self, observation: Any) -> np.ndarray:
        """The actions [n, ...] for the observations of a vector environment with n environments."""
        rows = observation if isinstance(observation, Mapping) else {"state": observation}
        count = len(next(iter(rows.values())))
        raws = [{name: values[i] for name, values in rows.items()} for i in range(count)]
        return np.stack([np.asarray(completion.output) for completion in self._sample(raws, self.sampling)])

    def generate(
        self, question: str | Sequence[Mapping[str, Any]], images: Sequence[Any] = (), n: int | None = None,
        max_tokens: int | None = None, temperature: float | None = None, videos: Sequence[Any] = (),
        regex: str | None = None, json_schema: Mapping[str, Any] | str | None = None,
    ) -> Any:  # fmt: skip
        """Answer a question in text.

        Args:
            question: the user's message, or a conversation of {"role", "content"}.
            images: of a vision-language policy: paths, PIL images or uint8 [H, W, 3], before the text.
            n: number of completions; None for one, as a str.
            max_tokens: of a completion; None as in the run.
            temperature: 0 for greedy decoding; None as in `sampling`.
            videos: of a policy whose processor takes them: `mmrl.core.types.Video`s, or paths of files, of which eight
                frames are read; after the images.
            regex, json_schema: expression that a completion matches when it ends before its limit (guided decoding);
                None for both as in `sampling`.

        Returns:
            The completion, or a list of n.
        """
        sampling = self.sampling if max_tokens is None else replace(self.sampling, max_tokens=max_tokens)
        if temperature == 0:
            sampling = replace(sampling, decode="argmax")
        elif temperature is not None:
            sampling = replace(sampling, decode="sample", temperature=temperature)
        if regex is not None or json_schema is not None:
            sampling = replace(sampling, regex=regex, json_schema=json_schema)  # type: ignore[arg-type]
            self.policy.check_sampling(sampling)
        media = [{"type": "image"}] * len(images) + [{"type": "video"}] * len(videos)
        content: Any = [*media, {"type": "text", "text": question}] if media else question
        messages = ({"role": "user", "content": content},) if isinstance(question, str) else tuple(question)
        raw: dict[str, Any] = {"messages": messages, "images": tuple(_pixels(image) for image in images)}
        raw |= {"videos": tuple(map(_video, videos))} if videos else {}
        outputs = [completion.output for completion in self._sample([raw] * (n or 1), sampling)]
        return outputs[0] if n is None else outputs

    def _sample(self, raws: Sequence[Mapping[str, Any]], sampling: Sampling) -> list[Completion]:
        seeds = [derive_seed("act", self.seed, self._calls, i) for i in range(len(raws))]
        self._calls += 1
        with torch.no_grad():
            return self._engine.sample([Request(raw, seed) for raw, seed in zip(raws, seeds)], sampling)


def _raw(observation: Any) -> Mapping[str, Any]:
    return observation if isinstance(observation, Mapping) else {"state": observation}


def _pixels(image: Any) -> np.ndarray:
    if isinstance(image, str | Path):
        with open_image(Path(image)) as opened:
            return np.array(opened.convert("RGB"))
    return np.array(image.convert("RGB")) if isinstance(image, Image.Image) else np.asarray(image)


def _video(video: Any) -> Video:
    if isinstance(video, Video):
        return video
    with open_video(Path(video), "videos") as path:
        return read_video(path, FrameSampling())
