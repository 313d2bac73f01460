"""Non-linear reasoning: a small controller chooses which node of a tree of programs is expanded, or stops.

Integrating Large Language Models and Reinforcement Learning for Non-Linear Reasoning, 2024, arXiv:2410.13501.

- graph attention over the tree, between nodes, their parents and their children: `TreeAttention`
- the actor has a logit for each node, from its own encoding, and one for each verdict, from that of the whole tree; the
  critic reads the whole tree: `TreeController`
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import elu, leaky_relu

from mmrl.core.errors import check_at_least
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.policies import policy_folder
from mmrl.policies.base import require_inputs
from mmrl.policies.control.encoder import ObservationEncoder
from mmrl.policies.control.heads import Categorical
from mmrl.policies.control.policy import MASK, ControlPolicy

VERDICTS = 2


def connect(
    exists: Tensor,  # [N, M] bool
    parents: Tensor,  # [N, M] numbers of nodes, -1 for none
) -> Tensor:  # [N, M, M] bool
    """Which nodes attend to which: each to itself, its parent and its children; missing nodes to themselves alone."""
    numbers = torch.arange(exists.shape[1], device=exists.device)
    child_of = (parents[:, :, None] == numbers) & exists[:, :, None] & exists[:, None]
    return child_of | child_of.transpose(1, 2) | torch.eye(len(numbers), dtype=torch.bool, device=exists.device)


class TreeAttention(nn.Module):
    """One layer of graph attention: h'_i = elu(sum_j alpha_ij W h_j), alpha_ij = softmax_j leaky_relu(s_i + d_j).

    s_i = u . W h_i and d_j = v . W h_j, over the nodes j that node i is connected with. Source: Graph Attention
    Networks, 2018, equations 1 to 4, arXiv:1710.10903, with one head.

    Args:
        inputs: width of h.
        outputs: width of h'.
    """

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.attend_from, self.attend_to = nn.Linear(outputs, 1, bias=False), nn.Linear(outputs, 1, bias=False)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Nodes [N, M, inputs] with edges [N, M, M] bool to [N, M, outputs]."""
        hidden = self.linear(nodes)
        scores = leaky_relu(self.attend_from(hidden) + self.attend_to(hidden).transpose(1, 2), 0.2)
        return elu(scores.masked_fill(~edges, MASKED_LOGIT).softmax(-1) @ hidden)


class TreeEncoder(ObservationEncoder):
    """Encodings [N, M + 1, H] of the nodes of a tree, and last of the whole tree: the maximum over its nodes.

    Args:
        observation_dims: M (F + 1), of F numbers of each node, the first of them whether it exists, and M parents.
        nodes: M.
        hidden: H.
        layers: of graph attention.
    """

    def __init__(self, observation_dims: int, nodes: int, hidden: int, layers: int):
        super().__init__(observation_dims, "state", None, 1)
        self.nodes, features = nodes, observation_dims // nodes - 1
        self.input_layer = nn.Linear(features, hidden)
        self.attention = nn.ModuleList(TreeAttention(hidden, hidden) for _ in range(layers))
        self.width = hidden

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        state = observation["state"].float()
        parents = state[:, -self.nodes :]
        nodes = state[:, : -self.nodes].unflatten(1, (self.nodes, -1))
        exists = nodes[..., 0] > 0
        edges, hidden = connect(exists, parents), torch.relu(self.input_layer(nodes))
        for layer in self.attention:
            hidden = hidden + layer(hidden, edges)
        tree = torch.where(exists[..., None], hidden, -torch.inf).amax(1, keepdim=True)
        return torch.cat([hidden, tree], dim=1)


class NodeHead(nn.Module):
    """Logits of expanding each node and of the verdicts, from the encodings of nodes and tree.

    Args:
        hidden: H, width of an encoding.
    """

    def __init__(self, hidden: int):
        super().__init__()
        self.node_layer = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.verdict_layer = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, VERDICTS))

    def forward(self, features: Tensor, temperature: Tensor, legal: Tensor | None = None) -> Categorical:
        nodes, tree = features[:, :-1], features[:, -1]
        expand = self.node_layer(torch.cat([nodes, tree[:, None].expand_as(nodes)], dim=2))[..., 0]
        logits = torch.cat([expand, self.verdict_layer(tree)], dim=1).float() / temperature[:, None]
        return Categorical(logits if legal is None else logits.masked_fill(legal == 0, MASKED_LOGIT))


class WholeTree(nn.Module):
    """The encoding of the whole tree [N, H] of those of nodes and tree [N, M + 1, H]."""

    def forward(self, features: Tensor) -> Tensor:
        return features[:, -1]


class TreeController(ControlPolicy):
    """Actor and critic over a growing tree: which node is expanded next, or which verdict ends the search.

    Args:
        observation_dims: of the simulator's state, M (F + 1).
        actions: M + 2: the nodes and the verdicts.
        width: of the encodings.
        layers: of graph attention.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | None = None,
        width: int = 32,
        layers: int = 2,
        action_mask: bool = True,
        path: str | None = None,
    ):
        config = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions"))
        options = SimpleNamespace(**config)
        check_at_least(1, "policy", width=options.width, layers=options.layers)
        nodes = (options.actions or 0) - VERDICTS
        if nodes < 1 or not options.observation_dims or options.observation_dims % nodes or not options.action_mask:
            raise ValueError(
                "a TreeController has an action for each of M nodes and two verdicts, M (F + 1) numbers of observation "
                f"and a mask; got {options.actions} actions, observation_dims={options.observation_dims} "
                f"and action_mask={options.action_mask}; choose a simulator such as sim=program_tree"
            )
        super().__init__(options.observation_dims, options.actions, hidden=(options.width,), action_mask=True)
        self.config = config
        self.encoder = TreeEncoder(options.observation_dims, nodes, options.width, options.layers)
        self.actor, self.critic, self.head = nn.Identity(), WholeTree(), NodeHead(options.width)  # type: ignore
        self.value_net = nn.Sequential(nn.Linear(options.width, options.width), nn.Tanh(), nn.Linear(options.width, 1))
        policy_folder.load(path, self)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        require_inputs(raw, [MASK], self)
        mask = torch.from_numpy(np.array(raw[MASK], dtype=np.int8))
        if mask.shape[1:] != (self.actions,):
            raise ValueError(f"observation {MASK!r} has shape {tuple(mask.shape[1:])}, the policy reads {self.actions}")
        return {**self.encoder.encode_batch(raw, self), MASK: mask}
