"""BeamSearchEngine: the most likely of the allowed outputs, by beam search along a prefix tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.types import Completion, Observation, Request, Sampling
from mmrl.engines.base import contexts
from mmrl.engines.local import LocalEngine, cut_rows
from mmrl.engines.prefix_tree import PrefixTree
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.policies.text.cache import build_cache
from mmrl.policies.text.generation import next_logits


@dataclass(frozen=True)
class Beam:
    """A prefix of an allowed sequence: its node, its ids and their log-probs, and the row that it continued."""

    node: int = 0
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    row: int = -1

    @property
    def score(self) -> float:
        """Log-probability of the prefix, the sum over its ids."""
        return sum(self.logprobs)


def extend_beams(
    beams: Sequence[Beam], rows: Sequence[int], logprobs: Tensor, tree: PrefixTree, num_beams: int
) -> list[Beam]:
    """Return the `num_beams` most likely of the complete beams and all allowed continuations of the others.

    Log-probabilities are those of the whole vocabulary: they are not divided by the mass of the allowed ids, so that
    the score of a complete beam is the policy's log-probability of it. Of equal scores the earlier beam and the id that
    was added to the tree earlier come first.

    Args:
        beams: of one prompt.
        rows: the row of `logprobs` of each beam; it is not read for complete ones.
        logprobs: [N, V] of the next id, in nats.
    """
    pool = []
    for beam, row in zip(beams, rows):
        children = tree.children[beam.node]
        if not children:
            pool.append(beam)
            continue
        child_logprobs = logprobs[row, list(children)].tolist()
        pool += [
            Beam(node, (*beam.ids, token), (*beam.logprobs, number), row)
            for (token, node), number in zip(children.items(), child_logprobs)
        ]
    return sorted(pool, key=lambda beam: -beam.score)[:num_beams]


class BeamSearchEngine(LocalEngine):
    """LocalEngine that can also search for the most likely outputs among allowed ones (constrained beam search)."""

    @torch.no_grad()
    def search_beams(
        self, requests: Sequence[Request], tree: PrefixTree, num_beams: int, sampling: Sampling
    ) -> list[list[Completion]]:
        """Return the distinct completions of each request that beam search finds, the most likely one first.

        Each is a sequence of the tree; there are min(num_beams, sequences). Ids outside the tree have probability 0 in
        the search, and `behavior_logprobs` are the policy's at `sampling.temperature` without that constraint, as the
        learner scores them: completions are not samples of the policy.

        Raises:
            ValueError: the longest sequence has more ids than `sampling.max_tokens`, or the sampling is truncated.
        """
        if tree.depth > sampling.max_tokens:
            raise ValueError(f"allowed outputs have up to {tree.depth} tokens; set sampling.max_tokens={tree.depth}")
        if sampling.truncated or sampling.annealing is not None:
            raise ValueError("beam search has no top_k, top_p, min_p and annealing; leave them out of sampling")
        if sampling.guide is not None:
            raise ValueError("beam search has outputs of its own; leave sampling.regex and sampling.json_schema out")
        policy, done = self._policy_in_use(), dict[int, list[Completion]]()
        read = contexts(requests, policy)
        size = max(1, self.max_rows // num_beams)
        with evaluation_mode(policy):
            for rows in cut_rows(range(len(requests)), size, read, policy):
                beam_groups = _search(policy, [read[row] for row in rows], tree, num_beams, sampling.temperature)
                for row, beams in zip(rows, beam_groups):
                    done[row] = [self._complete(policy, beam, read[row], requests[row], sampling) for beam in beams]
        return [done[row] for row in range(len(requests))]

    def _complete(
        self, policy: Any, beam: Beam, observation: Observation, request: Request, sampling: Sampling
    ) -> Completion:
        """Build the completion of a beam."""
        return Completion(
            observation,
            action=torch.tensor(beam.ids),
            behavior_logprobs=torch.tensor(beam.logprobs),
            action_mask=torch.ones(len(beam.ids), dtype=torch.bool),
            output=policy.decode(beam.ids),
            extra={"temperature": torch.tensor(sampling.temperature)},
            policy_version=self._version,
            prompt_id=request.prompt_id,
        )


def _search(
    policy: Any, observations: Sequence[Observation], tree: PrefixTree, num_beams: int, temperature: float
) -> list[list[Beam]]:
    """Search for the beams of each observation in one batch, which reads the prompts once."""
    device = policy.device
    columns = {name: column.to(device) for name, column in Batch(policy.collate(observations)).items()}
    ids, mask = columns["input_ids"], columns["attention_mask"]
    policy.refuse_long(ids.shape[1] + tree.depth - 1)
    inputs: dict[str, Tensor] = {"input_ids": ids, **policy.extra_inputs(columns)}
    positions = policy.positions(ids, mask, inputs)
    cache, forbidden = build_cache(policy.model, tree.depth), torch.tensor(policy.forbidden, dtype=torch.long)
    beams = [[Beam(row=row)] for row in range(len(ids))]
    while True:
        logits = next_logits(policy.model, inputs, mask, positions, cache).float() / temperature
        logprobs = logits.index_fill(-1, forbidden.to(device), MASKED_LOGIT).log_softmax(-1).cpu()
        place = 0  # row of the next beam that is not complete
        for number, group in enumerate(beams):
            rows = []
            for beam in group:
                rows.append(place)
                place += bool(tree.children[beam.node])
            beams[number] = extend_beams(group, rows, logprobs, tree, num_beams)
        live = [beam for group in beams for beam in group if tree.children[beam.node]]
        if not live:
            return beams
        parents = torch.tensor([beam.row for beam in live], device=device)
        cache.batch_select_indices(parents)
        mask, positions = mask[parents], positions[..., parents, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(live), 1)], dim=1)
        inputs = {"input_ids": torch.tensor([[beam.ids[-1]] for beam in live], device=device)}
