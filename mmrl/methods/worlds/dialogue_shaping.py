"""Dialogue Shaping: an interview with a character of the world gives a graph whose growth in the agent's own is reward.

Dialogue Shaping: Empowering Agents through NPC Interaction, 2023, arXiv:2307.15833, with the reward of Story Shaping,
2023, arXiv:2301.10107.

- who asks a character: `ScriptedInterviewer`, `ModelInterviewer`; for comparison `RandomTriples`
- triples (subject, relation, object) of sentences: `SentenceTriples`
- S = |G & G*| / |G | G*| of the agent's graph G and the target G*: `graph_similarity`
- r_t = r_env + c (S_t - S_{t-1}): `DialogueShaping`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.text_environment import EnvironmentTask, TextStep
from mmrl.core.types import Context, Episode, Prompt
from mmrl.rollouts.text.environment import EnvironmentRollout, RunningEpisode
from mmrl.tools.programs.writers import ChatWriter

Triple = tuple[str, str, str]
"""Subject, relation and object, as ("you", "have", "key")."""
Ask = Callable[[str], str]
"""Puts a question to the character and returns its answer."""
_LINE = re.compile(r"\(\s*([^,()]+?)\s*,\s*([^,()]+?)\s*,\s*([^,()]+?)\s*\)")
_THING = r"the (\w+)(?: on the (\w+))?"


def graph_similarity(graph: Collection[Triple], target: Collection[Triple]) -> float:
    """Jaccard index |G & G*| / |G | G*| of two graphs; 1 where both are empty."""
    union = set(graph) | set(target)
    return len(set(graph) & set(target)) / len(union) if union else 1.0


@runtime_checkable
class TripleReader(Protocol):
    """Reads triples from observations and answers."""

    def extract(self, text: str) -> set[Triple]:
        """The triples that a text states."""


@dataclass(frozen=True)
class SentenceTriples:
    """Triples of plain sentences, by patterns.

    "You have the key and the cup." and "You need to have the key." are (you, have, ...); "The key is in the attic." is
    (key, in, attic); "The cup is to be put on the shelf." is (cup, on, shelf). "You see the table and the cup on the
    shelf." is (table, in, ...) and (cup, in, ...) with the room of "You are in the ...", and (cup, on, shelf).

    Args:
        relations: that are kept.
    """

    relations: tuple[str, ...] = ("have", "in", "on")

    def __post_init__(self) -> None:
        object.__setattr__(self, "relations", tuple(self.relations))
        if not self.relations or set(self.relations) - {"have", "in", "on"}:
            raise ValueError(f"rollout.reader.relations: name some of have, in and on, got {list(self.relations)}")

    def extract(self, text: str) -> set[Triple]:
        room, triples = "", set[Triple]()
        for sentence in re.split(r"[.\n]", text.lower()):
            if match := re.search(r"you are in the (\w+)", sentence):
                room = match[1]
            elif match := re.search(r"^\s*you see (.*)", sentence):
                for name, place in re.findall(_THING, match[1]):
                    triples |= {(name, "in", room)} if room else set()
                    triples |= {(name, "on", place)} if place else set()
            elif match := re.search(r"^\s*you (?:need to )?have (.*)", sentence):
                triples |= {("you", "have", name) for name, _ in re.findall(_THING, match[1])}
            elif match := re.search(r"the (\w+) is (?:to be put )?(in|on) the (\w+)", sentence):
                triples.add((match[1], match[2], match[3]))
        return {triple for triple in triples if triple[1] in self.relations}


@runtime_checkable
class Interviewer(Protocol):
    """Asks a character before training."""

    def interview(self, ask: Ask, task: str, reader: TripleReader, key: str) -> set[Triple]:
        """The target graph.

        Args:
            ask: puts a question to the character.
            task: what the agent is to do, in words.
            reader: reads triples from answers.
            key: of the world.
        """


@dataclass(frozen=True)
class ScriptedInterviewer:
    """Asks prepared questions, and then where each thing is that was named, until nothing new is named.

    Args:
        questions: that are asked first.
        most: questions at most.
    """

    questions: tuple[str, ...] = ("What shall I do?", "What do I need?")
    most: int = 12

    def __post_init__(self) -> None:
        check_at_least(1, "rollout.interviewer", most=self.most)

    def interview(self, ask: Ask, task: str, reader: TripleReader, key: str) -> set[Triple]:
        every, waiting, graph = SentenceTriples(), list(self.questions), set[Triple]()
        questions = set[str]()
        while waiting and len(questions) < self.most:
            question = waiting.pop(0)
            questions.add(question)
            answer = ask(question)
            graph |= reader.extract(answer)
            names = sorted({name for s, _, o in every.extract(answer) for name in (s, o)} - {"you"})
            follow_ups = [f"Where is the {name}?" for name in names]
            waiting += [each for each in follow_ups if each not in questions and each not in waiting]
        return graph


class ModelInterviewer(ChatWriter):
    """A language model behind OpenAI's interface asks the questions and writes the triples.

    It is asked for a question at a time until it says "done", and then for lines "(subject, relation, object)", of
    which the others are left out.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        model: name of the model at the server.
        questions: at most.
        temperature: of the model's sampling.
        connection: further options of `ChatWriter`.
    """

    place = "rollout.interviewer"

    def __init__(self, url: str, model: str, questions: int = 8, temperature: float = 0.0, **connection: Any):
        check_at_least(1, self.place, questions=questions)
        super().__init__(url, model, temperature, **connection)
        self.questions = questions

    def interview(self, ask: Ask, task: str, reader: TripleReader, key: str) -> set[Triple]:
        opening = (
            f"You will play a game in words. Your task: {task} Before it you may ask a character who knows the world. "
            "Write your next question and nothing else, or the word done when you know enough."
        )
        messages = [{"role": "user", "content": opening}]
        for number in range(self.questions):
            question = self.write(messages, number).strip()
            if question.lower().strip(" .!\"'") == "done":
                break
            messages += [{"role": "assistant", "content": question}, {"role": "user", "content": ask(question)}]
        closing = (
            "Write all that you have learned as lines of the form (subject, relation, object) with the relations have, "
            "in and on, as (you, have, key) for what you need."
        )
        answer = self.write([*messages, {"role": "user", "content": closing}], self.questions)
        return {(s.lower(), r.lower(), o.lower()) for s, r, o in _LINE.findall(answer)}


@dataclass(frozen=True)
class RandomTriples:
    """As many triples with the same relations, whose names are drawn: what shaping gives without knowledge.

    Args:
        interviewer: whose triples are counted.
        names: of the world, to draw from; "you" stays.
        seed: of the draws.
    """

    interviewer: Interviewer
    names: tuple[str, ...]
    seed: int = 0

    def interview(self, ask: Ask, task: str, reader: TripleReader, key: str) -> set[Triple]:
        rng, names = derive_rng("random triples", self.seed, key), list(self.names)
        triples = set[Triple]()
        for triple in sorted(self.interviewer.interview(ask, task, reader, key)):
            s, o = (name if name == "you" else str(rng.choice(names)) for name in (triple[0], triple[2]))
            triples.add((s, triple[1], o))
        return triples


@dataclass(eq=False)
class ShapedEpisode(RunningEpisode):
    """An episode that is paid for the growth of its graph; without a target it is paid by the world alone."""

    target: set[Triple] | None = None
    reader: TripleReader = field(default_factory=SentenceTriples)
    coefficient: float = 1.0
    form: str = "increase"
    graph: set[Triple] = field(default_factory=set)
    similarity: float = 0.0

    def read(self, step: TextStep) -> None:
        if self.target is not None:
            self.graph |= self.reader.extract(step.text)
            before, self.similarity = self.similarity, graph_similarity(self.graph, self.target)
            bonus = self.similarity - (before if self.form == "increase" else 0.0)
            reward = step.reward + (self.coefficient * bonus if self.actions else 0.0)  # a reset is no decision
            step = replace(step, reward=reward, scores={**step.scores, "graph": self.similarity})
        super().read(step)


class DialogueShaping(EnvironmentRollout):
    """Episodes of text worlds, paid for what the agent's graph has in common with that of an interview.

    Each world is asked about once, before its first episode. The agent's graph is that of all that it has observed in
    the episode. Evaluations have no interview and no such reward. The score `graph` is the similarity at the end.

    Args:
        interviewer: who asks the character of the world.
        reader: reads the triples of answers and observations.
        coefficient: c; 0 is training without shaping.
        form: "increase" pays c (S_t - S_{t-1}), "level" c S_t in every turn.
        options: those of `EnvironmentRollout`.
    """

    def __init__(
        self,
        interviewer: Interviewer,
        reader: TripleReader,
        coefficient: float = 1.0,
        form: Literal["increase", "level"] = "increase",
        **options: Any,
    ):
        super().__init__(**options)
        check_at_least(0, "rollout", coefficient=coefficient)
        if form not in ("increase", "level"):
            raise ValueError(f"rollout.form must be increase or level, got {form!r}")
        self.interviewer, self.reader, self.coefficient, self.form = interviewer, reader, coefficient, form
        self.targets: dict[str, set[Triple]] = {}  # by the key of the world

    def find_target(self, task: Any, prompt: Prompt) -> set[Triple]:
        """The graph of the interview about the world of a prompt, which is held once."""
        if not hasattr(task, "ask_character"):
            raise ValueError(
                f"rollout DialogueShaping interviews a character, and task {task.name!r} has none (ask_character); "
                "choose task=house, or give your task that method"
            )
        if prompt.key not in self.targets:
            described = " ".join(str(message["content"]) for message in prompt.messages)
            self.targets[prompt.key] = self.interviewer.interview(
                lambda question: task.ask_character(prompt, question), described, self.reader, prompt.key
            )
        return self.targets[prompt.key]

    def _play(
        self, slot: int, prompt: Prompt, sample_index: int, task: EnvironmentTask, ctx: Context
    ) -> RunningEpisode:
        target = self.find_target(task, prompt) if ctx.purpose == "train" else None
        return ShapedEpisode(
            Episode(prompt, slot, sample_index), task.max_turns, self.gamma, target=target, reader=self.reader,
            coefficient=self.coefficient, form=self.form, first_id=(slot, ctx.sample_indices(slot).start),
        )  # fmt: skip
