"""Create a recipe: its configuration and experiment, a working part, its test, and its entry in the law tests.

python scripts/new_recipe.py NAME --slot term --part ClassName
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

RECIPE = """# @package _global_
paper:
  title: "TITLE"
  year: null
  source: "arXiv:..., equation ..."
  status: variant
  differs: "everything that is still to be done"
defaults: [grpo]
{use}
"""

EXPERIMENT = """# described in mmrl/experiments/experiment.py
budget: "120 iterations of 128 problems and 8 completions from the same start; at most 5 minutes a seed on 2 cores"
metric: val/greedy/exact/mean
baseline: {name: grpo, overrides: [recipe=grpo]}
"""

TERM = '''"""TODO: what the term makes likelier, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class {part}(Term):
    """Score-function loss of each choice: -scale * A * logprob. TODO: the equation and its source.

    Args:
        scale: TODO, with its unit.
    """

    scale: float = 1.0

    def reads(self) -> frozenset[str]:
        return frozenset({{"action_mask", "advantages"}})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        return -self.scale * zero_outside(batch["advantages"], mask) * zero_outside(out.logprobs, mask)
'''

TERM_TEST = """import torch
from torch.testing import assert_close

from mmrl.batch import Batch
from mmrl.methods.{name} import {part}
from mmrl.types import PolicyOutput


def test_by_hand():
    # TODO: the numbers of the paper. 2 * 0.5 * 1.5, and nothing where the policy did not choose
    out = PolicyOutput(torch.tensor([[-1.5, -3.0]]), torch.zeros(1, 2))
    batch = Batch(action_mask=torch.tensor([[True, False]]), advantages=torch.tensor([[0.5, 9.0]]))
    assert_close({part}(scale=2.0)(out, batch), torch.tensor([[1.5, 0.0]]))
"""

ANNOTATOR = '''"""TODO: what the advantages compare with, in one line."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.batch import Batch
from mmrl.types import Context


@dataclass(frozen=True)
class {part}(Annotator):
    """A = scale * (episode reward - its mean over all rows). TODO: the equation and its source.

    Args:
        scale: TODO, with its unit.
    """

    scale: float = 1.0

    def reads(self) -> frozenset[str]:
        return frozenset({{"episode_reward", "action_mask"}})

    def writes(self) -> frozenset[str]:
        return frozenset({{"advantages"}})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        reward = batch["episode_reward"]
        advantage = self.scale * (reward - reward.mean())
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[:, None], 0.0))
'''

ANNOTATOR_TEST = """import torch
from torch.testing import assert_close

from mmrl.batch import Batch
from mmrl.methods.{name} import {part}
from mmrl.types import Context, Sampling


def test_by_hand():
    # TODO: the numbers of the paper. Mean 0.5, so 2 * (1 - 0.5) and 2 * (0 - 0.5)
    batch = Batch(action_mask=torch.tensor([[True, False], [True, True]]), episode_reward=torch.tensor([1.0, 0.0]))
    out = {part}(scale=2.0)(batch, Context(None, None, None, Sampling(), seed=0, iteration=0))
    assert_close(out["advantages"], torch.tensor([[1.0, 0.0], [-1.0, -1.0]]))
"""

WEIGHTING = '''"""TODO: which choices count how much, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.weighting import Total, Weighting


@dataclass(frozen=True)
class {part}(Weighting):
    """Every choice counts the same. TODO: the equation and its source."""

    def __call__(self, batch: Batch, total: Total) -> Tensor:
        mask = batch["action_mask"].float()
        return mask / total(mask.sum()).clamp(min=1)
'''

WEIGHTING_TEST = """import torch
from torch.testing import assert_close

from mmrl.batch import Batch
from mmrl.methods.{name} import {part}


def test_by_hand():
    # TODO: the numbers of the paper. Three choices, a third each
    mask = torch.tensor([[True, False], [True, True]])
    assert_close({part}()(Batch(action_mask=mask), lambda value: value), torch.tensor([[1 / 3, 0.0], [1 / 3, 1 / 3]]))
"""


@dataclass(frozen=True)
class Slot:
    """What a new part of one kind begins with."""

    code: str
    test: str
    use: str  # in the recipe
    examples: str  # the list in tests/laws/law_examples.py


SLOTS = {
    "term": Slot(
        TERM,
        TERM_TEST,
        "model: {{objective: {{terms: {{policy: null, {name}: {{_target_: mmrl.methods.{name}.{part}}}}}}}}}",
        "TERMS",
    ),
    "annotator": Slot(
        ANNOTATOR,
        ANNOTATOR_TEST,
        "data: {{pipeline: [{name}], annotators: {{{name}: {{_target_: mmrl.methods.{name}.{part}}}}}}}",
        "ANNOTATORS",
    ),
    "weighting": Slot(
        WEIGHTING,
        WEIGHTING_TEST,
        "data: {{weighting: {{_target_: mmrl.methods.{name}.{part}}}}}",
        "WEIGHTINGS",
    ),
}


def write(name: str, part: str, slot: Slot, root: Path) -> list[Path]:
    """Write the files of a recipe and its part under `root`; never overwrites."""
    words = {"name": name, "part": part}
    files = {
        root / "conf" / "recipe" / f"{name}.yaml": RECIPE.format(use=slot.use.format(**words)),
        root / "conf" / "experiment" / f"{name}.yaml": EXPERIMENT,
        root / "mmrl" / "methods" / f"{name}.py": slot.code.format(**words),
        root / "tests" / "methods" / f"test_{name}.py": slot.test.format(**words),
    }
    there = [str(path) for path in files if path.exists()]
    if there:
        raise SystemExit(f"there is {', '.join(there)} already; choose another name")
    for path, text in files.items():
        path.write_text(text)
    laws = root / "tests" / "laws" / "law_examples.py"
    laws.write_text(_with_example(laws.read_text(), f"mmrl.methods.{name}", part, slot.examples))
    return [*files, laws]


def _with_example(text: str, module: str, part: str, examples: str) -> str:
    """Add an import and an example to the law tests."""
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("from mmrl."))
    after = [i for i in range(first, len(lines)) if lines[i].startswith("from mmrl.") and lines[i].split()[1] < module]
    at = after[-1] + 1 if after else first
    lines.insert(at, f"from {module} import {part}\n")
    text = "".join(lines)
    return re.sub(
        rf"^{examples} = \[\n", f"{examples} = [\n    Example({part}()),\n", text, count=1, flags=re.MULTILINE
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the recipe and its files: what it computes, in lower case with underscores")
    parser.add_argument("--slot", choices=sorted(SLOTS), default="term", help="the kind of part")
    parser.add_argument("--part", help="name of the class; from the recipe's name when left out")
    options = parser.parse_args()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", options.name):
        raise SystemExit(f"{options.name!r}: a name has lower-case letters, digits and underscores")
    part = options.part or "".join(word.capitalize() for word in options.name.split("_"))
    for path in write(options.name, part, SLOTS[options.slot], ROOT):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
