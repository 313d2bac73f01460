"""DECKARD's policy: an actor-critic that observes its subgoal, with the graph of recipes in its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from mmrl.methods.goals.deckard.graph import RecipeGraph
from mmrl.policies import policy_folder
from mmrl.policies.control.policy import ControlPolicy


class RecipeGraphPolicy(ControlPolicy):
    """`ControlPolicy` with a `RecipeGraph`, which is saved with its weights; the rollouts read and write it.

    Args:
        observation_dims: length of the state vector, the subgoal included.
        actions: how many actions there are.
        items: I, items of the graph.
        kind: distribution of the action, which must be categorical.
        hidden: widths of the hidden layers, of actor and critic alike.
        activation: between the layers.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | None = None,
        items: int | None = None,
        kind: Literal["categorical"] = "categorical",
        hidden: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "silu"] = "tanh",
        path: str | None = None,
    ):
        settings = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions", "items"))
        super().__init__(**{name: value for name, value in settings.items() if name != "items"})
        self.config = settings
        if not settings["items"] or settings["items"] < 1 or settings["kind"] != "categorical":
            raise ValueError(
                f"policy.items={settings['items']}, policy.kind={settings['kind']}: a graph of recipes needs at least "
                "one item and numbered actions (kind=categorical); take sim=craft"
            )
        graph = RecipeGraph(settings["items"])
        for name in RecipeGraph.ARRAYS:
            self.register_buffer(f"graph_{name}", torch.from_numpy(getattr(graph, name)))
        policy_folder.load(path, self)

    def read_graph(self) -> RecipeGraph:
        """A copy of the graph."""
        graph = RecipeGraph(self.config["items"])
        for name in RecipeGraph.ARRAYS:
            array = self.get_buffer(f"graph_{name}").cpu().numpy()
            setattr(graph, name, array.astype(getattr(graph, name).dtype))
        return graph

    def write_graph(self, graph: RecipeGraph) -> None:
        """Put a graph in the place of the one before."""
        for name in RecipeGraph.ARRAYS:
            self.get_buffer(f"graph_{name}").copy_(torch.from_numpy(getattr(graph, name)))
