"""CURE: branches that begin again before a token of high entropy, in one group with the answers they come from.

CURE: Critical-Token-Guided Re-Concatenation for Entropy-Collapse Prevention, 2025, arXiv:2508.11016.

- where an answer is branched: `choose_branch`
- answers and their branches: `EntropyBranches`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mmrl.annotators.logprobs import positive_rows, score_rows
from mmrl.columns import pad_value, per_choice
from mmrl.data.collate import collate
from mmrl.rng import derive_rng
from mmrl.rollouts.base import Rollout, turn_seed
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.types import Completion, Context, Episode, Prompt, Request, Turn


def choose_branch(entropy: Tensor, allowed: Tensor, top: int, rng: np.random.Generator) -> int:
    """Draw a position among the `top` of highest entropy, uniformly; 0 where no position is allowed.

    Args:
        entropy: [T] nats.
        allowed: [T] bool; the first position never is, as before it nothing is kept.
        top: candidates.
        rng: of the draw.
    """
    possible = allowed.clone()
    possible[:1] = False
    count = min(top, int(possible.sum()))
    if not count:
        return 0
    candidates = torch.where(possible, entropy, -torch.inf).topk(count).indices
    return int(candidates[int(rng.integers(count))])


class EntropyBranches(Rollout):
    """Single-turn answers and branches of them, which keep the tokens before one of high entropy and sample the rest.

    Of the `group_size` episodes of a prompt the first group_size / (1 + branches) are answers, and each has `branches`
    branches. The token before which an answer is branched is drawn from the `top` of its highest entropies; tokens of
    one character or of none are no candidates. Tokens that a branch keeps are context: `action_mask` is False there.
    All compete in one group. Source: CURE, 2025, stage 1, arXiv:2508.11016.

    Args:
        branches: of each answer.
        top: candidates of an answer.
        min_characters: of the text of a candidate, without spaces around it.
        rows: answers per forward pass for the entropies.
    """

    def __init__(self, branches: int = 3, top: int = 20, min_characters: int = 2, rows: int = 64):
        if branches < 1 or top < 1:
            raise ValueError(f"rollout: need branches >= 1 and top >= 1, got {branches} and {top}")
        positive_rows(rows, "rollout")
        self.branches, self.top, self.min_characters, self.rows = branches, top, min_characters, rows

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        indices = {slot: ctx.sample_indices(slot) for slot, _ in prompts}
        roots = {slot: self._count_roots(wanted) for slot, wanted in indices.items()}
        first = replace(ctx, requested_indices={slot: range(count) for slot, count in roots.items()})
        answers = SingleTurn().collect(prompts, first)
        played = [episode for episode in answers if episode.ended != "error"]
        asked: list[tuple[Episode, Completion, int]] = []
        requests = []
        for episode, entropy in zip(played, self._entropies(played, ctx)):
            done = episode.turns[0].completion
            rng = derive_rng(ctx.seed, ctx.purpose, "branch", ctx.iteration, episode.group, episode.sample_index)
            kept = choose_branch(entropy, self._candidates(done, ctx), self.top, rng)
            for number in range(self.branches):
                index = roots[episode.group] + episode.sample_index * self.branches + number
                asked.append((Episode(episode.prompt, episode.group, index), done, kept))
                prefix = done.action[:kept] if kept else None
                seed = turn_seed(episode.group, index, ctx, 1)
                requests.append(Request(episode.prompt.observation, seed, prefix, prompt_id=(episode.group, "branch")))
        sampled = ctx.engine.sample(requests, ctx.sampling) if requests else []
        branches = [join(*parts, branch, ctx) for parts, branch in zip(asked, sampled)]
        return sorted([*answers, *branches], key=lambda episode: (episode.group, episode.sample_index))

    def _count_roots(self, wanted: range) -> int:
        if wanted.start or len(wanted) % (1 + self.branches):
            raise ValueError(
                f"rollout.branches={self.branches}: data.group_size={len(wanted)} must be a multiple of "
                f"{1 + self.branches}, and transforms cannot ask for further episodes of a prompt"
            )
        return len(wanted) // (1 + self.branches)

    def _entropies(self, episodes: Sequence[Episode], ctx: Context) -> list[Tensor]:
        """Entropy of each token [T] under the policy that sampled it."""
        if not episodes:
            return []
        found = score_rows(ctx.policy, collate(episodes, ctx.policy), lambda o: o.entropy, self.rows, ctx.device)
        return [row[: len(e.turns[0].completion.action)] for row, e in zip(found, episodes)]

    def _candidates(self, done: Completion, ctx: Context) -> Tensor:
        texts = [ctx.policy.decode([token]).strip() for token in done.action.tolist()]
        return torch.tensor([len(text) >= self.min_characters for text in texts], dtype=torch.bool)


def join(episode: Episode, root: Completion, kept: int, branch: Completion, ctx: Context) -> Episode:
    """Build the episode of a branch: the first `kept` tokens of the answer as context, then what was sampled."""
    left = ctx.sampling.max_tokens - kept  # an answer from the prompt would have been cut there
    action, log = branch.action[:left], branch.behavior_logprobs[:left]
    ids = torch.cat([root.action[:kept], action])
    cut = len(branch.action) > left
    extra = {**branch.extra}
    for name in filter(per_choice, branch.extra):
        own = branch.extra[name][:left]
        extra[name] = torch.cat([own.new_full((kept, *own.shape[1:]), pad_value(name)), own])
    if "packed_support_ids" in extra:  # end to end, as many for each choice as `support_sizes` says
        extra["packed_support_ids"] = extra["packed_support_ids"][: int(extra["support_sizes"].sum())]
    ended = "length" if cut and branch.ended == "done" else branch.ended
    done = replace(
        branch,
        observation=root.observation,
        prompt_id=root.prompt_id,
        action=ids,
        behavior_logprobs=torch.cat([log.new_zeros(kept), log]),
        action_mask=torch.arange(len(ids)) >= kept,
        output=ctx.policy.decode(ids.tolist()),
        extra=extra,
        ended=ended,
    )
    return replace(episode, turns=[Turn(done)], ended=ended, info={"kept": kept})
