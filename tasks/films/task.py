"""Answer a question about a film after going back to the frames that it is about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_fraction, check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.films.film import ANIMALS, VERBS, Film, describe, draw_film, draw_frame
from tasks.films.verify import answer_from_trace, is_well_formed, mean_observation_score, parse_trace
from tasks.generated import GeneratedTask, ask_user


@dataclass(frozen=True)
class Films(GeneratedTask):
    """Questions of two hops about a film, a list of captions: what one animal does when another one does something.

    The answer is a trace, `find EVENT: FRAMES` and `look FRAME: STATES`, and a verb in the last line. The policy writes
    the observations itself, so that they can be wrong. Source: ReWatch-R1, 2025, arXiv:2509.23652, where a model reads
    videos and judges are models.

    Args:
        frames: number of frames, from 3 to 9.
        animals: number of animals, from 2 to 6.
        invented: probability that a demonstration shows a random observation in place of a true one.
    """

    frames: int = 5
    animals: int = 2
    invented: float = 0.0

    name = "films"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", "[3, 9]", frames=self.frames)
        check_interval(f"task {self.name!r}:", f"[2, {len(ANIMALS)}]", animals=self.animals)
        check_fraction(f"task {self.name!r}:", invented=self.invented)

    def draw(self, rng: np.random.Generator) -> Film | None:
        return draw_film(rng, self.frames, self.animals)

    def split_key(self, problem: Film) -> str:
        return "\n".join(problem.captions)

    def write_prompt(self, problem: Film, key: str) -> Prompt:
        text = "\n".join([*problem.captions, problem.question, ""])
        return Prompt(key, ask_user(text), answer=problem.answer, info={"film": problem})

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the last line is the answer; observed: mean truth of the observations; sufficient: the trace alone
        leads to the answer; format: steps, and a verb.
        """
        film: Film = prompt.info["film"]
        steps, verb = parse_trace(answer)
        return {
            "exact": float(verb == prompt.answer),
            "observed": mean_observation_score(film, steps),
            "sufficient": float(answer_from_trace((film.event, film.asked), steps) == prompt.answer),
            "format": float(is_well_formed(answer)),
        }

    def demonstrate(self, index: int) -> str:
        film = self.problem(index)
        rng = derive_rng(self.name, "invented", self.split, self.seed, index)
        number = film.find(*film.event)[0]
        frame = film.frames[number - 1]
        if rng.random() < self.invented:
            number = int(rng.integers(1, self.frames, endpoint=True))
        if rng.random() < self.invented:
            frame = draw_frame(rng, list(frame))
        steps = [f"find {' '.join(film.event)}: {number}", f"look {number}: {describe(frame)}"]
        return self.write_answer("\n".join([*steps, film.answer]))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(VERBS[int(rng.integers(len(VERBS)))])
