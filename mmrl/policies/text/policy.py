"""Policies of causal language models: a row is an episode, its choices are tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Self

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from mmrl.core.batch import Batch, Ragged, pad_stack
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.distributed.sequence_group import SequenceGroup
from mmrl.files.pretrained import load_pretrained
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.policies.base import Action, require_inputs
from mmrl.policies.text import loading
from mmrl.policies.text.architecture import (
    list_layer_types,
    list_unknown_types,
    refuse_other_states,
)
from mmrl.policies.text.cache import build_cache
from mmrl.policies.text.checkpoint import locate_checkpoint
from mmrl.policies.text.checks.configuration import build_config
from mmrl.policies.text.checks.division import refuse_settings
from mmrl.policies.text.checks.experts import refuse_dense
from mmrl.policies.text.fidelity import Plain, check_division, check_fidelity
from mmrl.policies.text.generation import generate, next_logits
from mmrl.policies.text.guided.allowed_ids import AllowedIds
from mmrl.policies.text.guided.grammars import Grammars, GuidedRows
from mmrl.policies.text.language_model import refuse_mean
from mmrl.policies.text.packing.output_layer import MAX_LOGITS, OutputLayer
from mmrl.policies.text.packing.packed_inputs import BatchTokens, PackedInputs, score_names, score_tokens, scored_states
from mmrl.policies.text.packing.packer import PackingPolicy
from mmrl.policies.text.packing.plan import PackedBatch
from mmrl.policies.text.packing.prefix_attention import set_prefix_sharing
from mmrl.policies.text.packing.prefix_sharing import MASKED_TYPES, PrefixSharing
from mmrl.policies.text.packing.sequence_division import divide_inputs
from mmrl.policies.text.routing.loads import OUTPUTS, place_loads
from mmrl.policies.text.routing.recorded import COLUMNS, ExpertRecord
from mmrl.policies.text.routing.routed_pass import checkpoint_contexts
from mmrl.policies.text.routing.routing import prepare_routers
from mmrl.policies.text.statistics import ChoiceStatistic
from mmrl.policies.text.tiny import character_tokenizer, special_ids
from mmrl.policies.text.tokenizer import encode_answer, multimodal_ids

MEASURED = frozenset({"qwen2", "llama", "llava"})
"""Types that tests compare with transformers: random weights of them, whose layers take masks over pairs of tokens,
are not compared when they are built."""


class TextPolicy(PackingPolicy):
    """Any causal language model of transformers, also with recurrent layers; only adapters (`lora`) have dropout.

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
        freeze_router: of a mixture of experts, do not train the weights of the routers.
        router_replay: of a mixture of experts, record the experts that sampling chose, and score rows with them; the
            routers' weights of these experts are computed anew, with gradient. Source: Stabilizing MoE Reinforcement
            Learning by Aligning Training and Inference Routers, 2025, arXiv:2510.11370.
        output_router_logits: of a mixture of experts, return what the term `LoadBalancing` reads.
        template_arguments: further arguments of the chat template, for example {enable_thinking: false}.
    """

    auto_model: Any = AutoModelForCausalLM
    model: Any
    pads_left = True
    divides_sequences = True
    video_refusal = ""  # why prompts with videos are refused, measured at load; empty where they are exact
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
        freeze_router: bool = False,
        router_replay: bool = False,
        output_router_logits: bool = False,
    ):
        super().__init__()
        if path is None and config is None:
            raise ValueError("policy: give `path` (a hub id or a folder) or `config` (an architecture)")
        self.path, self.statistics, self.template_arguments = path, dict(statistics or {}), template_arguments or {}
        model = loading.build_parts(self, path, config, dtype, attention)
        refuse_other_states(model)
        if gradient_checkpointing:
            contexts = {"context_fn": checkpoint_contexts} if router_replay else {}
            model.gradient_checkpointing_enable({"use_reentrant": False, **contexts})
        self.hidden_size: int = model.config.get_text_config().hidden_size
        plain = Plain(model.config.get_text_config(decoder=True)._attn_implementation, loading.list_noise(model))
        self.output_layer, self.model = OutputLayer(max_logits), loading.remove_noise(model)
        self.value_head, self.hidden_layers = None, []

        # prompts are shared where the architecture is known, or where the check below measures equal numbers
        def install(shares: bool, pads: bool) -> None:
            self.takes_padding = pads
            set_prefix_sharing(model.config, plain.attention, shares and not unknown)
            self.prefix_sharing = PrefixSharing(model.config, pack_prompts)

        kinds, unknown = list_layer_types(model.config), list_unknown_types(model.config)
        if model.device.type == "meta" or (
            path is None and model.config.model_type in MEASURED and kinds <= MASKED_TYPES
        ):
            install(True, True)
        else:
            self.try_processor()
            verdict = check_fidelity(self, plain, install)
            self.video_refusal, self.leaves_weights_out = verdict.videos, verdict.idle
        self.model = loading.add_lora(model, lora, quantization)
        self.routing = prepare_routers(self, freeze_router, router_replay, output_router_logits)
        self.capturable = self.capturable if self.routing is None else None  # captured steps tell of no experts
        if value_head:
            self.value_head = loading.build_value_head(self.hidden_size, path)
        self.hidden_layers = loading.choose_layers(hidden_layers, model.config.get_text_config().num_hidden_layers)

    def train(self, mode: bool = True) -> Self:
        """As torch, but batch normalisation keeps its running statistics: learning computes what sampling computed."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(COLUMNS if init_args.get("router_replay") else ())

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        # `act` gives no values, since an engine may have only the language model; the annotator `values` writes them
        options = {"values": init_args.get("value_head"), "hidden_states": init_args.get("hidden_layers")}
        options |= dict.fromkeys(OUTPUTS, init_args.get("output_router_logits"))
        return frozenset(name for name, value in options.items() if value).union(init_args.get("statistics") or ())

    @classmethod
    def refuse_settings(cls, init_args: Mapping[str, Any]) -> None:
        refuse_dense(init_args, cls.auto_model)

    @classmethod
    def refuse_division(cls, init_args: Mapping[str, Any], processes: int) -> None:
        refuse_settings(init_args, processes)

    def measure_division(self, group: SequenceGroup) -> None:
        check_division(self, group)

    # ---------------------------------------------------------------- what a vision-language policy overrides

    def load_processor(self, path: str) -> Any:
        return loading.check_tokenizer(load_pretrained(AutoTokenizer, **locate_checkpoint(path), padding_side="left"))

    def try_processor(self) -> None:
        """Refuse a processor that cannot encode one prompt, before anything is sampled or trained."""

    def video_probes(self) -> list[dict[str, Any]]:
        """Return two prompts with videos, on which the policy is compared with transformers; none if it takes none."""
        return []

    def random_parts(self, config: dict[str, Any]) -> tuple[Any, Any]:
        """Build a configuration for the character tokenizer, and that tokenizer."""
        tokenizer = character_tokenizer()
        return build_config(config.pop("model_type", "qwen2"), config, **special_ids(tokenizer)), tokenizer

    @cached_property
    def forbidden(self) -> list[int]:
        """Ids that the policy must not sample, because the model reads them as other inputs, such as images."""
        return multimodal_ids(self.model.config, self.processor)

    @cached_property
    def grammars(self) -> Grammars:
        """Expressions of guided decoding over the policy's vocabulary."""
        return Grammars(self.tokenizer, self.model.config.get_text_config().vocab_size)

    def check_sampling(self, sampling: Sampling) -> None:
        super().check_sampling(sampling)
        if sampling.guide is not None:
            self.grammars.start(sampling.guide)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        require_inputs(raw, ["messages"], self)
        if raw.get("images"):
            raise ValueError(
                f"{type(self).__name__} cannot see, but the prompt has {len(raw['images'])} image(s); "
                "choose a vision-language policy, for example policy=tiny_vlm"
            )
        if raw.get("videos"):
            raise ValueError(
                f"{type(self).__name__} cannot see, but the prompt has {len(raw['videos'])} video(s); choose a "
                "vision-language policy whose processor takes videos, such as policy=vlm policy.path=(a Qwen3-VL)"
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
        stops, cache = self.stop_condition(sampling.stop), build_cache(self.model, sampling.max_tokens)
        step = partial(next_logits, self.model) if self.captured is None else self.captured(self.model)

        def logits(*read: Any) -> Tensor:
            return self._mask_forbidden(step(*read))

        plain = self.captured is None and len(inputs) == 1
        common = self.prefix_sharing.count_common(ids, attention) if plain else 0
        guide = None if sampling.guide is None else GuidedRows(self.grammars, sampling.guide, len(owner))
        records = self.routing is not None and self.routing.replay and self.learns_from_rows and self.is_trained()
        record = ExpertRecord(self.routing, logits) if records else None  # type: ignore[arg-type]
        run = logits if record is None else record.step
        result = generate(
            run, inputs, attention, positions, owner, cache, sampling, noise, stops, common, guide, record
        )
        lengths, extra = result.lengths.tolist(), result.support_columns()
        if sampling.guide is not None and not extra:  # kept ids are of those that a guide allowed
            extra = self.grammars.columns(sampling.guide, lengths, result.ids.shape[1])
        if record is not None:
            extra |= record.build_columns(ids, attention, owner, result.ids, result.lengths)
        return Action(
            action=result.ids,
            behavior_logprobs=result.logprobs,
            action_mask=torch.arange(result.ids.shape[1], device=ids.device) < result.lengths[:, None],
            output=[self.decode(row[:n]) for row, n in zip(result.ids.tolist(), lengths)],
            ended=["done" if stop else "length" for stop in result.stopped.tolist()],
            extra=extra,
            seconds=result.seconds,
        )

    # ---------------------------------------------------------------- scoring with gradient

    def forward(self, batch: Batch) -> PolicyOutput:
        """Score the choices of the batch; those after the last one of `batch.score_mask` get zeros.

        The scores of a row are those of its prompt and its choices alone, which `score_inputs` computes. Which rows
        share a sequence is the matter of `PackingPolicy`.
        """
        tokens = self.extract_tokens(batch)
        return self.score_packed(tokens, self.choose_packing(tokens, batch), batch)

    def score_inputs(
        self,
        inputs: PackedInputs,
        batch: Batch,
        statistics: Sequence[ChoiceStatistic] | None = None,
        allowed: AllowedIds | None = None,
    ) -> list[Tensor]:
        """Score one packed batch with one call of the network; the result is that of `score_batches`.

        Args:
            inputs: of the packed batch.
            batch: with actions and temperatures.
            statistics: of each choice; None for the policy's own.
            allowed: ids that guided decoding allowed for the choices of the batch; None for all.
        """
        measured = tuple(self.statistics.values()) if statistics is None else statistics
        # [L] the choice that each logit predicts; padding is scored too, since dropping it would copy the logits
        group, sequences = self.sequence_group, len(inputs.tensors["input_ids"])
        choice_index = inputs.choice_index.new_zeros(sequences * inputs.width)
        choice_index = choice_index.index_copy(0, inputs.logit_index, inputs.choice_index)
        # of divided sequences those of this process's tokens alone
        choice_index = group.take(choice_index.view(sequences, -1)).flatten()
        part = divide_inputs(inputs, group)
        # [L] ids that the scored tokens predict, with padding in place of forbidden ids
        action = batch["action"].flatten()[choice_index]
        forbidden = self._is_forbidden(action)
        ids = action.masked_fill(forbidden, self.tokenizer.pad_token_id)
        temperature = batch["temperature"][choice_index // batch["action"].shape[1]]

        def score(logits: Tensor, at: slice) -> list[Tensor]:  # [l, V] -> [l] each: log-softmax, and the choice's entry
            logits = self._mask_forbidden(logits)
            arguments = logits[:, None], temperature[at], ids[at][:, None]
            scored = score_tokens(logits, ids[at], batch, choice_index[at], forbidden[at], allowed)
            return [*scored, *(each.measure(*arguments)[:, 0] for each in measured)]

        # one call of the network, whose logits exist chunk by chunk
        options = {"output_hidden_states": self.value_head is not None or bool(self.hidden_layers)}
        route = nullcontext() if self.routing is None else self.routing.score(part)
        if self.routing is not None:
            self.measure_network()  # not inside the pass
        with route as routed:
            scores, out = self.output_layer.score(self.model, part, score, self.text_ids(), **options)
        results = list(scores)
        # hidden states [L, layers, D] of the scored tokens; the value head reads the last layer's
        if self.hidden_layers:
            results.append(scored_states(out.hidden_states, self.hidden_layers, part.width))
        if self.value_head is not None:
            hidden = scored_states(out.hidden_states, [-1], part.width)[:, 0]
            results.append(self.value_head(hidden.to(self.value_head.weight.dtype)).squeeze(-1).float())
        loads = [] if self.routing is None else self.routing.sum_loads(routed, inputs)
        return [inputs.choice_index, *(group.join(each, sequences)[inputs.logit_index] for each in results), *loads]

    def _mask_forbidden(self, logits: Tensor) -> Tensor:
        ids = torch.tensor(self.forbidden, device=logits.device)
        return logits.index_fill(-1, ids, MASKED_LOGIT) if self.forbidden else logits

    def score_packed(self, tokens: BatchTokens, batches: list[PackedBatch], batch: Batch) -> PolicyOutput:
        """Score the rows of the batch in these packed batches."""
        choice_indices, *parts = self.score_batches(tokens, batches, batch)
        loads = [parts.pop() for _ in range(1 + len(OUTPUTS))][::-1] if tokens.loads else []
        size = batch["action"].shape  # [N, T]; choices that no packed batch has are zero
        logprobs, entropy, *more = (
            part.new_zeros(size.numel(), *part.shape[1:]).index_copy(0, choice_indices, part).unflatten(0, size)
            for part in parts
        )
        names = *score_names(batch), *self.statistics, *(["hidden_states"] if self.hidden_layers else ())
        values = more[-1] if self.value_head is not None else None
        extra = dict(zip(names, more)) | (place_loads(loads, size[0]) if loads else {})
        return PolicyOutput(logprobs, entropy, values, extra)

    def score_batches(
        self,
        tokens: BatchTokens,
        batches: list[PackedBatch],
        batch: Batch,
        statistics: Sequence[ChoiceStatistic] | None = None,
    ) -> list[Tensor]:
        """Score packed batches: positions in the batch, log-probs, entropies, statistics and values, each [M, ...].

        After them what `mmrl.policies.text.routing.loads.sum_loads` returns, if the tokens ask for it.
        """
        allowed = self.grammars.allowed_ids(batch) if "packed_guides" in batch else None
        inputs = (tokens.pack(packed, self.prefix_sharing.mask, self.sequence_group.size) for packed in batches)
        scores = (self.score_inputs(each, batch, statistics, allowed) for each in inputs)
        return [torch.cat(parts) for parts in zip(*scores)]

    # ---------------------------------------------------------------- demonstrations and files

    def encode_demonstration(self, raw: Mapping[str, Any], output: str) -> Tensor:
        return torch.tensor(encode_answer(self.write_turn(raw, output), self.tokenizer, self.forbidden))

    def save_pretrained(self, folder: str | Path) -> None:
        """Save model and tokenizer or processor in transformers' format, with adapters merged, and the value head."""
        folder = Path(folder)
        loading.save_model(loading.merge_lora(self.model), folder)
        self.processor.save_pretrained(folder)
        if self.value_head is not None:
            save_file(self.value_head.state_dict(), folder / loading.VALUE_HEAD)
        (folder / "mmrl_policy.json").write_text(json.dumps({"class": type(self).__name__}) + "\n")
