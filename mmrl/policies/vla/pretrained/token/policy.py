"""Base class of token VLAs on a pretrained vision-language model, for cloning and RL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.policies.base import Action
from mmrl.policies.processor import Processor
from mmrl.policies.vla.bins import BinChoice, bin_centres, choice_logprobs, choose_bins, entropy_nats, full_distribution
from mmrl.policies.vla.pretrained.policy import PretrainedTokenVLA
from mmrl.policies.vla.pretrained.token.network import TokenVLANetwork
from mmrl.policies.vla.value import StateValue


class TokenVLAPolicy(PretrainedTokenVLA):
    """Token VLA: a pretrained vision-language model writes each number of a chunk as one of B tokens.

    A subclass says how the checkpoint is loaded: `_load` gives the network, which calls the pretrained model, and the
    reading, which computes its inputs.

    Choices are the T = H x A numbers of a chunk, step after step, dimension after dimension. Choice t is bin b between
    the edges e_b and e_{b+1} of B evenly placed edges from -1 to 1, and decoded at its centre; the last bin is met by
    the number 1 alone and decoded as the one before it. A log-prob is that of the bin among the B action tokens, as RL
    samples and scores them: other words have no part in it.
    Source: Kim et al., "OpenVLA", 2024, section 3.2, arXiv:2406.09246; RL as in Li et al., "SimpleVLA-RL", 2025,
    section 3, arXiv:2509.09674, and Liu et al., 2025, section 4, arXiv:2505.19789.

    Args:
        path: hub id or folder of a checkpoint.
        action_dims: A, numbers per control step.
        chunk: H, control steps per decision.
        proprio_dims: length of the proprioception vector; 0 for models that do not read it.
        cameras: observations that are images, in the order in which the model reads them.
        reader: hub id or folder of tokenizer and image settings; None for the checkpoint's.
        freeze_vision: the image encoder and its projection stay fixed.
        lora: arguments of `peft.LoraConfig`, for the linear layers of every part that is not frozen; exports are
            merged. None trains all weights of those parts.
        gradient_checkpointing: trade time for memory in the learn step.
        value_head: predict the return of the state, per row, from the features that the first number is chosen from.
        critic: whether that gradient trains the model too ("shared") or not ("detached").
        dtype: of the loaded weights, as torch names it; the compute precision is the Trainer's.
        attention: transformers attention implementation of the language model.
        processor: between the simulator or dataset and the network; None for what the checkpoint says.
    """

    network: TokenVLANetwork

    def __init__(
        self,
        path: str,
        action_dims: int = 7,
        chunk: int = 1,
        proprio_dims: int = 0,
        cameras: Sequence[str] = ("image",),
        reader: str | None = None,
        freeze_vision: bool = False,
        lora: dict[str, Any] | None = None,
        gradient_checkpointing: bool = False,
        value_head: bool = False,
        critic: Literal["shared", "detached"] = "shared",
        dtype: str = "float32",
        attention: str = "sdpa",
        processor: Processor | None = None,
    ):
        super().__init__()
        self.path, self.critic, self.cameras = path, critic, tuple(cameras)
        self.action_dims, self.chunk, self.proprio_dims = action_dims, chunk, proprio_dims
        self._build(reader, dtype, attention, processor, gradient_checkpointing, freeze_vision, lora)
        width = self.network.width
        self.value_head = StateValue(width, min(width, 512)) if value_head else None
        self._load_heads()

    @property
    def choices(self) -> int:
        """Return T, the numbers of a chunk."""
        return self.chunk * self.action_dims

    @torch.no_grad()
    def act_groups(self, observation: Mapping[str, Any], owner: Tensor, sampling: Sampling, noise: Noise) -> Action:
        """Sample chunks; `choose_bins` says what the decodes do."""
        centres, parts = bin_centres(self.network.bins, self.device, "openvla"), []

        def choose(logits: Tensor) -> Tensor:
            parts.append(choose_bins(logits.float(), centres, self._encode, sampling, noise))
            return parts[-1].ids

        state = self.network.sample(self._prepare(observation), owner, self.choices, choose)
        choice = concatenate_choices(parts)
        real = choice.values.view(-1, self.chunk, self.action_dims)
        values = self._values(state)
        return Action(
            action=choice.ids,
            behavior_logprobs=choice.logprobs,
            action_mask=torch.ones_like(choice.ids, dtype=torch.bool),
            output=list(self.processor.decode(real.cpu().numpy())),
            values=None if values is None else values[owner],
            extra={} if choice.support_ids is None else {"support_ids": choice.support_ids},
        )

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor | None:
        if self.value_head is None:
            return None
        return self._values(self.network.state(self._prepare(observation), self.choices))

    def forward(self, batch: Batch) -> PolicyOutput:
        """Score stored bins [N, T]. extra: choice_logprobs [N, T, B], and those of `full_distribution`."""
        batch.require({"action", "temperature"}, type(self).__name__)
        logits, state = self.network.score(self._prepare(batch.observation()), batch["action"])
        logprobs = choice_logprobs(logits, batch["temperature"], batch.get("support_ids"))
        action_logprobs = logprobs.gather(2, batch["action"][..., None])[..., 0]
        extra = {"choice_logprobs": logprobs, **full_distribution(logits, batch)}
        return PolicyOutput(action_logprobs, entropy_nats(logprobs), self._values(state), extra)

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Convert real actions [H, A] to bins [T]; the processor scales them, what is beyond [-1, 1] is clipped."""
        return self._encode(self._scale_demonstration(output)).flatten()

    def contract(self) -> dict[str, Any]:
        return {**super().contract(), "action.bins": self.network.bins}

    def _encode(self, values: Tensor) -> Tensor:
        """Return the bin of each number: between which two of B edges it lies."""
        edges = torch.linspace(-1, 1, self.network.bins, dtype=torch.float64, device=values.device)
        return torch.bucketize(values.double().clamp(-1, 1), edges, right=True) - 1


def concatenate_choices(parts: Sequence[BinChoice]) -> BinChoice:
    """Join choices along T; supports of different size are filled up with -1."""
    ids, values, logprobs, supports = zip(*parts)
    tensors = [part for part in supports if part is not None]
    widest = max((part.shape[2] for part in tensors), default=0)
    filled = [pad(part, (0, widest - part.shape[2]), value=-1) for part in tensors]
    joined = (torch.cat(part, dim=1) for part in (ids, values, logprobs))
    return BinChoice(*joined, torch.cat(filled, dim=1) if filled else None)
