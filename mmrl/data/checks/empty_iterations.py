"""Stop a run after several iterations without a row to learn from; the error states the likely cause."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes
from mmrl.core.text_environment import EnvironmentTask
from mmrl.core.types import Episode
from mmrl.rollouts.text.environment_episode import UNPARSABLE

log = logging.getLogger(__name__)

ANSWER_LENGTH = 80  # characters of an answer in a message
ERROR_LENGTH = 400  # characters of an error in a message
ANSWERS = 3  # of the commonest ones
REMEDIES = (
    "read what the policy writes (mmrl show RUN) and what the verifier expects; an easier task or a start that solves "
    "some problems (trainer.callbacks.warm_start); more episodes per prompt (data.group_size) or a higher "
    "sampling.temperature, so that the episodes of one prompt differ; a reward with partial credit (reward=...); a "
    "transform that drops less (data.transforms). data.max_empty_iterations changes the limit"
)


class NothingToLearn(RuntimeError):
    """Several iterations in a row had no episode to learn from."""


class EmptyIterations:
    """Counts iterations in a row without a row to learn from.

    A run in which every episode earns the best reward that it has seen is finished: it ends as after its last
    iteration. Any other run of `limit` empty iterations is an error.

    Args:
        limit: empty iterations in a row at which the run stops.
        extract_key: of the setting that finds the answer in a completion, for messages; None where there is none.
    """

    def __init__(self, limit: int, extract_key: str | None = "task.extract"):
        check_at_least(1, "data", max_empty_iterations=limit)
        self.limit, self.extract_key = limit, extract_key
        self.count = 0
        self.rewards: tuple[float, float] | None = None  # smallest and largest reward of the run

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "rewards": self.rewards}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state.get("count", 0)
        rewards = state.get("rewards")
        self.rewards = None if rewards is None else (rewards[0], rewards[1])

    def observe(self, episodes: Sequence[Episode], rows: int, iteration: int) -> bool:
        """Whether the run is finished because every problem is solved. Raises NothingToLearn if it cannot learn.

        Args:
            episodes: light ones of all ranks, before any was dropped.
            rows: that are left to learn from, on all ranks.
            iteration: of these episodes.
        """
        # range of the rewards over the whole run, to recognise a task that is solved
        earned = [episode.reward for episode in episodes if episode.ended != "error"]
        if earned:
            least, greatest = self.rewards or (earned[0], earned[0])
            self.rewards = min(least, *earned), max(greatest, *earned)
        self.count = 0 if rows else self.count + 1
        if self.count == 1 < self.limit:
            reason = describe(episodes, self.extract_key)
            log.warning("iteration %d left no episode to learn from. %s", iteration, reason)
        if self.count < self.limit:
            return False
        # solved: every episode earned the highest reward, and lower rewards occurred before
        if earned and self.rewards and self.rewards[0] < self.rewards[1] == min(earned):
            log.warning(
                "iteration %d: every episode of %d iterations in a row earned %g, the highest reward of this run; "
                "there is nothing left to learn from these problems, and training ends here",
                iteration,
                self.count,
                self.rewards[1],
            )
            return True
        raise NothingToLearn(
            f"{self.count} iterations in a row, up to iteration {iteration}, left no episode to learn from. "
            f"{describe(episodes, self.extract_key)}"
        )


def find_extract_key(task: Any, rollout: Any) -> str | None:
    """Return the key of the setting that finds the answer or the action in a completion; None if there is none."""
    if isinstance(task, EnvironmentTask):
        return "rollout.extract" if hasattr(rollout, "extractor") else None
    if isinstance(getattr(task, "parts", None), Mapping):
        return "task.parts.NAME.extract"
    return "task.extract" if hasattr(task, "extract") else None


def describe(episodes: Sequence[Episode], extract_key: str | None = "task.extract") -> str:
    """Format why no group differs: rewards, scores, missing answers, truncation, commonest answers, and remedies."""
    groups = group_episodes(episodes).values()
    finished = [episode for episode in episodes if episode.ended != "error"]
    parts = [f"There were {len(groups)} groups with {len(episodes)} episodes"]
    # errors first: without a finished episode there is nothing else to report
    if failed := len(episodes) - len(finished):
        errors = Counter(str(e.info["error"]) for e in episodes if e.ended == "error" and "error" in e.info)
        cause = "".join(f", such as: {error[:ERROR_LENGTH]}" for error, _ in errors.most_common(1))
        parts.append(f"{failed} of them ended in an error{cause}")
        if not finished:
            return "; ".join(parts) + ". What to try: remove the cause of that error"
    if finished:
        # groups without variance, the commonest rewards, and the mean of each score
        alike = sum(len({round(episode.reward, 6) for episode in group}) == 1 for group in groups)
        rewards = Counter(round(episode.reward, 6) for episode in finished).most_common(3)
        parts.append(f"in {alike} groups all episodes earned the same")
        parts.append("rewards " + ", ".join(f"{value:g} ({count} times)" for value, count in rewards))
        names = sorted({name for episode in finished for name in episode.scores})
        means = {n: [e.scores[n] for e in finished if n in e.scores] for n in names}
        parts += [f"mean score {name} {sum(values) / len(values):.3g}" for name, values in means.items()]
    # completions at the token limit, and completions without an answer
    truncated = [episode for episode in finished if episode.ended == "length"]
    if truncated:
        parts.append(f"{len(truncated)} of {len(finished)} completions were cut off at sampling.max_tokens")
    extracted = [episode.info["extracted"] for episode in finished if "extracted" in episode.info]
    missing = extracted.count(None)
    if extracted:
        subject = f"{extract_key} found no answer" if extract_key else "no answer was found"
        parts.append(f"in {missing} of {len(extracted)} completions {subject}")
    # turns without an action, in environments
    played = [e.info for e in finished if UNPARSABLE in e.info.get("counts", {})]
    turns, unparsable = (sum(info["turns"] for info in played), sum(info["counts"][UNPARSABLE] for info in played))
    if unparsable:
        parts.append(f"in {unparsable} of {turns} turns {extract_key or 'the rollout'} found no action")
    # the commonest answers: those of the extractor, else the whole outputs
    replies = [str(e.info["answer"]) for e in episodes if "answer" in e.info]
    answers = [str(answer) for answer in extracted if answer is not None] or replies
    if answers:
        common = ", ".join(
            f"{a[:ANSWER_LENGTH]!r} ({n} of {len(answers)})" for a, n in Counter(answers).most_common(ANSWERS)
        )
        parts.append(f"the commonest answers are {common}")
    # remedies, the likeliest first
    first = []
    if 2 * len(truncated) > len(finished):
        first.append("longer completions (sampling.max_tokens)")
    form = ", task.state_form=true, or a task.system that asks for its format" if extract_key == "task.extract" else ""
    if extract_key and (2 * missing > len(extracted) or 2 * unparsable > turns):
        first.append(f"another {extract_key}{form}")
    elif form and replies and not extracted and all(episode.scores.get("exact") == 0 for episode in finished):
        first.append("task.extract=answer (or last_number, boxed, ...) if the right answer stands inside a sentence")
        first.append("task.state_form=true if the prompt does not say how answers are written")
    return "; ".join(parts) + ". What to try: " + "; ".join([*first, REMEDIES])
