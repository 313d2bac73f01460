"""Scenes with an altered copy, for the game "who is the spy"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.scenes.counting import Counting
from tasks.scenes.scene import Painted, Scene, Shape
from tasks.scenes.task import SceneProblem

STAGES = ("count", "clue", "vote")


@dataclass(frozen=True, kw_only=True)
class SpyScenes(Counting):
    """Counting whose prompts have `info["altered"]`, the picture with one object in another colour.

    An expert's clue is a colour's first letter and the number of its objects, "r2". Its vote is the one player whose
    clue does not fit the picture.

    Args:
        players: of the game that is demonstrated.
        stages: of training problems, in turn: "count" asks as `Counting`, "clue" and "vote" are prompts of a player in
            the game. Held-out problems ask for counts.
        clue_prompt: as the rollout has it, with {clues}.
        vote_prompt: as the rollout has it, with {clues}.
    """

    players: int = 4
    stages: Sequence[str] = ("count",)
    clue_prompt: str = "{clues}\nclue:"
    vote_prompt: str = "{clues}\nspy:"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "stages", tuple(self.stages))  # configurations give lists
        if self.painter is not None or len(self.colours) < 2 or self.players < 3:
            raise ValueError(
                f"task {self.name!r}: a game needs flat shapes (painter=null), 2 colours and 3 players or more, got "
                f"painter={self.painter}, colours={list(self.colours)} and players={self.players}"
            )
        if not self.stages or not set(self.stages) <= set(STAGES):
            raise ValueError(f"task {self.name!r}: stages must be of {', '.join(STAGES)}, got {list(self.stages)}")

    def stage(self, index: int) -> str:
        """Return what a problem asks for."""
        return self.stages[index % len(self.stages)] if self.split == "train" else "count"

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        problem = super().ask(rng)
        return problem if problem is None or problem.scene.shapes else None  # an empty scene has nothing to alter

    def alter(self, scene: Painted, key: str) -> Scene:
        """Return the scene with one object in another colour."""
        assert isinstance(scene, Scene)
        rng = derive_rng("spy", self.seed, key)
        shapes: list[Shape] = list(scene.shapes)
        place = int(rng.integers(len(shapes)))
        others = [colour for colour in self.colours if colour != shapes[place].colour]
        shapes[place] = replace(shapes[place], colour=others[int(rng.integers(len(others)))])
        return replace(scene, shapes=tuple(shapes))

    def write_prompt(self, problem: SceneProblem, key: str) -> Prompt:
        prompt = super().write_prompt(problem, key)
        prompt = replace(prompt, info={**prompt.info, "altered": self.alter(problem.scene, key).render()})
        text, answer = self._play(problem.scene, key)
        if not text:
            return prompt
        content = [{"type": "image"}, {"type": "text", "text": text}]
        return replace(prompt, messages=({"role": "user", "content": content},), answer=answer)

    def demonstrate(self, index: int) -> str:
        key = f"{self.name}/{self.split}/{index}"
        return self._play(self.problem(index).scene, key)[1] or super().demonstrate(index)

    def _play(self, scene: Painted, key: str) -> tuple[str, str]:
        """Return text and answer of a player's prompt in a game of experts; two empty texts where counts are asked."""
        stage = self.stage(int(key.rsplit("/", 1)[1]))
        if stage == "count":
            return "", ""
        rng = derive_rng("spy", "game", self.seed, key)
        spy, altered = int(rng.integers(self.players)), self.alter(scene, key)
        colours = [self.colours[int(rng.integers(len(self.colours)))] for _ in range(self.players)]
        # the spy's clue is one that the alteration has made wrong
        changed = [c for c in self.colours if count_colour(scene, c) != count_colour(altered, c)]
        colours[spy] = changed[int(rng.integers(len(changed)))]
        clues = [write_clue(altered if player == spy else scene, colour) for player, colour in enumerate(colours)]
        lines = [f"{player + 1}: {clue}" for player, clue in enumerate(clues)]
        if stage == "vote":
            return self.vote_prompt.replace("{clues}", "\n".join(lines)), str(spy + 1)
        earlier = int(rng.integers(self.players))
        text = self.clue_prompt.replace("{clues}", "\n".join(lines[:earlier]))
        return text, write_clue(scene, self.colours[int(rng.integers(len(self.colours)))])


def count_colour(scene: Painted, colour: str) -> int:
    """Number of objects of a colour."""
    return sum(shape.colour == colour for shape in scene.shapes)


def write_clue(scene: Painted, colour: str) -> str:
    """First letter of a colour and the number of its objects."""
    return f"{colour[0]}{count_colour(scene, colour)}"
