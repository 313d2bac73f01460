"""Your own loss: a term of the objective beside those of the recipe.

    python examples/own_loss.py [key=value ...]

A term gives one number per sampled token, [N, T], and never reduces: the objective weighs and sums. This one penalises
the entropy's distance to a target. A minute on two CPU cores; train/entropy_target falls.
"""

import sys
from dataclasses import dataclass

from torch import Tensor

import mmrl


@dataclass(frozen=True)
class EntropyTarget(mmrl.Term):
    """Squared distance of each choice's entropy to a target: (entropy - target)^2, in nats^2.

    Args:
        target: in nats.
    """

    target: float

    def reads(self):
        return frozenset({"action_mask"})  # columns of the batch that it uses

    def __call__(self, out, batch: mmrl.Batch) -> Tensor:
        return (out.entropy - self.target) ** 2 * batch["action_mask"]


if __name__ == "__main__":
    run = mmrl.fit(
        *sys.argv[1:],
        recipe="grpo",
        task="arithmetic",
        policy="tiny_text",
        reward=lambda completion, answer: float(completion[:1].isdigit()),
        objective={"terms": {"entropy_target": EntropyTarget(1.5)}, "coefficients": {"entropy_target": 0.1}},
        data={"num_prompts": 16},
        trainer={"max_epochs": 20, "callbacks": {"warm_start": {"stages": None}}},
    )
    losses = [row["train/entropy_target"] for row in run.metrics if "train/entropy_target" in row]
    print(f"(entropy - target)^2: {losses[0]:.3f} in the first iteration, {losses[-1]:.3f} in the last")
