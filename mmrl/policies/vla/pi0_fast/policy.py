"""pi0-FAST as a policy for cloning and RL; it loads and saves lerobot's folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.policies.base import Action, require_inputs
from mmrl.policies.processor import Processor
from mmrl.policies.text.loading import checkpoint_error
from mmrl.policies.vla.bins import choice_logprobs, entropy_nats, full_distribution
from mmrl.policies.vla.paligemma.decoder import KeysValues
from mmrl.policies.vla.pi0_fast.decoding import decode_rows
from mmrl.policies.vla.pi0_fast.model import Pi0Fast, load_model, save_model
from mmrl.policies.vla.pi0_fast.reading import Pi0FastReading
from mmrl.policies.vla.pi0_fast.sampler import NOTHING, Drawn, avoid_length, draw_tokens, move_on, take_back
from mmrl.policies.vla.pretrained.loading import add_lora_to_open, freeze
from mmrl.policies.vla.pretrained.policy import PretrainedTokenVLA
from mmrl.policies.vla.value import StateValue


class Pi0FastPolicy(PretrainedTokenVLA):
    """pi0-FAST: PaliGemma reads images and a prompt with the discretised state, and writes FAST tokens of the chunk.

    A choice is one token, so rows have different numbers T of choices; the last one is the end of the sequence unless
    `sampling.max_tokens` cut it. Probabilities are over the action tokens and the end. Every token shapes the whole
    chunk, so all of them are trained on where only a part of the chunk was executed. A sequence that is no chunk is
    decoded as far as it goes and counted by name: decoding/too_few, too_many, broken, unfinished.
    `sampling.decode` "mean" and "argmax" take the most likely token each time.

    Published weights: path=lerobot/pi0fast_base; its files name the tokenizers (google/paligemma-3b-pt-224 and
    physical-intelligence/fast), which `reader` and `fast` replace. It was compared with lerobot's own computation at
    tiny sizes only.
    Source: Pertsch et al., "FAST", 2025, arXiv:2501.09747; weights and processors as lerobot 0.6 saves them. Differs:
    lerobot's sampler lets the prompt attend to the first token after it, which its loss and this policy do not; it
    samples and trains the words "Action: " too, over the whole vocabulary.

    Args:
        path: hub id or folder of a checkpoint.
        action_dims: A, numbers per control step.
        chunk: H, control steps per decision, at most the horizon.
        proprio_dims: length of the proprioception vector.
        cameras: observations that are images, in the order in which the model reads them.
        horizon: control steps that the tokens describe; None for the checkpoint's n_action_steps.
        reader: hub id or folder of the text tokenizer; None for the checkpoint's own.
        fast: hub id or folder of the action tokenizer; None for the checkpoint's own.
        freeze_vision: the image tower and its projection stay fixed.
        lora: arguments of `peft.LoraConfig`, for the linear layers of every part that is not frozen; exports are
            merged. None trains all weights of those parts.
        gradient_checkpointing: trade time for memory in the learn step.
        value_head: predict the return of the state, per row, from the mean of the context and proprioception.
        critic: whether that gradient trains the context too ("shared") or not ("detached").
        dtype: of the loaded weights, as torch names it; the compute precision is the Trainer's.
        attention: transformers attention implementation of the image encoder.
        processor: between the simulator or dataset and the network; None for what the checkpoint says.
    """

    reading: Pi0FastReading

    def __init__(
        self,
        path: str,
        action_dims: int = 7,
        chunk: int = 5,
        proprio_dims: int = 8,
        cameras: Sequence[str] = ("image",),
        horizon: int | None = None,
        reader: str | None = None,
        fast: str | None = None,
        freeze_vision: bool = False,
        lora: dict[str, Any] | None = None,
        gradient_checkpointing: bool = False,
        value_head: bool = False,
        critic: Literal["shared", "detached"] = "detached",
        dtype: str = "float32",
        attention: str = "sdpa",
        processor: Processor | None = None,
    ):
        super().__init__()
        self.path, self.critic = path, critic
        self.action_dims, self.chunk, self.proprio_dims = action_dims, chunk, proprio_dims
        self.cameras = tuple(cameras)
        with checkpoint_error(path):
            self.reading = Pi0FastReading(path, reader, self.cameras, fast)
            network = load_model(path, horizon, dtype, attention)
        self.horizon = int(network.config.get("n_action_steps", network.config.get("chunk_size", 50)))
        if not 1 <= chunk <= self.horizon:
            raise ValueError(
                f"policy.chunk={chunk}, but the checkpoint's n_action_steps (policy.horizon) is {self.horizon}"
            )
        self.limit = int(network.config.get("max_decoding_steps", 256))
        self.choice_ids, self.start_ids = self.reading.action_ids, self.reading.start_ids
        self.end = len(self.choice_ids) - 1
        self.processor = self._resolve(processor)
        # actions of simulators and scaled ranges are bounded by 1, actions scaled by quantiles or mean and std are not
        self.bound = 1.0 if self.processor.action.kind in ("identity", "min_max") else None
        if gradient_checkpointing:
            network.enable_gradient_checkpointing()
        frozen = (network.vlm.vision_tower, network.vlm.multi_modal_projector) if freeze_vision else ()
        self.networks = (network,)  # adapters are injected into its modules; a tuple registers no second module
        # the output layer is read by rows, which adapters do not see
        adapters = None if lora is None else {"exclude_modules": r".*lm_head", **lora}
        self.model = add_lora_to_open(freeze(network, frozen), adapters)
        width = network.vlm.language_model.embed_tokens.embedding_dim
        self.value_head = StateValue(width + proprio_dims, min(width, 512)) if value_head else None
        self._load_heads()

    @property
    def network(self) -> Pi0Fast:
        """Return the model without adapters' wrappers."""
        return self.networks[0]

    # ---------------------------------------------------------------- inputs

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Return the tokens [T] of a demonstrated chunk [H, A] and the end; its last action fills the horizon."""
        real = self._scale_demonstration(output).numpy()
        whole = np.pad(real, ((0, self.horizon - self.chunk), (0, 0)), mode="edge")
        ids = torch.tensor([*self.reading.fast.encode(whole), self.end])
        if len(ids) != self.chunk * self.action_dims:
            return ids
        return torch.cat([torch.tensor([NOTHING]), ids])

    def contract(self) -> dict[str, Any]:
        tokens = {"action.tokens": self.end, "action.scale": self.reading.fast.scale}
        return {**super().contract(), "action.horizon": self.horizon, **tokens}

    # ---------------------------------------------------------------- sampling and scoring

    @torch.no_grad()
    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        """Sample tokens for every row; contexts are encoded once."""
        mask, pairs, values = self._read(observation)
        mask, pairs = mask[owner], [(keys[owner], entries[owner]) for keys, entries in pairs]
        start = self.start_ids.to(owner.device).expand(len(owner), -1)
        hidden, cache = self.network.run_tokens(start, mask, pairs)
        rows = self.choice_ids.to(owner.device)

        def step(last: Tensor) -> Tensor:
            nonlocal cache
            hidden, cache = self.network.run_tokens(rows[last][:, None], mask, pairs, cache)
            return self.network.logits(hidden[:, -1], rows)

        limit = min(self.limit, sampling.max_tokens)
        first = self.network.logits(hidden[:, -1], rows)
        tokens = draw_tokens(first, step, self.end, limit, sampling, noise)
        return self._action(tokens, values if values is None else values[owner])

    def _action(self, drawn: Drawn, values: Tensor | None) -> Action:
        rows = [row[:length] for row, length in zip(drawn.ids.tolist(), drawn.lengths.tolist(), strict=True)]
        chunks, counts = decode_rows(self.reading.fast, rows, self.horizon, self.action_dims)
        chunks = (
            chunks[:, : self.chunk] if self.bound is None else chunks[:, : self.chunk].clip(-self.bound, self.bound)
        )
        inside = torch.arange(drawn.ids.shape[1], device=drawn.ids.device) < drawn.lengths[:, None]
        place = partial(avoid_length, lengths=drawn.lengths, length=self.chunk * self.action_dims)
        return Action(
            action=place(drawn.ids.masked_fill(~inside, 0), empty=NOTHING),
            behavior_logprobs=place(drawn.logprobs * inside, empty=0.0),
            action_mask=place(inside, empty=False),
            output=list(self.processor.decode(chunks)),
            values=values,
            extra={} if drawn.support is None else {"support_ids": place(drawn.support, empty=NOTHING)},
            counts=counts,
        )

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor | None:
        return self._read(observation)[2]

    def forward(self, batch: Batch) -> PolicyOutput:
        """Score stored tokens [N, T]. extra: choice_logprobs [N, T, V], and those of `full_distribution`."""
        batch.require({"action", "temperature"}, type(self).__name__)
        mask, pairs, values = self._read(batch.observation())
        shifted = batch["action"][:, 0] == NOTHING
        ids = take_back(batch["action"], shifted).clamp(min=0)
        support = batch.get("support_ids")
        rows = self.choice_ids.to(ids.device)
        start = self.start_ids.to(ids.device).expand(len(ids), -1)
        hidden, _ = self.network.run_tokens(torch.cat([start, rows[ids[:, :-1]]], dim=1), mask, pairs)
        logits = self.network.logits(hidden[:, start.shape[1] - 1 :], rows)
        support = None if support is None else take_back(support, shifted)
        every = choice_logprobs(logits, batch["temperature"], support)
        action_logprobs = every.gather(2, ids[..., None])[..., 0]
        logprobs, entropy = (move_on(part, shifted) for part in (action_logprobs, entropy_nats(every)))
        extra = {"choice_logprobs": every, **full_distribution(logits, batch.with_columns(action=ids))}
        return PolicyOutput(logprobs, entropy, values, {name: move_on(part, shifted) for name, part in extra.items()})

    def _read(self, observation: Mapping[str, Any]) -> tuple[Tensor, KeysValues, Tensor | None]:
        """Encode contexts: mask [N, K], keys and values, and values [N]."""
        require_inputs(observation, ("images", "input_ids", "attention_mask", "proprio"), self)
        dtype = self.network.vlm.language_model.embed_tokens.weight.dtype
        pixels = self.reading.pixels(observation["images"]).to(dtype)
        hidden, mask, pairs = self.network.read_context(observation["input_ids"], observation["attention_mask"], pixels)
        return mask, pairs, self._context_values(hidden, mask, observation["proprio"])

    def _save_model(self, model: Any, folder: Path) -> None:
        save_model(model, folder)
