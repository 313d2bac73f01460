"""Text policies of a frozen language model and trained networks on its last states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.ops.masked import last_inside
from mmrl.policies.text.packing.prefix_sharing import is_sharded
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.weights import fill, read_weights

NETWORKS, FROZEN = "networks.safetensors", "frozen_model"
"""What a saved folder has: the weights of the networks, and the folder of the frozen language model."""
FIXED = ("lora", "quantization", "value_head", "statistics", "hidden_layers", "router_replay", "output_router_logits")
"""Arguments of `TextPolicy` that these policies do not have."""


def build_perceptron(width: int, hidden: int, outputs: int) -> nn.Sequential:
    """Build a perceptron with one hidden layer, which predicts 0 before training."""
    network = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    nn.init.zeros_(network[2].weight)
    nn.init.zeros_(network[2].bias)
    return network


class FrozenModelPolicy(TextPolicy):
    """Base class of text policies whose language model is frozen: networks on its last states change what is sampled.

    A saved folder has the language model in a folder of its own, so that it is not taken for a model that writes as the
    policy does.

    Args:
        path: of a language model with its tokenizer, or of a folder that `save_pretrained` wrote.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        build: builds the networks for the width D of the states.
        options: further arguments of `TextPolicy`.
    """

    optional = ("value_head", "networks")
    capturable = None  # replayed decode steps have no states for the networks
    is_built = False  # until the language model is compared with transformers it writes alone

    def __init__(
        self, path: str | None, config: dict[str, Any] | None, build: Callable[[int], nn.Module], **options: Any
    ):
        name = type(self).__name__
        if wrong := sorted(key for key in FIXED if options.get(key)):
            raise ValueError(
                f"policy.{wrong[0]}={options[wrong[0]]}: {name} freezes its language model and has networks of its "
                "own; leave it out"
            )
        saved = None if path is None or not (Path(path) / NETWORKS).is_file() else Path(path)
        model_options = {key: value for key, value in options.items() if key not in FIXED}
        super().__init__(str(saved / FROZEN) if saved else path, config, hidden_layers=[1.0], **model_options)
        self.path = path
        self.model.requires_grad_(False)
        if self.device.type != "meta" and not self.output_layer.verify(self.model, self.text_ids()):
            raise ValueError(
                f"policy: {name} gives changed states to the output layer, and the logits of "
                f"{self.model.config.model_type} are not the outputs of that layer; choose another language model"
            )
        self.networks = build(self.hidden_size)
        if saved:
            fill(self.networks, read_weights(saved / NETWORKS, "save the policy there again"), str(saved / NETWORKS))
        self.is_built = True

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | {"values"}

    @classmethod
    def refuse_division(cls, init_args: Mapping[str, Any], processes: int) -> None:
        refused = f"strategy.sequence_parallel={processes} divides the tokens of a language model alone"
        raise ValueError(f"{refused}, and {cls.__name__} has networks on its states; leave it out")

    def canary(self) -> Mapping[str, Any]:
        if not self.is_built:
            return super().canary()
        raise NotImplementedError(
            f"{type(self).__name__} samples with networks on the states of its language model, and engine=vllm has "
            "none; use engine=local"
        )

    def check_sampling(self, sampling: Sampling) -> None:
        super().check_sampling(sampling)
        self.refuse_sampling(
            {
                "top_k": sampling.top_k > 0,
                "top_p": sampling.top_p < 1,
                "min_p": sampling.min_p > 0,
                "regex and sampling.json_schema": sampling.guide is not None,
            }
        )

    def refuse_sampling(self, keys: Mapping[str, bool]) -> None:
        """Refuse sampling parameters without a meaning here, by their keys."""
        for name, is_set in keys.items():
            if is_set:
                raise ValueError(f"sampling.{name} has no meaning for {type(self).__name__}; leave it out")

    def encode_conversation(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError(
            f"{type(self).__name__} learns from single answers, not from whole conversations; use "
            "rollout=demonstrations"
        )

    @contextmanager
    def replace_logits(self, compute: Callable[[Tensor, Tensor], Tensor]) -> Iterator[None]:
        """Let the model return compute(states [..., D], logits [..., V]) in place of its logits."""

        def replace(_: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> Tensor:
            return compute(self.cast(inputs[0]), self._mask_forbidden(logits))

        hook = self.model.get_output_embeddings().register_forward_hook(replace)
        try:
            yield
        finally:
            hook.remove()

    def cast(self, states: Tensor) -> Tensor:
        """Convert states to the dtype of the networks."""
        return states.to(next(self.networks.parameters()).dtype)

    def read_out(self, states: Tensor) -> Tensor:
        """Compute the logits [..., V] of states [..., D] with the frozen output layer, without its hooks."""
        layer = self.model.get_output_embeddings()
        if is_sharded(layer):
            raise ValueError(f"policy: {type(self).__name__} needs its output layer whole; use strategy=ddp")
        return self._mask_forbidden(layer.forward(states.to(layer.weight.dtype)))

    @torch.no_grad()
    def score_frozen(self, batch: Batch) -> tuple[PolicyOutput, Tensor]:
        """Score the tokens of the batch with the frozen model; also its states [N, T, D] before each."""
        out = super().forward(batch)
        return out, self.cast(out.extra.pop("hidden_states")[:, :, -1])

    def inside(self, batch: Batch) -> Tensor:
        """[N, T] bool: choices up to the last one of a row that is scored; those after it are given zeros."""
        choices = torch.arange(batch["action"].shape[1], device=batch["action"].device)
        return choices < last_inside(batch.score_mask)[:, None]

    def save_pretrained(self, folder: str | Path) -> None:
        """Save the frozen language model in a folder of its own, in transformers' format, and the networks."""
        folder = Path(folder)
        super().save_pretrained(folder / FROZEN)
        (folder / FROZEN / "mmrl_policy.json").replace(folder / "mmrl_policy.json")
        save_file(self.networks.state_dict(), folder / NETWORKS)
