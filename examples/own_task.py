"""Your own task: prompts and a verifier that gives named scores.

    python examples/own_task.py [key=value ...]

The policy, 1 M random parameters, is asked to repeat a letter. A verifier gives several scores, the recipe's reward is
a weighted sum of them. A minute on two CPU cores; the held-out success rate is printed.
"""

import sys
from dataclasses import dataclass, replace

import mmrl

LETTERS = "abcdefgh"


@dataclass(frozen=True)
class Repeat(mmrl.Task):
    """Write the letter of the prompt. Train and held-out prompts differ in the number that follows it."""

    split: str = "train"
    name = "repeat"

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> mmrl.Prompt:
        letter, number = LETTERS[index % len(LETTERS)], 2 * index + (self.split == "held_out")
        message = {"role": "user", "content": f"{number} {letter}"}
        return mmrl.Prompt(f"{self.name}/{self.split}/{index}", (message,), answer=letter)

    def on(self, split: str) -> "Repeat":
        return replace(self, split=split)

    def score(self, episode: mmrl.Episode) -> dict[str, float]:
        """Named scores; a wrong answer scores 0, a bug raises."""
        text, letter = episode.output, episode.prompt.answer
        return {"exact": float(text[:1] == letter), "share": text.count(letter) / 4}


if __name__ == "__main__":
    run = mmrl.fit(
        *sys.argv[1:],
        recipe="grpo",
        task=Repeat(),
        policy="tiny_text",
        reward={"weights": {"exact": 1.0, "share": 1.0}},
        data={"num_prompts": 64, "sampling": {"max_tokens": 4}},
        trainer={"max_epochs": 40, "callbacks": {"warm_start": {"stages": None}}},
    )
    rate = mmrl.evaluate(run, count=100)["greedy"]["exact"]
    print(f"held-out success {rate['mean']:.0%}, 95 % interval [{rate['lower']:.0%}, {rate['upper']:.0%}]")
