"""CURE: sample further completions from prefixes that end before a token of high entropy.

CURE: Critical-Token-Guided Re-Concatenation for Entropy-Collapse Prevention, 2025, arXiv:2508.11016.

- the tokens at which a completion can be restarted: `rank_candidates`
- branches of each completion, in the group of their prompt: `BranchAtEntropy`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.annotators.logprobs import evaluate_rows
from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Context, Episode, Request, Turn
from mmrl.data.collate import collate
from mmrl.distributed.whole_weights import refuse_sharded
from mmrl.rollouts.text.forced import surround
from mmrl.rollouts.text.joined import truncate
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.steps import fit_texts


def rank_candidates(entropy: Sequence[float], texts: Sequence[str], count: int, min_characters: int) -> list[int]:
    """Places of the tokens with the highest entropy, highest first, at most `count`.

    The first token and tokens with a shorter text are left out; text is counted without the space around it. Source:
    CURE, 2025, critical tokens, arXiv:2508.11016.
    """
    places = [place for place in range(1, len(entropy)) if len(texts[place].strip()) >= min_characters]
    return sorted(places, key=lambda place: -entropy[place])[:count]


@dataclass(frozen=True)
class BranchAtEntropy(EpisodeTransform):
    """Samples further completions of each completion, restarted before one of its tokens of highest entropy.

    One of the candidates is drawn for each completion; its tokens before that place are kept, as forced tokens that are
    not trained on, and the policy goes on from there, `branches` times. Without a candidate the whole completion is
    sampled again. Branches are scored and join the group, which has group_size (1 + branches) episodes. Put it before
    transforms that drop groups. It is for completions of one row, sampled without truncation. Source: CURE, 2025, first
    stage, arXiv:2508.11016.

    Args:
        branches: of each completion.
        candidates: tokens of highest entropy among which one is drawn.
        min_characters: of a candidate's text.
        rows: per forward pass that computes the entropies.
    """

    branches: int = 3
    candidates: int = 20
    min_characters: int = 2
    rows: int = 64

    def __post_init__(self) -> None:
        check_at_least(1, "branch_at_entropy", branches=self.branches, candidates=self.candidates, rows=self.rows)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if not episodes:
            return episodes
        if any(len(episode.turns) != 1 for episode in episodes):
            raise ValueError("branch_at_entropy restarts completions of one row; leave it out of data.transforms here")
        refuse_sharded(ctx.policy, "branch_at_entropy")
        # (rows, choices) entropy in nats under the current policy, one row per completion
        entropy = evaluate_rows(
            ctx.policy, collate(episodes, ctx.policy), lambda batch: ctx.policy(batch).entropy, self.rows, ctx.device
        )
        # one prefix per completion, up to a token of high entropy, and `branches` requests that continue it
        prefixes, requests = [], []
        for episode, row in zip(episodes, entropy.tolist()):
            ids = episode.turns[0].completion.action
            key = (ctx.seed, ctx.purpose, "branch", ctx.iteration, episode.group, episode.sample_index)
            prefix = ids[: self._draw_place(ids.tolist(), str(episode.output), row, ctx, key)]
            for number in range(self.branches):
                prefixes.append((episode, prefix))
                forced_ids = prefix if len(prefix) else None
                raw = episode.prompt.observation
                requests.append(
                    Request(raw, derive_seed(*key, number), forced_ids, prompt_id=("branch", episode.group))
                )
        sampled = ctx.engine.sample(requests, ctx.sampling)
        # (prefix + new choices) rows: prefix tokens are forced, so the loss masks them; the row keeps the first context
        groups, new = group_episodes(episodes), []
        for (episode, prefix), done in zip(prefixes, sampled):
            first, group = episode.turns[0].completion, groups[episode.group]
            done = truncate(done, ctx.sampling.max_tokens - len(prefix))
            text = ctx.policy.decode([*prefix.tolist(), *done.action.tolist()])
            row = surround(done, prefix, prefix[:0], text)
            row = replace(row, observation=first.observation, prompt_id=first.prompt_id)
            # the next free index of the group, so that baselines include the branches
            number = max(other.sample_index for other in group) + 1
            branch = Episode(episode.prompt, episode.group, number, [Turn(row)], ended=row.ended)
            branch.info["prefix"] = len(prefix)
            group.append(branch)
            new.append(branch)
        # rewards of the branches alone; completions that failed in the engine leave their group
        ctx.collector.score(new)
        return [episode for group in groups.values() for episode in group if episode.ended != "error"]

    def _draw_place(self, ids: list[int], output: str, entropy: Sequence[float], ctx: Context, key: tuple) -> int:
        """Draw a candidate; 0 where there is none."""
        texts = fit_texts(ctx.policy.token_texts(ids), output)
        places = rank_candidates(entropy[: len(ids)], texts, self.candidates, max(self.min_characters, 1))
        return places[int(derive_rng(*key).integers(len(places)))] if places else 0
