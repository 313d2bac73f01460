"""Packing of rows: which prompts and completions share a sequence and a call of the network, without another score."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.distributed.sequence_group import ALONE, SequenceGroup, get_dividing_group
from mmrl.ops.masked import last_inside
from mmrl.policies.text.language_model import LanguageModelPolicy
from mmrl.policies.text.packing import plan as packing
from mmrl.policies.text.packing.output_layer import OutputLayer
from mmrl.policies.text.packing.packed_inputs import BatchTokens, score_names
from mmrl.policies.text.packing.prefix_sharing import PrefixSharing
from mmrl.policies.text.routing.recorded import match_experts
from mmrl.policies.text.routing.routing import Routing
from mmrl.policies.text.statistics import ChoiceStatistic, LogSurprise


class PackingPolicy(LanguageModelPolicy):
    """Text policy that packs the rows of a batch: each prompt once, where every row has the same scores as alone."""

    statistics: dict[str, ChoiceStatistic]
    prefix_sharing: PrefixSharing
    output_layer: OutputLayer
    hidden_size: int
    hidden_layers: list[int]
    value_head: Any
    routing: Routing | None = None

    @property
    @abstractmethod
    def forbidden(self) -> list[int]:
        """Ids that the policy must not sample."""

    @abstractmethod
    def positions(self, ids: Tensor, attention: Tensor, inputs: Mapping[str, Any]) -> Tensor:
        """Compute rotary positions [N, L] or [3, N, L]."""

    @abstractmethod
    def extra_inputs(self, observation: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the model's inputs of prompts other than ids, mask and positions."""

    @abstractmethod
    def score_batches(
        self,
        tokens: BatchTokens,
        batches: list[packing.PackedBatch],
        batch: Batch,
        statistics: Sequence[ChoiceStatistic] | None = None,
    ) -> list[Tensor]:
        """Score packed batches: positions in the batch, log-probs, entropies, statistics and values, each [M, ...]."""

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
        # the same choice may have other possible ids and another temperature in another row
        alike = not score_names(batch) and bool((batch["temperature"] == batch["temperature"][:1]).all())
        lengths = packing.Lengths(
            prompt_of, prompt_lengths.numpy(), choices.numpy(), action.cpu().numpy() if alike else None
        )
        experts = None
        routing = self.routing if self.is_trained() else None
        if routing is not None and routing.replay:
            experts = match_experts(batch, ids, attention.sum(1), prompt_of)
        loads = routing is not None and routing.loads
        return BatchTokens(prompts, positions, emitted, lengths, self.tokenizer.pad_token_id, experts, loads)

    def is_trained(self) -> bool:
        """Whether any weight of the model is trained; frozen copies, such as a reference, are not."""
        return any(weight.requires_grad for weight in self.model.parameters())

    def choose_packing(self, tokens: BatchTokens, batch: Batch) -> list[packing.PackedBatch]:
        """Choose the cheapest packing in which every row has the same scores as alone."""
        cost_model = packing.PackingCost.of_model(self.model.config.get_text_config(), self.device)
        # a last token that is an image placeholder cannot be repeated per completion
        possible = self.prefix_sharing.masks and not self._is_forbidden(tokens.last).any()
        max_tokens = packing.max_packed_tokens(self.hidden_size, self.device)
        across = self.prefix_sharing.across
        padded = self.takes_padding
        best = packing.plan_packing(tokens.lengths, cost_model, possible, self.one_pass, max_tokens, across, padded)
        if not (possible and (self.one_pass or any(map(packing.shares_prefix, best)))):
            return best
        plain = tokens.without_common_choices()

        def score(batches: list[packing.PackedBatch]) -> Tensor:  # [3, M]
            return torch.stack(self.score_distributions(plain, batches, batch)[1:])

        group = self.sequence_group
        with ALONE.divide():  # a case may be new in one process of a group alone
            exact = self.prefix_sharing.verify(plain, score, self.model)
        if group.agree(exact):
            return best
        return packing.plan_packing(tokens.lengths, cost_model, False, self.one_pass, max_tokens)

    def score_distributions(
        self, tokens: BatchTokens, batches: list[packing.PackedBatch], batch: Batch
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Score whole distributions, for comparisons of packings: without what truncated or guided sampling cut off.

        Returns:
            Positions in the batch, log-probs, entropies and `LogSurprise` of the choices, each [M].
        """
        cut = ("packed_support_ids", "packed_guides")
        whole = Batch({name: column for name, column in batch.items() if name not in cut})
        choice, logprobs, entropies, surprise, *_ = self.score_batches(tokens, batches, whole, (LogSurprise(),))
        return choice, logprobs, entropies, surprise

    @property
    def sequence_group(self) -> SequenceGroup:
        """The processes that divide the sequences of a forward pass; outside of its `divide` this one alone."""
        return get_dividing_group() if self.divides_sequences else ALONE

    def measure_network(self) -> None:
        self.output_layer.verify(self.model, self.text_ids())

    def text_ids(self) -> list[int]:
        """Return a few ids that stand for text."""
        return [i for i in range(len(self.forbidden) + 4) if i not in self.forbidden][:4]

    def _is_forbidden(self, ids: Tensor) -> Tensor:
        return torch.isin(ids, torch.tensor(self.forbidden, dtype=ids.dtype, device=ids.device))
