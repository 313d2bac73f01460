"""Process Supervision-Guided Policy Optimization: rewards of the lines of a program, from a model or from a search.

Process Supervision-Guided Policy Optimization for Code Generation, 2024, arXiv:2410.17621.

- the labels of lines that a process reward model predicts, as rewards per token: `LineRewards`
- the last line from which completions pass, by binary search: `PrefixSearch`
- 1 for lines up to it and -1 for later ones, as rewards per token: `LineLabels`, the labels themselves
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_seed
from mmrl.core.types import Context, Episode, Request, Turn
from mmrl.rewards.steps import StepScorer, split_steps
from mmrl.rollouts.text.forced import surround
from mmrl.rollouts.text.joined import truncate
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.steps import fit_texts, locate_steps


class PrefixSearch:
    """Binary search for the longest prefix of a program, in lines, from which a completion still passes.

    It assumes that shorter prefixes pass too. The prompt alone counts as one after which some completion passes. n
    lines take at most log2(n + 1) probes, rounded up. Source: arXiv:2410.17621, automated supervision by binary search.

    Args:
        lines: of the program.
    """

    def __init__(self, lines: int):
        self.alive, self.dead = 0, lines + 1

    @property
    def probe(self) -> int | None:
        """Number of lines to complete next; None at the end."""
        return (self.alive + self.dead) // 2 if self.dead - self.alive > 1 else None

    def tell(self, passes: bool) -> None:
        """Update the bounds by whether a completion of the probe passed."""
        middle = (self.alive + self.dead) // 2
        self.alive, self.dead = (middle, self.dead) if passes else (self.alive, middle)


def neutralise_lines(lines: Sequence[str], labels: Sequence[float]) -> list[float]:
    """Replace the labels of blank lines and comments by 0, so that they earn nothing."""
    return [0.0 if not line.strip() or line.strip()[0] == "#" else label for line, label in zip(lines, labels)]


def label_lines(lines: Sequence[str], alive: int) -> list[float]:
    """Label the first `alive` lines 1, later ones -1, and blank lines and comments 0."""
    return neutralise_lines(lines, [1.0 if k < alive else -1.0 for k in range(len(lines))])


def locate_lines(episodes: Sequence[Episode], ctx: Context) -> tuple[list[list[str]], list[Tensor]]:
    """Return the lines of each program, and (tokens,) the number of the line of each of its tokens."""
    lines = [split_steps(str(episode.output)) for episode in episodes]
    actions = [episode.turns[0].completion.action.tolist() for episode in episodes]
    return lines, [
        locate_steps(fit_texts(ctx.policy.token_texts(action), str(episode.output)), program)
        for action, episode, program in zip(actions, episodes, lines)
    ]


def write_rewards(episode: Episode, row: Tensor, rewards: Sequence[float]) -> None:
    """Write the reward of each line at its last token, (tokens,), and 0 elsewhere.

    Args:
        episode: a program of one row.
        row: number of the line of each token, (tokens,).
        rewards: of the lines.
    """
    done, out = episode.turns[0].completion, torch.zeros(len(row))
    for k, reward in enumerate(rewards):
        inside = (row == k).nonzero()
        if len(inside):
            out[int(inside[-1])] = reward
    episode.turns = [Turn(replace(done, extra={**done.extra, "token_rewards": out}))]


@dataclass(frozen=True)
class LineRewards(EpisodeTransform):
    """Write `token_rewards`: weight * (2 p - 1) / number of lines at the last token of each line of a program.

    p is the probability of a process reward model that the line is right, so that 2 p - 1 is the expected label; blank
    lines and comments get 0. Source: Process Supervision-Guided Policy Optimization for Code Generation, 2024,
    arXiv:2410.17621.

    Args:
        scorer: of lines, in [0, 1].
        weight: of the labels beside the reward, the paper's lambda.
        normalise: divide by the number of lines, so that more lines earn no more.
    """

    scorer: StepScorer
    weight: float = 0.25
    normalise: bool = True

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if any(len(episode.turns) != 1 for episode in episodes):
            raise ValueError("line_rewards is for completions of one row; leave it out of data.transforms here")
        lines, rows = locate_lines(episodes, ctx)
        scores = self.scorer.bind(ctx).score_steps(episodes, lines)
        for episode, row, program, probabilities in zip(episodes, rows, lines, scores):
            labels = neutralise_lines(program, [2 * p - 1 for p in probabilities])
            scale = self.weight / (len(program) if self.normalise else 1)
            write_rewards(episode, row, [scale * label for label in labels])
        return episodes


@dataclass(frozen=True)
class LineLabels(EpisodeTransform):
    """Write `token_rewards`: weight * label / number of lines at the last token of each line of a program.

    The label of a line says whether one of `continuations` completions of the program up to it passes; they are sampled
    and scored here and not trained on. Programs that pass are labelled without a search. It is for completions of one
    row. Source: Process Supervision-Guided Policy Optimization for Code Generation, 2024, arXiv:2410.17621.

    Args:
        continuations: K, of each probed prefix.
        weight: of the labels beside the reward, the paper's lambda.
        normalise: divide by the number of lines, so that more lines earn no more.
        score_name: of the score that is 1 for a program that passes.
    """

    continuations: int = 20
    weight: float = 0.25
    normalise: bool = True
    score_name: str = "exact"

    def __post_init__(self) -> None:
        check_at_least(1, "line_labels", continuations=self.continuations)

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if any(len(episode.turns) != 1 or self.score_name not in episode.scores for episode in episodes):
            raise ValueError(
                f"line_labels is for completions of one row with a score {self.score_name!r}; use a task that runs "
                "programs, such as code, or leave it out of data.transforms"
            )
        lines, rows = locate_lines(episodes, ctx)
        # all searches probe in the same pass, so that each pass is one batch of the engine; passing programs need none
        searches = [
            PrefixSearch(0 if e.scores[self.score_name] >= 1 else len(program)) for e, program in zip(episodes, lines)
        ]
        while any(search.probe is not None for search in searches):
            self._probe(episodes, rows, searches, ctx)
        for episode, program, row, search in zip(episodes, lines, rows, searches):
            passed = episode.scores[self.score_name] >= 1
            labels = label_lines(program, len(program) if passed else search.alive)
            write_rewards(episode, row, [self.weight * v / (len(program) if self.normalise else 1) for v in labels])
        return episodes

    def _probe(
        self, episodes: Sequence[Episode], rows: Sequence[Tensor], searches: Sequence[PrefixSearch], ctx: Context
    ) -> None:
        """Complete the probed prefix of every unfinished search, and update the search."""
        probes, requests = [], []
        for number, (episode, step, search) in enumerate(zip(episodes, rows, searches)):
            if search.probe is None:
                continue
            prefix = episode.turns[0].completion.action[step < search.probe]
            key = (ctx.seed, ctx.purpose, ctx.iteration, "line", episode.group, episode.sample_index, search.probe)
            for k in range(self.continuations):
                raw, forced_ids = episode.prompt.observation, prefix if len(prefix) else None
                requests.append(Request(raw, derive_seed(*key, k), forced_ids, prompt_id=("line", episode.group)))
                probes.append((number, prefix))
        trials: list[Episode] = []
        for (number, prefix), done in zip(probes, ctx.engine.sample(requests, ctx.sampling)):
            done = truncate(done, ctx.sampling.max_tokens - len(prefix))
            text = ctx.policy.decode([*prefix.tolist(), *done.action.tolist()])
            row = Turn(surround(done, prefix, prefix[:0], text))
            trials.append(Episode(episodes[number].prompt, number, len(trials), [row], ended=done.ended))
        ctx.collector.score(trials)
        passed = {each.group for each in trials if each.scores.get(self.score_name, 0.0) >= 1}
        for number in dict.fromkeys(number for number, _ in probes):
            searches[number].tell(number in passed)
