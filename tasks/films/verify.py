"""Traces of answers: actions with observations, whether these are true, and whether they suffice for an answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.films.film import ANIMALS, VERBS, Film

_STEP = re.compile(r"(find|look) ([a-z0-9 ]+): ?(.*)")
_STATE = re.compile(rf"({'|'.join(ANIMALS)}) ({'|'.join(VERBS)})")

Step = tuple[str, str, str]
"""Name and argument of an action, and its observation."""


def parse_trace(text: str) -> tuple[list[Step], str]:
    """Return the steps `find EVENT: FRAMES` and `look FRAME: STATES` of an answer, and its last line.

    Lines before the last one that are no step are left out.
    """
    *lines, answer = [line.strip() for line in text.strip().splitlines()] or [""]
    matches = [_STEP.fullmatch(line) for line in lines]
    return [(match[1], match[2], match[3]) for match in matches if match], answer


def is_well_formed(text: str) -> bool:
    """Whether an answer is one or more steps, a line each, and then one verb."""
    steps, answer = parse_trace(text)
    return bool(steps) and len(steps) == len(text.strip().splitlines()) - 1 and answer in VERBS


def read_states(text: str) -> list[tuple[str, str]] | None:
    """Read `cat sits, fox runs` as pairs; None if it is something else."""
    matches = [_STATE.fullmatch(part.strip()) for part in text.split(",")]
    return [(match[1], match[2]) for match in matches if match] if all(matches) else None


def judge_step(film: Film, step: Step) -> float:
    """Score of an observation against the detailed captions, in [0, 1].

    Of `find` 1 for exactly the frames of the event, of `look` the share of the states that hold in the frame; 0 for
    what cannot be read.
    """
    name, argument, observation = step
    if name == "find":
        event = read_states(argument)
        frames = " ".join(map(str, film.find(*event[0]))) if event and len(event) == 1 else None
        return float(observation == (frames or "none")) if frames is not None else 0.0
    states = read_states(observation)
    if states is None or not argument.isdigit() or not 1 <= int(argument) <= len(film.frames):
        return 0.0
    frame = film.frames[int(argument) - 1]
    return sum(frame.get(animal) == verb for animal, verb in states) / len(states)


def mean_observation_score(film: Film, steps: Sequence[Step]) -> float:
    """Mean over the steps of `judge_step` of those that the question needs, and of 0 for others; 0 without any.

    Needed are the search for the event and the look at the frame that was found, each once: true lines about anything
    else lower the mean.
    """
    event = " ".join(film.event)
    frame = next((text for name, argument, text in reversed(steps) if (name, argument) == ("find", event)), None)
    needed = {step for step in steps if step[:2] in (("find", event), ("look", frame))}
    return sum(judge_step(film, step) for step in needed) / len(steps) if steps else 0.0


def answer_from_trace(question: tuple[tuple[str, str], str], steps: Sequence[Step]) -> str | None:
    """Answer a question, (event, asked animal), from actions and observations alone; None where they do not suffice.

    The event has to be found in one frame, of several such steps in that of the last one, and that frame has to be
    looked at; the film is not read. Looks that contradict each other do not suffice. It stands in for the text model of
    ReWatch-R1.
    """
    event, target = question
    frames = [observation for name, argument, observation in steps if (name, argument) == ("find", " ".join(event))]
    looks = [read_states(text) for name, argument, text in steps if frames and (name, argument) == ("look", frames[-1])]
    verbs = {verb for states in looks for animal, verb in states or () if animal == target}
    return verbs.pop() if len(verbs) == 1 else None
