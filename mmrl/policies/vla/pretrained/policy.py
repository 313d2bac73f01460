"""Inputs and files of VLA policies whose network is a pretrained vision-language model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mmrl.core.rng import Noise
from mmrl.core.types import Observation, Sampling
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.processor import Processor, check_chunk
from mmrl.policies.text.loading import checkpoint_error, merge_lora
from mmrl.policies.vla.pretrained.inputs import collate_inputs, encode_inputs
from mmrl.policies.vla.pretrained.loading import EXTRA, OWN, add_lora_to_open, freeze, resolve_processor
from mmrl.policies.vla.pretrained.reading import PretrainedReading
from mmrl.policies.weights import fill, read_weights


class PretrainedVLA(Policy):
    """A VLA whose reading computes inputs as the checkpoint's own processor does.

    `heads` names modules of this project beside the pretrained model; they have a file of their own in an export.
    """

    scales_images = True
    heads: tuple[str, ...] = ()
    path: str
    reading: PretrainedReading
    network: Any  # calls the pretrained model
    model: Any  # the pretrained model, with adapters
    cameras: tuple[str, ...]
    action_dims: int
    chunk: int
    proprio_dims: int  # 0 where the model reads no proprioception
    critic: str  # whether the value head trains the model too ("shared") or not ("detached")
    value_head: nn.Module | None
    processor: Processor

    def _load(self, reader: str | None, dtype: str, attention: str) -> tuple[Any, Any]:
        """Load the checkpoint: network and reading. Arguments as of the subclass."""
        raise NotImplementedError

    def _resolve(self, given: Processor | None) -> Processor:
        """Return the given processor, or what the checkpoint says."""
        return resolve_processor(Path(self.path) / OWN, self.reading, given)

    def _build(
        self,
        reader: str | None,
        dtype: str,
        attention: str,
        processor: Processor | None,
        gradient_checkpointing: bool,
        freeze_vision: bool,
        lora: dict[str, Any] | None,
    ) -> None:
        """Load the checkpoint, resolve its units, freeze what is not trained and add adapters."""
        with checkpoint_error(self.path):
            self.network, self.reading = self._load(reader, dtype, attention)
        self.processor = self._resolve(processor)
        dims = len(self.processor.action.mask)
        if dims not in (0, self.action_dims):
            raise ValueError(
                f"policy.action_dims={self.action_dims}, but the statistics of policy.path={self.path} are of {dims}: "
                "take those of a robot with as many, or set policy.processor"
            )
        if gradient_checkpointing:
            self.network.enable_gradient_checkpointing()
        frozen = [*self.network.unused, *(self.network.vision if freeze_vision else ())]
        self.model = add_lora_to_open(freeze(self.network.model, frozen), lora, self.network.whole)

    def observation_names(self) -> tuple[str, ...]:
        return self.processor.names_before(self._inputs)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        """Convert {camera uint8 [H, W, 3], "proprio" [P], "instruction"} to images [cameras, H, W, 3] and ids [L]."""
        raw = self.processor.encode(raw)
        require_inputs(raw, self._inputs, self)
        return encode_inputs(raw, self.cameras, self.proprio_dims, self.reading)

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor]:
        """Collate rows; shorter instructions are padded at the end."""
        return collate_inputs(observations, self.reading.pad_id)

    def save_pretrained(self, folder: str | Path) -> None:
        """Save model and inputs in the checkpoint's format, adapters merged, with mmrl's heads and policy.processor."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._save_model(merge_lora(self.model), folder)
        self.reading.save(folder, self.processor, self.proprio_dims, self.action_dims)
        heads = {
            f"{name}.{key}": value.detach().contiguous().cpu()
            for name in self.heads
            if getattr(self, name) is not None
            for key, value in getattr(self, name).state_dict().items()
        }
        if heads:
            save_file(heads, folder / EXTRA)
        metadata = {"class": type(self).__name__, "processor": self.processor.to_dict()}
        (folder / OWN).write_text(json.dumps(metadata, indent=2) + "\n")

    def _save_model(self, model: Any, folder: Path) -> None:
        """Save the pretrained model, adapters merged, in the checkpoint's format."""
        type(self.network).save(model, folder)

    def contract(self) -> dict[str, Any]:
        """Return the processor, the cameras, and the shape of an action."""
        sizes = {"action.chunk": self.chunk, "action.dims": self.action_dims}
        return {**self.processor.contract(), "cameras": list(self.cameras), **sizes}

    @property
    def _inputs(self) -> tuple[str, ...]:
        return (*self.cameras, *(("proprio",) if self.proprio_dims else ()), "instruction")

    def _prepare(self, observation: Mapping[str, Any]) -> dict[str, Tensor]:
        """Compute the network's inputs from a collated observation."""
        names = ("images", "input_ids", "attention_mask", *(("proprio",) if self.proprio_dims else ()))
        require_inputs(observation, names, self)
        inputs = {name: observation[name] for name in ("input_ids", "attention_mask")}
        inputs["pixel_values"] = self.reading.pixels(observation["images"]).to(self.network.dtype)
        return inputs | ({"proprio": observation["proprio"].float()} if self.proprio_dims else {})

    def _scale_demonstration(self, output: Any) -> Tensor:
        """Return a demonstrated chunk [H, A] in the network's units."""
        return torch.as_tensor(self.processor.encode_action(check_chunk(output, self.chunk, self.action_dims)))

    def _load_heads(self) -> None:
        """Load the heads that an export has."""
        file = Path(self.path) / EXTRA
        saved = read_weights(file, "save the policy there again") if file.is_file() else {}
        for name in self.heads:
            head: nn.Module | None = getattr(self, name)
            part = {key.removeprefix(f"{name}."): value for key, value in saved.items() if key.startswith(f"{name}.")}
            if part and head is not None:
                fill(head, part, f"{file}: {name}")

    def _values(self, state: Tensor) -> Tensor | None:
        """Compute values [N] from features [N, width]; None without a value head."""
        if self.value_head is None:
            return None
        return self.value_head((state if self.critic == "shared" else state.detach()).float())

    def _context_values(self, hidden: Tensor, mask: Tensor, proprio: Tensor) -> Tensor | None:
        """Compute values [N] from the mean of the context's features [N, L, width] and proprioception [N, P]."""
        return None if self.value_head is None else self._mean_values(mean_features(hidden, mask), proprio)

    def _mean_values(self, mean: Tensor | None, proprio: Tensor) -> Tensor | None:
        """Compute values [N] from the mean [N, width] of the context's features and proprioception [N, P]."""
        return None if mean is None else self._values(torch.cat([mean.float(), proprio.float()], dim=-1))


class PretrainedTokenVLA(PretrainedVLA):
    """A pretrained VLA whose choices are tokens; subclasses sample them in `act_groups`."""

    heads = ("value_head",)

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values"} if init_args.get("value_head") else ())

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"choice_logprobs"}) | cls.provides(init_args)

    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        owner = torch.arange(len(noise), device=self.device)
        return self.act_groups(observation, owner, sampling, noise)


def mean_features(hidden: Tensor, mask: Tensor) -> Tensor:
    """Compute the mean [N, width] of the features [N, L, width] of real tokens; mask [N, L] is nonzero there."""
    return (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
