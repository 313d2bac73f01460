"""A vision-language-action policy whose actions are tokens: every action dimension is one of a few hundred bins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from mmrl.batch import Batch
from mmrl.policies.action_bins import bin_centres, choice_logprobs, draw_bins, entropy_nats, to_bins
from mmrl.policies.action_transformer import ActionTransformer
from mmrl.policies.base import Action, Policy, need
from mmrl.policies.instruction_tokenizer import WORDS, instruction_tokenizer
from mmrl.policies.processor import Processor
from mmrl.policies.vision_encoder import SMALL_CONVNEXT, VisionEncoder
from mmrl.rng import Noise
from mmrl.types import Observation, PolicyOutput, Sampling


class ActionTokenPolicy(Policy):
    """Image, instruction and proprioception in; a chunk of binned actions out, in one forward pass.

    The causal transformer reads [visual tokens, words, proprioception, one query per control step]. The query of step
    h gives A x B logits, so the T = H * A choices of a decision (step after step, dimension after dimension) are
    independent given the context. Choice t is bin b of B equal intervals of [-1, 1].
    Source: Kim et al., "OpenVLA", arXiv 2406.09246, section 3.2 (bins); Kim et al., arXiv 2502.19645, section 4.1
    (parallel decoding of a chunk). Differs: bins have equal width, decoded at their centres, and an own output head
    instead of reused text tokens.

    Args:
        vision: timm model that supports features_only.
        vision_args: further arguments of timm.create_model; None gives the small encoder `SMALL_CONVNEXT`.
        visual_tokens: tokens that the image becomes.
        hidden_size: width of the transformer.
        layers: depth of the transformer.
        heads: attention heads.
        intermediate_size: width of the transformer's gated MLP.
        action_dims: A, numbers per control step.
        chunk: H, control steps per decision.
        bins: B, intervals per number.
        proprio_dims: length of the proprioception vector.
        words: that are one token each; others are spelt.
        freeze_vision: the encoder, its pooling and the word embeddings stay fixed; visual tokens are then kept with
            the sampled rows instead of images, and learning does not run the encoder again.
        value_head: predict the return of the state, per row.
        processor: between the simulator or dataset and the network; None for the saved one, or for no change.
        path: folder written by save_pretrained; its architecture and words replace those given here.
    """

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
        bins: int = 256,
        proprio_dims: int = 13,
        words: Sequence[str] = WORDS,
        freeze_vision: bool = False,
        value_head: bool = False,
        processor: Processor | None = None,
        path: str | None = None,
    ):
        super().__init__()
        given = dict(
            vision=vision,
            vision_args=SMALL_CONVNEXT if vision_args is None else vision_args,
            visual_tokens=visual_tokens,
            hidden_size=hidden_size,
            layers=layers,
            heads=heads,
            intermediate_size=intermediate_size,
            action_dims=action_dims,
            chunk=chunk,
            bins=bins,
            proprio_dims=proprio_dims,
        )
        saved = {} if path is None else _saved_config(path)
        self.architecture = saved.get("architecture", given)
        self.processor = Processor.agreed(processor, saved.get("processor"), f"policy.path={path}")
        self.tokenizer = instruction_tokenizer(words) if path is None else _saved_tokenizer(path)
        self.path, self.freeze_vision = path, freeze_vision
        self.memoised = frozenset({"image"}) if freeze_vision else frozenset()
        self._spelt: dict[str, Tensor] = {}
        self._build()
        self.value_head = nn.Linear(self.architecture["hidden_size"], 1) if value_head else None
        if path is not None:
            self._load(Path(path))
        if freeze_vision:
            self.vision.requires_grad_(False)
            self.body.words.requires_grad_(False)

    def _build(self) -> None:
        body = {**self.architecture}
        self.action_dims, self.chunk, self.bins = body["action_dims"], body["chunk"], body["bins"]
        self.proprio_dims, width = body["proprio_dims"], body["hidden_size"]
        self.vision = VisionEncoder(
            body.pop("vision"), body.pop("vision_args"), width, width, body.pop("visual_tokens")
        )
        self.body = ActionTransformer(vocabulary=len(self.tokenizer), **body)

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values"} if init_args.get("value_head") else ())

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"choice_logprobs", "map_logits"}) | cls.provides(init_args)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        """{"image" uint8 [H, W, 3], "proprio" [P], "instruction" str} as tensors; words become ids [L]."""
        raw = self.processor.encode(raw)
        need(raw, ("image", "proprio", "instruction"), self)
        text = str(raw["instruction"])
        if text not in self._spelt:
            ids = self.tokenizer(text)["input_ids"]
            self._spelt[text] = torch.tensor(ids or [self.tokenizer.unk_token_id])
        image = torch.as_tensor(np.asarray(raw["image"]))
        proprio = torch.as_tensor(np.asarray(raw["proprio"], dtype=np.float32))
        if image.dtype != torch.uint8 or image.dim() != 3 or image.shape[2] != 3:
            raise ValueError(f"observation 'image' must be uint8 [H, W, 3], got {image.dtype} {tuple(image.shape)}")
        if proprio.shape != (self.proprio_dims,):
            raise ValueError(
                f"observation 'proprio' has shape {tuple(proprio.shape)}, "
                f"but policy.proprio_dims is {self.proprio_dims}"
            )
        return {"image": image, "instruction": self._spelt[text], "proprio": proprio}

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        """Draw a chunk. decode="mean" acts with the expectation over the bins and stores the bin it falls in."""
        visual, _ = self._look(observation)
        logits, values = self._think(visual, observation)
        chosen, logprobs, kept = draw_bins(logits, sampling, noise)
        centres = bin_centres(self.bins, logits.device)
        real = centres[chosen]
        if sampling.decode == "mean":
            temperature = logits.new_full((len(logits),), sampling.temperature)
            every = choice_logprobs(logits, temperature, kept)
            real = every.exp() @ centres
            chosen = to_bins(real, self.bins)
            logprobs = every.gather(2, chosen[..., None])[..., 0]
        return Action(
            action=chosen,
            logprobs=logprobs,
            mask=torch.ones_like(chosen, dtype=torch.bool),
            output=list(self.processor.decode(real.view(-1, self.chunk, self.action_dims).cpu().numpy())),
            values=values,
            extra={} if kept is None else {"kept": kept},
            memo={"visual": visual} if self.freeze_vision else {},
        )

    def forward(self, batch: Batch) -> PolicyOutput:
        """Score stored bins [N, T].

        extra: choice_logprobs [N, T, B], and map_logits [N, K, h, w] when the rows have images.
        """
        batch.require({"action", "temperature"}, type(self).__name__)
        observation = batch.observation()
        visual, maps = self._look(observation)
        logits, values = self._think(visual, observation)
        logprobs = choice_logprobs(logits, batch["temperature"], batch.get("kept"))
        extra = {"choice_logprobs": logprobs} | ({} if maps is None else {"map_logits": maps})
        chosen = logprobs.gather(2, batch["action"][..., None])[..., 0]
        return PolicyOutput(chosen, entropy_nats(logprobs), values, extra)

    def imitate(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Bins [T] of real actions [H, A], which the processor takes to [-1, 1]."""
        real = torch.as_tensor(np.asarray(output, dtype=np.float32))
        if real.shape != (self.chunk, self.action_dims):
            raise ValueError(
                f"a demonstrated action has shape {tuple(real.shape)}, but the policy's chunk and action_dims make "
                f"({self.chunk}, {self.action_dims})"
            )
        return to_bins(torch.as_tensor(self.processor.imitate(real.numpy())), self.bins).flatten()

    def contract(self) -> dict[str, Any]:
        """The processor, and what the tokens of an action stand for."""
        tokens = {"action.chunk": self.chunk, "action.dims": self.action_dims, "action.bins": self.bins}
        return {**self.processor.contract(), **tokens}

    def save_pretrained(self, folder: str | Path) -> None:
        """config.json (architecture and processor), model.safetensors (weights) and tokenizer/."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "policy": type(self).__name__,
            "architecture": self.architecture,
            "processor": self.processor.plain(),
        }
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        save_file(
            {k: v.detach().contiguous().cpu() for k, v in self.state_dict().items()}, folder / "model.safetensors"
        )
        self.tokenizer.save_pretrained(folder / "tokenizer")

    def _load(self, folder: Path) -> None:
        missing, unexpected = self.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
        # a value head may be new, or no longer wanted; anything else is another network
        wrong = [name for name in (*missing, *unexpected) if not name.startswith("value_head")]
        if wrong:
            raise ValueError(f"policy.path={folder}: weights do not fit the architecture in config.json: {wrong}")

    def _look(self, observation: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Visual tokens [N, K, D] and map logits: from the image, or the tokens that were stored instead of it."""
        if "visual" in observation:
            return observation["visual"], None
        need(observation, ("image", "instruction"), self)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze_vision):
            present = self._present(observation)[..., None].float()
            words = self.body.words(observation["instruction"]) * present
            return self.vision(observation["image"], words.sum(dim=1) / present.sum(dim=1))

    def _think(self, visual: Tensor, observation: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Logits [N, T, B] and values [N]."""
        need(observation, ("instruction", "proprio"), self)
        present = self._present(observation)
        logits, summary = self.body(visual, observation["instruction"], present, observation["proprio"])
        return logits, None if self.value_head is None else self.value_head(summary)[:, 0]

    def _present(self, observation: Mapping[str, Any]) -> Tensor:
        """[N, L] bool, False where a shorter instruction was filled up."""
        return observation["instruction"] != self.tokenizer.pad_token_id


def _saved_config(path: str) -> dict[str, Any]:
    file = Path(path) / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"policy.path={path}: no config.json there; give a folder written by save_pretrained")
    config = json.loads(file.read_text())
    if config.get("policy") != ActionTokenPolicy.__name__:
        raise ValueError(f"{file} is not of an ActionTokenPolicy; policy.path must name a folder that it saved")
    architecture = config["architecture"]
    architecture["vision_args"] = {**architecture["vision_args"], "pretrained": False}  # weights are in the folder
    return config


def _saved_tokenizer(path: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(Path(path) / "tokenizer")
