"""Questions about facts that are split between agents, and dialogues that answer them."""

from tasks.split_facts.task import FactDialogues, SplitFacts

__all__ = ["FactDialogues", "SplitFacts"]
