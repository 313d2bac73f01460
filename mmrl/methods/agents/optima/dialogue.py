"""Optima: dialogues of agents that each know a part of the facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Ended, Episode, Prompt, Request, Task, Turn
from mmrl.files.patterns import compile_pattern, fill_template
from mmrl.rollouts.base import Rollout, text_observation

VIEW = (
    "You are agent {agent} and know:\n{facts}\nThe others know more. Find out together: {question}\n"
    "Messages so far:\n{messages}\nWrite your next message, or the answer as <A>answer</A>."
)


@dataclass(frozen=True)
class Message:
    """One message of a dialogue: its text, and the completion that it is."""

    text: str
    completion: Completion


@dataclass(eq=False)
class Talk:
    """A dialogue: the messages so far, and the answer that was stated last."""

    slot: int
    prompt: Prompt
    number: int  # among the dialogues of the prompt
    messages: list[Message] = field(default_factory=list)
    answer: str | None = None
    agreed: bool = False  # whether an answer was stated twice in succession
    ended: Ended = "done"
    over: bool = False

    def write(self, done: Completion, answer: str | None, max_messages: int) -> None:
        """Append a message; `answer` is the one that it states, if any."""
        self.messages.append(Message(flatten(str(done.output)), done))
        if done.ended != "done":
            self.ended, self.over = done.ended, True
            return
        self.agreed = answer is not None and answer == self.answer
        self.answer = self.answer if answer is None else answer
        self.over = self.agreed or len(self.messages) >= max_messages


def flatten(text: str) -> str:
    """Return a text in one line, without spaces at its ends."""
    return " ".join(text.split())


class Dialogue(Rollout):
    """Rollout of dialogues: the agents write messages in turn until an answer is stated twice in succession.

    One policy writes for all agents. Each reads its facts, `info["facts"][agent]` of the prompt, the question, which is
    the prompt's last message, and the messages so far. A message is a row, and an episode is a dialogue, whose answer
    is the one that was agreed on, "" where none was within `max_messages` or a message was cut. `info["messages"]` are
    the texts. Source: Optima, 2024, section 2, arXiv:2410.08115; released code: train/datagenerate.py.

    Args:
        view: what an agent reads, with {facts}, {question} and {messages}, and {agent}, its number from 1, if wanted.
        separator: between the messages in a view.
        answer_pattern: regular expression of a stated answer, whose first group is the answer.
        max_messages: of a dialogue.
    """

    def __init__(
        self,
        view: str = VIEW,
        separator: str = "\n",
        answer_pattern: str = r"<A>(.*?)</A>",
        max_messages: int = 10,
    ):
        check_at_least(2, "rollout", max_messages=max_messages)
        for name in ("facts", "question", "messages"):
            if f"{{{name}}}" not in view:
                raise ValueError(f"rollout.view={view!r} lacks {{{name}}}; write it where its value belongs")
        self.pattern = compile_pattern("rollout.answer_pattern", answer_pattern, "the answer")
        self.view, self.separator, self.max_messages = view, separator, max_messages

    def check_task(self, task: Task) -> None:
        prompt = task[0]
        facts = prompt.info.get("facts")
        if not isinstance(facts, Sequence) or isinstance(facts, str) or len(facts) < 2:
            raise ValueError(
                f"rollout: prompt {prompt.key!r} needs info['facts'], a text for each of two or more agents, and has "
                f"{facts!r}; a task that has them is tasks.split_facts.task.SplitFacts"
            )

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        talks = [Talk(slot, prompt, number) for slot, prompt in prompts for number in ctx.sample_indices(slot)]
        self.play(talks, ctx)
        return [self.finish(talk) for talk in talks]

    def play(self, talks: Sequence[Talk], ctx: Context) -> None:
        """Write messages until all dialogues are over."""
        active = [talk for talk in talks if not talk.over]
        while active:
            requests = []
            for talk in active:
                key = (ctx.seed, ctx.purpose, ctx.iteration, talk.slot, talk.number, "message", len(talk.messages))
                requests.append(Request(self.observe_talk(talk), derive_seed(*key)))
            for talk, done in zip(active, ctx.engine.sample(requests, ctx.sampling), strict=True):
                talk.write(done, self.read_answer(str(done.output)), self.max_messages)
            active = [talk for talk in active if not talk.over]
            ctx.progress("dialogue", len(talks) - len(active), len(talks))

    def observe_talk(self, talk: Talk) -> dict[str, Any]:
        """Return what the agent reads whose turn it is."""
        facts, number = talk.prompt.info["facts"], len(talk.messages)
        text = write_view(
            self.view, facts, question_of(talk.prompt), [m.text for m in talk.messages], number, self.separator
        )
        return {**text_observation(talk.prompt), "messages": ({"role": "user", "content": text},)}

    def read_answer(self, text: str) -> str | None:
        """Return the answer that a message states, the last one of several; None if it states none."""
        stated = [match[1] for match in self.pattern.finditer(text)]
        return flatten(stated[-1]) if stated else None

    def finish(self, talk: Talk) -> Episode:
        """Return a dialogue that is over as an episode."""
        turns = [Turn(message.completion) for message in talk.messages]
        answer = talk.answer if talk.agreed and talk.answer is not None else ""
        turns[-1] = Turn(replace(turns[-1].completion, output=answer))
        count = "agreed" if talk.agreed else "failed" if talk.ended == "error" else "open"
        info: dict[str, Any] = {
            "messages": [message.text for message in talk.messages], "counts": {f"dialogue/{count}": 1},
        }  # fmt: skip
        if talk.ended == "error":
            info["error"] = "the engine gave no message"
        return Episode(talk.prompt, talk.slot, talk.number, turns, ended=talk.ended, info=info)


def question_of(prompt: Prompt) -> str:
    """Return the text of a prompt's last message."""
    content = text_observation(prompt)["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def write_view(
    view: str, facts: Sequence[str], question: str, messages: Sequence[str], number: int, separator: str
) -> str:
    """Write what the agent reads that writes message `number`, from 0."""
    agent = number % len(facts)
    values = {"facts": facts[agent], "question": question, "messages": separator.join(messages)}
    return fill_template(view, agent=str(agent + 1), **values)
