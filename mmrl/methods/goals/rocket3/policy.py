"""Policy on a first-person view, a goal view from elsewhere with the target's mask, and a state vector.

ROCKET-3: Scalable Multi-Task Reinforcement Learning for Generalizable Spatial Intelligence in Visuomotor Agents, 2025.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.policies import policy_folder
from mmrl.policies.control.recurrent import RecurrentPolicy, find_sequences

CHANNELS = 7
"""Of an image: view (RGB), goal view (RGB), mask of the target in the goal view (0 or 255)."""
_CROSS_VIEW_OPTIONS = ("cells",)


class CrossViewEncoder(nn.Module):
    """Encode a view by what it shows and by where it looks like the masked part of another view.

    Convolutions with common weights give features f of the view and h of the goal view, [D] at each place. The target
    is the mean of h over the mask, g = sum_p m_p h_p / sum_p m_p, and a place's similarity to it is
    <K f_p, Q g> / sqrt(D). Output: linear in similarities, pooled f and g, with normalisation and tanh.

    Args:
        shape: H, W, C of an image; C is `CHANNELS`.
        features: width of the output.
        width: D, channels of the convolutions.
    """

    def __init__(self, shape: tuple[int, int, int], features: int, width: int = 32):
        super().__init__()
        if shape[2] != CHANNELS:
            raise ValueError(
                f"policy.image_size={list(shape)}: a policy on goal views reads {CHANNELS} channels, of view, goal "
                "view and mask: take sim=goal_views"
            )
        self.convs = nn.Sequential(
            nn.Conv2d(3, width // 2, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width // 2, width, 3, padding=1),
            nn.ReLU(),
        )
        self.key, self.query = nn.Conv2d(width, width, 1), nn.Linear(width, width)
        self.pool = nn.AdaptiveAvgPool2d(5)
        places = math.prod((size + 1) // 2 for size in shape[:2])
        self.head = nn.Sequential(nn.Linear(places + 26 * width, features), nn.LayerNorm(features), nn.Tanh())

    def forward(self, image: Tensor) -> Tensor:
        """Encode images uint8 [N, H, W, 7] to [N, F]."""
        pixels = image.movedim(-1, 1).to(self.query.weight.dtype) / 255
        view, goal, mask = pixels.split((3, 3, 1), dim=1)
        # features of both views [N, D, h, w]
        places, goal_places = self.convs(torch.cat((view, goal)) - 0.5).chunk(2)
        share = nn.functional.adaptive_avg_pool2d(mask, places.shape[-2:])  # of each place that the target covers
        target = (goal_places * share).sum((2, 3)) / share.sum((2, 3)).clamp(min=1e-6)  # [N, D]
        # similarity of each place to the target [N, h, w]
        similarity = torch.einsum("ndhw,nd->nhw", self.key(places), self.query(target)) / math.sqrt(places.shape[1])
        return self.head(torch.cat((similarity.flatten(1), self.pool(places).flatten(1), target), dim=1))


class CrossViewPolicy(RecurrentPolicy):
    """Recurrent actor-critic on goal views, with auxiliary outputs: is the target in view, and in which cell.

    `forward` gives `visible_logits` [N] and `cell_logits` [N, K * K], linear in the memory's output, beside what
    `RecurrentPolicy` gives. Source: ROCKET-3, 2025, pretraining.

    Args:
        observation_dims: length of the state vector, which tells the event; None without one.
        actions: how many actions there are.
        kind: distribution of the action, which must be categorical.
        recurrence: cell of the memory.
        memory_size: width of the cell's output.
        hidden: widths of the hidden layers after the memory, of actor and critic alike.
        activation: between the layers.
        image_size: H, W, C of the observation "image", uint8.
        image_features: width of the image features.
        cells: K, cells of a side of the view for the target's centroid.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | None = None,
        kind: Literal["categorical"] = "categorical",
        recurrence: Literal["lstm", "gru"] = "gru",
        memory_size: int = 64,
        hidden: Sequence[int] = (64,),
        activation: Literal["tanh", "relu", "silu"] = "tanh",
        image_size: int | list[int] | None = None,
        image_features: int = 64,
        cells: int = 5,
        path: str | None = None,
    ):
        config = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions"))
        if config["kind"] != "categorical":
            raise ValueError(f"policy.kind must be categorical for a policy on goal views, got {config['kind']!r}")
        if config["cells"] < 1:
            raise ValueError(f"policy.cells must be at least 1, got {config['cells']}")
        super().__init__(**{name: value for name, value in config.items() if name not in _CROSS_VIEW_OPTIONS})
        self.config = config
        if self.encoder.image_shape is None:
            raise ValueError("policy.image_size must be the size of the goal views: take sim=goal_views")
        self.encoder.image_encoder = CrossViewEncoder(self.encoder.image_shape, config["image_features"])
        self._orthogonal()
        self.visible = nn.Linear(config["memory_size"], 1)
        self.cell = nn.Linear(config["memory_size"], config["cells"] ** 2)
        policy_folder.load(path, self)

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | {"visible_logits", "cell_logits"}

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Convert an expert's action to the stored choice."""
        return torch.as_tensor(output, dtype=torch.long).reshape(1)

    def forward(self, batch: Batch) -> PolicyOutput:
        if torch.is_grad_enabled() and not self.whole_sequences:
            raise ValueError("a policy with a memory learns from whole sequences: set learner=sequences")
        observation = batch.observation()
        features = self._unroll(observation, find_sequences(batch["episode"], batch["step"]))
        choices = self._choices(observation, features, batch["temperature"])
        extra = {"visible_logits": self.visible(features)[:, 0], "cell_logits": self.cell(features)}
        if "support_ids" in batch:
            extra["full_logprobs"] = choices.logprobs(batch["action"])
            choices = choices.restrict(batch["support_ids"])
        return PolicyOutput(choices.logprobs(batch["action"]), choices.entropy(), self._values(features), extra)
