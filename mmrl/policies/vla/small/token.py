"""Vision-language-action policy with discrete actions: one of a few hundred bins per action dimension."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.policies.base import Action
from mmrl.policies.vla.bins import (
    Layout,
    bin_centres,
    choice_logprobs,
    choose_bins,
    entropy_nats,
    full_distribution,
    to_bins,
    without_twins,
)
from mmrl.policies.vla.small.base import ActionPolicy
from mmrl.policies.vla.small.networks import ActionTransformer


class ActionTokenPolicy(ActionPolicy):
    """VLA policy from image, instruction and proprioception to a chunk of binned actions in one forward pass.

    The causal transformer reads [visual tokens, words, proprioception, one query per control step]. The query of step
    h gives A x B logits, so the T = H * A choices of a decision (step after step, dimension after dimension) are
    independent given the context. Choice t is bin b of B equal intervals of [-1, 1].
    Source: Kim et al., "OpenVLA", arXiv 2406.09246, section 3.2 (bins); Kim et al., arXiv 2502.19645, section 4.1
    (parallel decoding of a chunk). Differs: bins have equal width, decoded at their centres, and an own output head
    instead of reused text tokens.

    Args:
        bins: B, ids per number.
        layout: how ids and numbers belong together; see `mmrl.policies.vla.bins.Layout`.
    """

    def __init__(self, bins: int = 256, layout: Layout = "equal", **kwargs: Any):
        super().__init__(head={"bins": bins, "layout": layout}, **kwargs)
        other = ("vision", "vision_args", "visual_tokens", "layout")
        body = {k: v for k, v in self.architecture.items() if k not in other}
        self.bins, self.layout = body["bins"], self.architecture.get("layout", "equal")
        self.transformer = ActionTransformer(vocabulary=len(self.tokenizer), **body)
        self._ready()

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values"} if init_args.get("value_head") else ())

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"choice_logprobs", "map_logits"}) | cls.provides(init_args)

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        """Sample a chunk; `choose_bins` says what the decodes do."""
        visual, _ = self._look(observation)
        logits, values = self._think(visual, observation)
        centres = bin_centres(self.bins, logits.device, self.layout)
        encode = partial(to_bins, bins=self.bins, layout=self.layout)
        ids, real, logprobs, support_ids = choose_bins(logits, centres, encode, sampling, noise)
        return Action(
            action=ids,
            behavior_logprobs=logprobs,
            action_mask=torch.ones_like(ids, dtype=torch.bool),
            output=list(self.processor.decode(real.view(-1, self.chunk, self.action_dims).cpu().numpy())),  # type: ignore[arg-type]
            values=values,
            extra={} if support_ids is None else {"support_ids": support_ids},
            cached_features={"visual": visual} if self.freeze_vision else {},
        )

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor | None:
        return self._think(self._look(observation)[0], observation)[1]

    def forward(self, batch: Batch) -> PolicyOutput:
        """Score stored bins [N, T].

        extra: choice_logprobs [N, T, B], those of `full_distribution`, and map_logits [N, K, h, w] when the rows have
        images.
        """
        batch.require({"action", "temperature"}, type(self).__name__)
        observation = batch.observation()
        visual, maps = self._look(observation)
        logits, values = self._think(visual, observation)
        logprobs = choice_logprobs(logits, batch["temperature"], batch.get("support_ids"))
        extra = {"choice_logprobs": logprobs, **full_distribution(logits, batch)}
        extra |= {} if maps is None else {"map_logits": maps}
        action_logprobs = logprobs.gather(2, batch["action"][..., None])[..., 0]
        return PolicyOutput(action_logprobs, entropy_nats(logprobs), values, extra)

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Convert real actions [H, A] to bins [T]; the processor scales them to [-1, 1]."""
        return to_bins(self._encode_chunk(output), self.bins, self.layout).flatten()

    def contract(self) -> dict[str, Any]:
        layout = {} if self.layout == "equal" else {"action.layout": self.layout}
        return {**super().contract(), "action.bins": self.bins, **layout}

    def _think(self, visual: Tensor, observation: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Compute logits [N, T, B] and values [N]."""
        present = None if self.is_complete(observation) else self._present(observation)
        logits, summary = self.transformer(visual, observation["instruction"], present, observation["proprio"])
        logits = without_twins(logits, self.layout)
        return logits, self._values(summary, visual, observation)
