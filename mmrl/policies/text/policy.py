"""Policies of causal language models: a row is an episode, its choices are tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from mmrl.batch import Batch, Ragged, pad_stack
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.ops.masked import last_inside
from mmrl.policies.base import Action, require_inputs
from mmrl.policies.text import loading
from mmrl.policies.text.architecture import build_model, refuse_recurrent
from mmrl.policies.text.cache import build_cache
from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.policies.text.checks.configuration import build_config
from mmrl.policies.text.decoding import generate, next_logits
from mmrl.policies.text.fidelity import Plain, check_fidelity
from mmrl.policies.text.generation import ServedPolicy, refuse_mean
from mmrl.policies.text.packing import plan as packing
from mmrl.policies.text.packing.output_layer import MAX_LOGITS, OutputLayer
from mmrl.policies.text.packing.packed_inputs import BatchTokens, PackedInputs, score_names, score_tokens, scored_states
from mmrl.policies.text.packing.prefix_attention import set_prefix_sharing
from mmrl.policies.text.packing.prefix_sharing import PrefixSharing
from mmrl.policies.text.statistics import ChoiceStatistic
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from mmrl.policies.text.tokenizer import encode_answer, multimodal_ids, set_pad_token
from mmrl.pretrained import build_pretrained, load_pretrained
from mmrl.rng import Noise
from mmrl.types import Observation, PolicyOutput, Sampling

MEASURED = frozenset({"qwen2", "llama", "llava"})
"""Types that tests compare with transformers: random weights of them are not compared when they are built."""


class TextPolicy(ServedPolicy):
    """Any causal language model of transformers whose layers are all attention; only adapters (`lora`) have dropout.

    Args:
        path: hub id, folder or GGUF file of a checkpoint with its tokenizer, see `locate_checkpoint`.
        config: instead of a path, an architecture with random weights and the character tokenizer: the arguments of
            its transformers configuration, with `model_type`.
        value_head: also predict the return before each token, for objectives that need it.
        lora: arguments of `peft.LoraConfig`; the base stays frozen and exports are merged. None trains all weights.
        max_logits: logits, tokens times vocabulary, of a pass that exist at once; a pass with more computes them chunk
            by chunk, and again in the backward pass (`mmrl.ops.chunked_layer`).
        pack_prompts: score completions of different prompts in one sequence too, where that takes less computation.
        quantization: "nf4" or "fp4": the frozen weights below `lora` take 4 bits (QLoRA); exports are dequantised.
        dtype: of the loaded weights, as transformers names it; the compute precision is the Trainer's. Weights that
            are trained in bfloat16 or float16 lose small updates (`mmrl.learners.low_precision`): keep them for `lora`.
        attention: transformers attention implementation; architectures without "sdpa" run with "eager", and warn.
        gradient_checkpointing: trade time for memory in the learn step.
        statistics: statistics of each choice's distribution, by the names that terms read.
        hidden_layers: depths in (0, 1] of the output `hidden_states` [N, T, L, D], the states before each choice.
        template_arguments: further arguments of the chat template, for example {enable_thinking: false}.
    """

    auto_model: Any = AutoModelForCausalLM
    model: Any
    pads_left = True
    per_token = frozenset({"input_ids", "attention_mask"})
    """Inputs that run along the tokens; every other one runs along images or patches."""

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        value_head: bool = False,
        lora: dict[str, Any] | None = None,
        dtype: str = "float32",
        attention: str = "sdpa",
        gradient_checkpointing: bool = False,
        statistics: dict[str, ChoiceStatistic] | None = None,
        template_arguments: dict[str, Any] | None = None,
        quantization: Literal["nf4", "fp4"] | None = None,
        max_logits: int = MAX_LOGITS,
        pack_prompts: bool = False,
        hidden_layers: Sequence[float] = (),
    ):
        super().__init__()
        if path is None and config is None:
            raise ValueError("policy: give `path` (a hub id or a folder) or `config` (an architecture)")
        self.path, self.statistics, self.template_arguments = path, dict(statistics or {}), template_arguments or {}
        if path is not None:
            with loading.checkpoint_error(path):
                self.processor = self.load_processor(path)
                load = partial(loading.load_model, self.auto_model, path, dtype=dtype)
                model = build_model(lambda kind: load(attn_implementation=kind), attention)
            set_pad_token(self.tokenizer, path)
        else:
            full, self.processor = self.random_parts(dict(config or {}))
            build = partial(build_pretrained, self.auto_model, full, dtype=dtype)
            model = build_model(lambda kind: build(attn_implementation=kind), attention)
        refuse_recurrent(model)
        if gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.hidden_size: int = model.config.get_text_config().hidden_size
        plain = Plain(model.config.get_text_config(decoder=True)._attn_implementation, loading.list_noise(model))
        self.output_layer, self.model = OutputLayer(max_logits), loading.remove_noise(model)
        self.value_head: Any = None
        self.hidden_layers: list[int] = []

        def install(shares: bool) -> None:
            set_prefix_sharing(model.config, plain.attention, shares)
            self.prefix_sharing = PrefixSharing(model.config, pack_prompts)

        if model.device.type == "meta" or (path is None and model.config.model_type in MEASURED):
            install(True)
        else:
            check_fidelity(self, plain, install)
        self.model = loading.add_lora(model, lora, quantization)
        if value_head:
            self.value_head = loading.build_value_head(self.hidden_size, path)
        self.hidden_layers = loading.choose_layers(hidden_layers, model.config.get_text_config().num_hidden_layers)

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        # `act` gives no values, since an engine may have only the language model; the annotator `values` writes them
        made = {"values": init_args.get("value_head"), "hidden_states": init_args.get("hidden_layers")}
        return frozenset(name for name, given in made.items() if given).union(init_args.get("statistics") or ())

    # ---------------------------------------------------------------- what a vision-language policy overrides

    def load_processor(self, path: str) -> Any:
        return loading.check_tokenizer(load_pretrained(AutoTokenizer, **locate_checkpoint(path), padding_side="left"))

    def random_parts(self, config: dict[str, Any]) -> tuple[Any, Any]:
        """Build a configuration for the character tokenizer, and that tokenizer."""
        tokenizer = character_tokenizer()
        return build_config(config.pop("model_type", "qwen2"), config, **special_ids(tokenizer)), tokenizer

    @cached_property
    def forbidden(self) -> list[int]:
        """Ids that the policy must not sample, because the model reads them as other inputs, such as images."""
        return multimodal_ids(self.model.config, self.processor)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        require_inputs(raw, ["messages"], self)
        if raw.get("images"):
            raise ValueError(
                f"{type(self).__name__} cannot see, but the prompt has {len(raw['images'])} image(s); "
                "choose a vision-language policy, for example policy=tiny_vlm"
            )
        return {"input_ids": torch.tensor(self._chat_ids(list(raw["messages"]), raw.get("tools")), dtype=torch.long)}

    def extend(self, observation: Observation, ids: Tensor) -> Observation:
        return {**observation, "input_ids": torch.cat([observation["input_ids"], ids])}

    def tokenize(self, text: str) -> Tensor:
        return torch.tensor(self.tokenizer.encode(text, add_special_tokens=False), dtype=torch.long)

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor | Ragged]:
        """Collate prompts padded on the left, so that all completions start at the same position."""
        return {
            "input_ids": pad_stack([o["input_ids"] for o in observations], self.tokenizer.pad_token_id, left=True),
            "attention_mask": pad_stack(
                [torch.ones(len(o["input_ids"]), dtype=torch.long) for o in observations], left=True
            ),
        }

    def positions(self, ids: Tensor, attention: Tensor, inputs: Mapping[str, Any]) -> Tensor:
        """Compute rotary positions [N, L], counted from the first token that is not padding."""
        return (attention.cumsum(dim=1) - 1).clamp(min=0)

    def extra_inputs(self, observation: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the model's inputs of prompts other than ids, mask and positions."""
        return {}

    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        return self.act_groups(observation, torch.arange(len(noise)), sampling, noise)

    @torch.no_grad()
    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        refuse_mean(sampling)
        ids, attention = observation["input_ids"], observation["attention_mask"]
        self.refuse_long(ids.shape[1], sampling.max_tokens)
        inputs = {"input_ids": ids, **self.extra_inputs(observation)}
        positions, owner = self.positions(ids, attention, inputs), owner.to(ids.device)
        stops, cache = self.stop_condition(sampling.stop), build_cache(self.model.config, sampling.max_tokens)
        step = partial(next_logits, self.model) if self.captured is None else self.captured(self.model)

        def logits(*read: Any) -> Tensor:
            return self._mask_forbidden(step(*read))

        plain = self.captured is None and len(inputs) == 1
        common = self.prefix_sharing.count_common(ids, attention) if plain else 0
        made = generate(logits, inputs, attention, positions, owner, cache, sampling, noise, stops, common)
        lengths = made.lengths.tolist()
        return Action(
            action=made.ids,
            behavior_logprobs=made.logprobs,
            action_mask=torch.arange(made.ids.shape[1], device=ids.device) < made.lengths[:, None],
            output=[self.decode(row[:n]) for row, n in zip(made.ids.tolist(), lengths)],
            ended=["done" if stop else "length" for stop in made.stopped.tolist()],
            extra={} if made.support is None else dict(zip(("packed_support_ids", "support_sizes"), made.support)),
            seconds=made.seconds,
        )

    def _mask_forbidden(self, logits: Tensor) -> Tensor:
        if not self.forbidden:
            return logits
        return logits.index_fill(-1, torch.tensor(self.forbidden, device=logits.device), MASKED_LOGIT)

    # ---------------------------------------------------------------- learning

    def forward(self, batch: Batch) -> PolicyOutput:
        """Score the batch in the cheapest packing. Choices after the last one of `batch.score_mask` get zeros."""
        tokens = self.extract_tokens(batch)
        return self.score_packed(tokens, self.choose_packing(tokens, batch), batch)

    def extract_tokens(self, batch: Batch) -> BatchTokens:
        """Extract the tokens of the batch, each prompt once."""
        observation, action = batch.observation(), batch["action"]
        # forbidden ids are scored as forced tokens, and never fed to the model
        emitted = torch.where(self._is_forbidden(action), self.tokenizer.pad_token_id, action)
        last = last_inside(batch.score_mask)
        prompt_of = batch.get("prompt_id", torch.arange(batch.rows))
        _, first, prompt_of = np.unique(prompt_of.cpu().numpy(), return_index=True, return_inverse=True)
        prompts = {name: column[torch.from_numpy(first)] for name, column in observation.items()}
        ids, attention = prompts["input_ids"], prompts["attention_mask"]
        positions = self.positions(ids, attention, {"input_ids": ids, **self.extra_inputs(prompts)})
        prompt_lengths, choices = torch.cat([attention.sum(1), last]).clamp(min=1).cpu().split([len(ids), len(action)])
        if self.switch_length is not None:
            self.refuse_long(0, int((prompt_lengths.numpy()[prompt_of] + choices.numpy()).max()))
        # the same choice may have other kept ids and another temperature in another row
        alike = "packed_support_ids" not in batch and bool((batch["temperature"] == batch["temperature"][:1]).all())
        lengths = packing.Lengths(
            prompt_of, prompt_lengths.numpy(), choices.numpy(), action.cpu().numpy() if alike else None
        )
        return BatchTokens(prompts, positions, emitted, lengths, self.tokenizer.pad_token_id)

    def choose_packing(self, tokens: BatchTokens, batch: Batch) -> list[packing.PackedBatch]:
        """Choose the cheapest packing in which every row has the same scores as alone."""
        cost_model = packing.PackingCost.of_model(self.model.config.get_text_config(), self.device)
        # a last token that is an image placeholder cannot be repeated per completion
        possible = self.prefix_sharing.masks and not self._is_forbidden(tokens.last).any()
        max_tokens = packing.max_packed_tokens(self.hidden_size, self.device)
        across = self.prefix_sharing.across
        best = packing.plan_packing(tokens.lengths, cost_model, possible, self.one_pass, max_tokens, across)
        if not (possible and (self.one_pass or any(map(packing.shares_prefix, best)))):
            return best
        plain = tokens.without_common_choices()

        def score(batches: list[packing.PackedBatch]) -> Tensor:  # log-probs and entropies [2, M]
            return torch.stack(self._score_batches(plain, batches, batch)[1:3])

        if self.prefix_sharing.verify(plain, score, self.model):
            return best
        return packing.plan_packing(tokens.lengths, cost_model, False, self.one_pass, max_tokens)

    def score_packed(self, tokens: BatchTokens, batches: list[packing.PackedBatch], batch: Batch) -> PolicyOutput:
        """Score the rows of the batch in these packed batches."""
        choice_indices, *parts = self._score_batches(tokens, batches, batch)
        size = batch["action"].shape
        logprobs, entropy, *more = (
            part.new_zeros(size.numel(), *part.shape[1:]).index_copy(0, choice_indices, part).unflatten(0, size)
            for part in parts
        )
        names = *score_names(batch), *self.statistics, *(["hidden_states"] if self.hidden_layers else ())
        extra = dict(zip(names, more))
        return PolicyOutput(logprobs, entropy, more[-1] if self.value_head is not None else None, extra)

    def _score_batches(self, tokens: BatchTokens, batches: list[packing.PackedBatch], batch: Batch) -> list[Tensor]:
        """Score packed batches: positions in the batch, log-probs, entropies, statistics and values, each [M, ...]."""
        inputs = (tokens.pack(packed, self.prefix_sharing.mask) for packed in batches)
        return [torch.cat(parts) for parts in zip(*(self.score_inputs(each, batch) for each in inputs))]

    def score_inputs(self, inputs: PackedInputs, batch: Batch) -> list[Tensor]:
        """Score one packed batch with one call of the network; the result is that of `_score_batches`."""
        size = len(inputs.tensors["input_ids"]) * inputs.width
        # padding is scored too, since dropping it would copy the logits
        choice_index = inputs.choice_index.new_zeros(size).index_copy(0, inputs.logit_index, inputs.choice_index)
        action = batch["action"].flatten()[choice_index]
        forbidden = self._is_forbidden(action)
        chosen = action.masked_fill(forbidden, self.tokenizer.pad_token_id)
        temperature = batch["temperature"][choice_index // batch["action"].shape[1]]

        def score(logits: Tensor, at: slice) -> list[Tensor]:
            logits = self._mask_forbidden(logits)
            given = logits[:, None], temperature[at], chosen[at][:, None]
            scored = score_tokens(logits, chosen[at], batch, choice_index[at], forbidden[at])
            return [*scored, *(each.measure(*given)[:, 0] for each in self.statistics.values())]

        options = {"output_hidden_states": self.value_head is not None or bool(self.hidden_layers)}
        scores, out = self.output_layer.score(self.model, inputs, score, self.text_ids(), **options)
        made = list(scores)
        if self.hidden_layers:
            made.append(scored_states(out.hidden_states, self.hidden_layers, inputs.width))
        if self.value_head is not None:
            hidden = scored_states(out.hidden_states, [-1], inputs.width)[:, 0]
            made.append(self.value_head(hidden.to(self.value_head.weight.dtype)).squeeze(-1).float())
        return [inputs.choice_index, *(part[inputs.logit_index] for part in made)]

    def measure_network(self) -> None:
        self.output_layer.verify(self.model, self.text_ids())

    def text_ids(self) -> list[int]:
        """Return a few ids that stand for text."""
        return [i for i in range(len(self.forbidden) + 4) if i not in self.forbidden][:4]

    def _is_forbidden(self, ids: Tensor) -> Tensor:
        return torch.isin(ids, torch.tensor(self.forbidden, dtype=ids.dtype, device=ids.device))

    def encode_demonstration(self, raw: Mapping[str, Any], output: str) -> Tensor:
        return torch.tensor(encode_answer(self.write_turn(raw, output), self.tokenizer, self.forbidden))

    def save_pretrained(self, folder: str | Path) -> None:
        """Save model and tokenizer or processor in transformers' format, with adapters merged, and the value head."""
        folder = Path(folder)
        loading.save_model(loading.merge_lora(self.model), folder)
        self.processor.save_pretrained(folder)
        if self.value_head is not None:
            save_file(self.value_head.state_dict(), folder / "value_head.safetensors")
        (folder / "mmrl_policy.json").write_text(json.dumps({"class": type(self).__name__}) + "\n")
