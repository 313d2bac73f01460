"""Constrained beam search in place of sampling: a group is the most likely allowed outputs of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.engines.beam_search import BeamSearchEngine
from mmrl.engines.prefix_tree import PrefixTree
from mmrl.rollouts.base import Rollout, text_observation, turn_seed


@runtime_checkable
class AllowedOutputs(Protocol):
    """A task whose answers are those of a list, such as the items of a catalogue."""

    name: str

    def allowed_outputs(self) -> Sequence[str]: ...


class BeamSearch(Rollout):
    """Plays each prompt with the distinct outputs that beam search finds among the task's allowed ones.

    The sample index of an episode is its rank: 0 is the most likely one. The number of beams is the size of a group.
    It needs engine=beam_search and a task with `allowed_outputs`, which have the same tokens as demonstrations. Outputs
    are no samples of the policy, so that importance ratios are biased. Source: ReRe, 2025, constrained beam search,
    arXiv:2510.12211.
    """

    def __init__(self) -> None:
        self._outputs: tuple[str, ...] = ()
        self._tree: PrefixTree | None = None  # of these outputs

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        engine = ctx.engine
        if not isinstance(engine, BeamSearchEngine):
            raise ValueError(f"rollout=beam_search needs engine=beam_search, got {type(engine).__name__}")
        tree, indices = self.build_tree(ctx), [ctx.sample_indices(slot) for slot, _ in prompts]
        num_beams = max((part.stop for part in indices), default=0)
        if num_beams > len(tree):
            raise ValueError(
                f"{num_beams} beams of a prompt, but task {ctx.task.name!r} allows {len(tree)} outputs; lower "
                "data.group_size, or data.evaluation.num_samples"
            )
        requests = [
            Request(text_observation(prompt), turn_seed(slot, 0, ctx), prompt_id=slot) for slot, prompt in prompts
        ]
        ctx.progress("rollout", 0, len(requests))
        completions = engine.search_beams(requests, tree, num_beams, ctx.sampling) if requests else []
        ctx.progress("rollout", len(requests), len(requests))
        return [
            Episode(prompt, group=slot, sample_index=rank, turns=[Turn(beams[rank])])
            for (slot, prompt), ranks, beams in zip(prompts, indices, completions)
            for rank in ranks
        ]

    def build_tree(self, ctx: Context) -> PrefixTree:
        """Build the prefix tree of the task's allowed outputs, once for equal outputs."""
        if not isinstance(ctx.task, AllowedOutputs):
            raise ValueError(
                f"rollout=beam_search needs a task with allowed_outputs, such as task=next_item; {ctx.task.name!r} has "
                "none: use single_turn"
            )
        outputs = tuple(ctx.task.allowed_outputs())
        if self._tree is None or outputs != self._outputs:
            encoded = (ctx.policy.encode_demonstration({}, output).tolist() for output in outputs)
            self._outputs, self._tree = outputs, PrefixTree(encoded)
        return self._tree
