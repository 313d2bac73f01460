"""Say that a policy answers all problems alike, which no success rate shows."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.types import Episode

LONGEST = 60  # characters of the answer that are shown


def describe_single_answer(episodes: Sequence[Episode]) -> str | None:
    """Return one sentence where all finished episodes of several problems have the same text as their answer, or None.

    A policy that says "no" to all questions, most of which have this answer, has a high success rate.

    Args:
        episodes: of one decode, as `Episode.light` gives them.
    """
    finished = [episode for episode in episodes if episode.ended != "error"]
    answers = {episode.info.get("answer") for episode in finished}
    problems = {episode.prompt.key for episode in finished}
    if len(problems) < 2 or len(answers) != 1 or not isinstance(answer := answers.pop(), str):
        return None
    return f"all {len(problems)} problems got the same answer, {answer[:LONGEST]!r}: compare with its share of them"
