"""Demonstrations with tool calls: the turns are the task's script, the tools execute its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling
from mmrl.rollouts.offline.demonstrations import add_row_seeds, demonstrated_choices
from mmrl.rollouts.text.tools import ActiveEpisode, ToolUse
from mmrl.tools.base import Tool
from mmrl.tools.call_parser import ToolCallParser


class ToolDemonstrations(ToolUse):
    """Demonstrations of tool use, one per prompt, from the task's script; the tokens of results are masked.

    Args:
        tools: as for ToolUse, and so are parser, max_turns and functions.
        parser: how the script writes its calls.
        max_turns: calls that are executed.
        cache_episodes: keep the encoded demonstrations in memory, for small sets that are used many times.
        functions: plain functions as tools.
    """

    def __init__(
        self,
        tools: dict[str, Tool] | None = None,
        parser: ToolCallParser | None = None,
        max_turns: int = 4,
        cache_episodes: bool = False,
        functions: list[str] | None = None,
    ):
        super().__init__(tools, parser, max_turns, functions)
        self.cache_episodes = cache_episodes
        self._cache: dict[str, Episode] = {}

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"row_seed"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        cache = dict(self._cache) if self.cache_episodes else {}
        missing = [(slot, prompt) for slot, prompt in prompts if prompt.key not in cache]
        for episode in super().collect(missing, replace(ctx, group_size=1)):
            cache[episode.prompt.key] = replace(episode, source="demo")
        if self.cache_episodes:
            self._cache = cache
        return [_place(cache[prompt.key], slot, ctx) for slot, prompt in prompts]

    def sample(self, ready: Sequence[ActiveEpisode], ctx: Context, sampling: Sampling) -> list[Completion]:
        return [self._scripted_turn(play, ctx) for play in ready]

    def _scripted_turn(self, play: ActiveEpisode, ctx: Context) -> Completion:
        prompt, turn = play.episode.prompt, play.turns
        turns = ctx.task.script(prompt.index)
        text = turns[min(turn, len(turns) - 1)]
        observation = play.script.observation if play.script.turns else ctx.policy.encode(play.script.raw)
        # only the answer ends with the end of the text, or every turn of a chat model
        last = turn >= len(turns) - 1 or self.chat
        ids = ctx.policy.encode_demonstration(play.script.raw, text) if last else ctx.policy.tokenize(text)
        return demonstrated_choices(ids, observation, text)


def _place(episode: Episode, slot: int, ctx: Context) -> Episode:
    """Return a kept episode for a slot of this iteration: rows of one `prompt_id` are read as one prompt's."""
    turns = [
        turn
        if turn.completion.prompt_id is None
        else replace(turn, completion=replace(turn.completion, prompt_id=slot))
        for turn in episode.turns
    ]
    return replace(episode, group=slot, turns=add_row_seeds(turns, slot, ctx))
