"""Base class of VLA policies with one image: inputs, vision encoder, saving and loading."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from mmrl.core.types import Observation
from mmrl.files.atomic import restore_folder
from mmrl.files.pretrained import load_pretrained
from mmrl.files.strict_json import need_object, read_json_object
from mmrl.policies.base import Policy, require_inputs
from mmrl.policies.processor import Processor, check_chunk, read_image, read_proprio
from mmrl.policies.text.loading import checkpoint_error
from mmrl.policies.vla.small.instruction_tokenizer import WORDS, instruction_tokenizer
from mmrl.policies.vla.small.networks import SMALL_CONVNEXT, ContextTransformer, VisionEncoder
from mmrl.policies.vla.value import StateValue, image_text_state
from mmrl.policies.weights import fill, read_weights

_MOST_SPELT = 10_000  # instructions whose ids are kept
_REMEDY = "give a folder that save_pretrained wrote (policy.path)"

Reads = Literal["shared", "detached", "own"]


class ActionPolicy(Policy):
    """VLA policy from image, instruction and proprioception to a chunk of H x A numbers.

    Subclasses add `transformer` and a head.

    Args:
        vision: image backbone: name of a timm model that supports features_only, as convnext_atto, resnet18 and
            vit_tiny_patch16_224 do. It reads pixels in [-1, 1].
        vision_args: further arguments of timm.create_model, such as {pretrained: true, out_indices: [2]}; None gives
            the small encoder `SMALL_CONVNEXT`, whose entries are those of a ConvNeXt.
        visual_tokens: tokens that the image becomes; 0: the policy reads no image, only instruction and state.
        hidden_size: width of the transformer, and of the expert of a continuous head.
        layers: depth of the transformer that reads the context.
        heads: attention heads.
        intermediate_size: width of the transformer's gated MLP.
        action_dims: A, numbers per control step.
        chunk: H, control steps per decision.
        proprio_dims: length of the proprioception vector.
        words: words of instructions with a token of their own; other words are spelt character by character.
        freeze_vision: freeze the encoder, its pooling and the word embeddings; rows then store visual tokens instead of
            images, and learning does not run the encoder again.
        value_head: predict the return of the state, per row.
        critic: input of the value head: the encoded context ("shared", its gradient trains the transformer), the same
            without that gradient ("detached"), or image, instruction and proprioception by layers of its own ("own").
        processor: between the simulator or dataset and the network; None for the saved one, or for no change.
        path: folder written by save_pretrained; its architecture and words replace those given here.
        head: entries of the architecture that the subclass adds.
    """

    renamed_weights: ClassVar[Mapping[str, str]] = {"vision": "vision_encoder", "body": "transformer"}
    transformer: ContextTransformer

    def __init__(
        self,
        vision: str = "convnext_atto",
        vision_args: dict[str, Any] | None = None,
        visual_tokens: int = 8,
        hidden_size: int = 128,
        layers: int = 2,
        heads: int = 4,
        intermediate_size: int = 256,
        action_dims: int = 3,
        chunk: int = 5,
        proprio_dims: int = 13,
        words: Sequence[str] = WORDS,
        freeze_vision: bool = False,
        value_head: bool = False,
        critic: Reads = "shared",
        processor: Processor | None = None,
        path: str | None = None,
        head: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        saved = {} if path is None else self._read_config(path)
        vision_args = SMALL_CONVNEXT if vision_args is None else vision_args
        arguments: dict[str, Any] = {"vision": vision, "vision_args": vision_args}
        arguments |= {"visual_tokens": visual_tokens, "hidden_size": hidden_size, "layers": layers, "heads": heads}
        arguments |= {"intermediate_size": intermediate_size, "action_dims": action_dims, "chunk": chunk}
        architecture = saved.get("architecture", {**arguments, "proprio_dims": proprio_dims, **(head or {})})
        self.architecture: dict[str, Any] = architecture
        self.processor = Processor.resolve(processor, saved.get("processor"), f"policy.path={path}")
        self.tokenizer = instruction_tokenizer(words) if path is None else _read_tokenizer(path)
        self.path, self.freeze_vision, self.critic = path, freeze_vision, critic
        self.cached_inputs = frozenset({"image"}) if freeze_vision else frozenset()
        if freeze_vision and not architecture["visual_tokens"]:
            raise ValueError(
                "policy.freeze_vision=true needs an encoder, but policy.visual_tokens=0 has none: set it false"
            )
        self._spelt: dict[str, Tensor] = {}
        self._predicts_values = value_head
        self.action_dims, self.chunk = architecture["action_dims"], architecture["chunk"]
        self.proprio_dims = architecture["proprio_dims"]
        width = architecture["hidden_size"]
        tokens = architecture["visual_tokens"]
        self.vision_encoder = (
            VisionEncoder(architecture["vision"], architecture["vision_args"], width, width, tokens) if tokens else None
        )

    def _ready(self) -> None:
        """Add the value head, load weights and freeze modules, after the subclass has built its modules."""
        self.value_head = self._critic() if self._predicts_values else None
        if self.path is not None:
            self._load(Path(self.path))
        if self.freeze_vision and self.vision_encoder is not None:
            self.vision_encoder.requires_grad_(False)
            self.transformer.embed_tokens.requires_grad_(False)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        """Convert {"image" uint8 [H, W, 3], "proprio" [P], "instruction" str} to tensors; words become ids [L]."""
        raw = self.processor.encode(raw)
        require_inputs(raw, self._inputs(), self)
        text = str(raw["instruction"])
        if text not in self._spelt:
            if len(self._spelt) >= _MOST_SPELT:
                self._spelt.clear()
            ids = self.tokenizer(text)["input_ids"]
            self._spelt[text] = torch.tensor(ids or [self.tokenizer.unk_token_id])
        proprio = read_proprio(raw["proprio"], self.proprio_dims)
        encoded = {"instruction": self._spelt[text], "proprio": proprio}
        if self.vision_encoder is None:
            return encoded
        return {"image": read_image("image", raw["image"]), **encoded}

    def observation_names(self) -> tuple[str, ...]:
        return self.processor.names_before(self._inputs())

    def scaled_images(self) -> frozenset[str]:
        scaled = [name for name, step in self.processor.images.items() if step.size is not None]
        return frozenset(self.processor.names_before(scaled))

    def _inputs(self) -> tuple[str, ...]:
        """Return the names of the observations that the network reads."""
        return ("proprio", "instruction") if self.vision_encoder is None else ("image", "proprio", "instruction")

    @torch.no_grad()
    def cache_features(self, observation: Mapping[str, Any]) -> dict[str, Tensor]:
        return {"visual": self._look(observation)[0]} if self.freeze_vision else {}

    def contract(self) -> dict[str, Any]:
        """Return the processor and the shape of an action."""
        return {**self.processor.contract(), "action.chunk": self.chunk, "action.dims": self.action_dims}

    def save_pretrained(self, folder: str | Path) -> None:
        """Save config.json (architecture and processor), model.safetensors (weights) and tokenizer/."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "policy": type(self).__name__,
            "architecture": self.architecture,
            "processor": self.processor.to_dict(),
        }
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        save_file(
            {k: v.detach().contiguous().cpu() for k, v in self.state_dict().items()}, folder / "model.safetensors"
        )
        self.tokenizer.save_pretrained(folder / "tokenizer")

    def _load(self, folder: Path) -> None:
        path = folder / "model.safetensors"
        # only a value head may be missing or in excess; other differences contradict config.json
        fill(self, read_weights(path, _REMEDY), str(path), self.optional)

    def _look(self, observation: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Compute visual tokens [N, K, D] and map logits from the image; stored tokens are returned instead."""
        if "visual" in observation:
            return observation["visual"], None
        if self.vision_encoder is None:
            require_inputs(observation, ("instruction", "proprio"), self)
            width = self.architecture["hidden_size"]
            return self.transformer.embed_tokens.weight.new_zeros(len(observation["proprio"]), 0, width), None
        require_inputs(observation, ("image", "instruction"), self)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze_vision):
            present = self._present(observation)[..., None].float()
            words = self.transformer.embed_tokens(observation["instruction"]) * present
            return self.vision_encoder(observation["image"], words.sum(dim=1) / present.sum(dim=1))

    def _critic(self) -> StateValue:
        """Build the layers that predict the return from the input that `critic` selects."""
        width = self.architecture["hidden_size"]
        input_width = (self.architecture["visual_tokens"] + 1) * width + self.proprio_dims
        return StateValue(input_width if self.critic == "own" else width, width)

    def _values(self, summary: Tensor, visual: Tensor, observation: Mapping[str, Any]) -> Tensor | None:
        """Compute values [N], or None without a value head; `summary` [N, D] are features of the context."""
        if self.value_head is None:
            return None
        if self.critic == "own":
            words = self.transformer.embed_tokens(observation["instruction"]).detach()
            proprio = observation["proprio"]
            return self.value_head(image_text_state(visual.detach(), words, self._present(observation), proprio))
        return self.value_head(summary if self.critic == "shared" else summary.detach())

    def _present(self, observation: Mapping[str, Any]) -> Tensor:
        """Return the mask [N, L] of instruction tokens, False at padding."""
        return observation["instruction"] != self.tokenizer.pad_token_id

    def is_complete(self, observation: Mapping[str, Any]) -> bool:
        """Whether all instructions are known to be equally long, so that no mask is needed; checked only on a CPU."""
        require_inputs(observation, ("instruction", "proprio"), self)
        present = self._present(observation)
        return present.device.type == "cpu" and bool(present.all())

    def _encode_chunk(self, output: Any) -> Tensor:
        """Encode a demonstrated chunk as float32 [H, A], in the policy's units."""
        return torch.as_tensor(self.processor.encode_action(check_chunk(output, self.chunk, self.action_dims)))

    @classmethod
    def _read_config(cls, path: str) -> dict[str, Any]:
        file = restore_folder(path) / "config.json"
        if not file.is_file():
            raise FileNotFoundError(
                f"policy.path={path}: no config.json there; give a folder written by save_pretrained"
            )
        config = read_json_object(file, _REMEDY)
        if config.get("policy") != cls.__name__:
            raise ValueError(f"{file} is not of an {cls.__name__}; policy.path must name a folder that it saved")
        architecture = need_object(config.get("architecture"), f"{file}: architecture", _REMEDY)
        # the weights are in the folder
        vision = need_object(architecture.get("vision_args"), f"{file}: architecture.vision_args", _REMEDY)
        architecture["vision_args"] = {**vision, "pretrained": False}
        config["architecture"] = architecture
        return config


def _read_tokenizer(path: str) -> PreTrainedTokenizerFast:
    with checkpoint_error(path):
        return load_pretrained(PreTrainedTokenizerFast, Path(path) / "tokenizer")
