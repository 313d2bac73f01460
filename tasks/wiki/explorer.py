"""An explorer of the wiki, which follows the links that an intent names, and an expert that wastes its calls."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_rng
from mmrl.tools.base import Tool, ToolError
from tasks.wiki.data import path_of
from tasks.wiki.task import Wiki


class NoPage(ToolError):
    """There is no page of that name, or it has no such link."""


class Explorer(Tool):
    """Opens the page that a query names and follows the links of its intent; returns the last name.

    `ba kin boss` opens the page of ba, follows the link kin and then, on that page, the link boss: a scripted agent
    that searches, clicks and extracts. Both knowledge bases are one web.

    Args:
        task: whose pages are explored.
        clicks: most links of an intent; further ones are not followed.
    """

    timeout_s = 5.0

    def __init__(self, task: Wiki, clicks: int = 2):
        if not isinstance(task, Wiki):
            raise ValueError(f"this explorer knows the pages of task=wiki alone, not those of {type(task).__name__}")
        check_at_least(1, "explorer", clicks=clicks)
        both = task.knowledge_bases
        self.pages = {name: links for split in sorted(both) for name, links in both[split].facts.items()}
        self.clicks = clicks

    def run(self, query: str) -> str:  # type: ignore[override]
        """
        Explore the pages of the wiki.

        Args:
            query: a name, and the links to follow from its page.
        """
        name, *links = query.split() or [""]
        if name not in self.pages or not links:
            raise NoPage(query[:50])
        for link in links[: self.clicks]:
            if link not in self.pages[name]:
                raise NoPage(link[:50])
            name = self.pages[name][link]
        return name


@dataclass(frozen=True)
class ExploredWiki(Wiki):
    """Wiki whose expert asks an explorer, often with more calls and words than it takes, and not always rightly.

    A script is one call with all links of the question with probability `direct`. Otherwise it has a call for each
    link, where the last link is a random one with probability `wandering`, and the first call is made twice with
    probability `repeated`. With probability `thoughtful` a thought stands before each call.

    Args:
        direct: probability of one call for the whole question.
        wandering: probability that the last link is random.
        repeated: probability that the first call is made twice.
        thoughtful: probability of thoughts before the calls.
        thought: text of a thought.
    """

    people: int = 600
    direct: float = 0.15
    wandering: float = 0.8
    repeated: float = 0.5
    thoughtful: float = 0.5
    thought: str = "so, "

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(
            f"task {self.name!r}:", direct=self.direct, wandering=self.wandering, repeated=self.repeated,
            thoughtful=self.thoughtful,
        )  # fmt: skip

    def script(self, index: int) -> list[str]:
        rng = derive_rng("wiki", "explored", self.split, self.seed, index)
        is_direct, wanders, repeats, thinks = rng.random(4) < (
            self.direct, self.wandering, self.repeated, self.thoughtful,
        )  # fmt: skip
        name, *links = self._knowledge_base.questions[index]
        thought = self.thought if thinks else ""
        if is_direct:
            calls = [" ".join((name, *links))]
        else:
            links = [*links[:-1], self.relations[int(rng.integers(len(self.relations)))]] if wanders else links
            people = path_of((name, *links), self._knowledge_base)
            calls = [f"{person} {link}" for person, link in zip(people, links)]
            calls = [calls[0], *calls] if repeats else calls
        answer = path_of((name, *links), self._knowledge_base)[-1]
        return [*(thought + self.call.format(query=call) for call in calls), self.write_answer(answer)]
