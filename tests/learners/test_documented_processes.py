"""The commands with several processes that README and the how-to guide name run, on two processes of a CPU.

Everything that makes a run large is replaced; what is left of a command is how its processes divide the work.
"""

import math
import re
import shlex
from pathlib import Path

import pytest
from torch.testing import assert_close

from tests.engines.vllm.model_server import write_python
from tests.runs.processes import run_ranks
from tests.tiny_recipes import record, words

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/how-to/scale.md")
PROCESSES = ("trainer.devices", "trainer.num_nodes", "trainer.strategy", "strategy")
WORLD = 2
SMALL = {
    "grpo": (),  # that of `words`
    "grpo_async": (),
    "sac": (
        *("policy.hidden=[16]", "model.models.critic.hidden=[16]", "data.learning_starts=8", "data.gradient_steps=3"),
        *("data.rollout.horizon=8", "data.replay.batch_size=8", "data.evaluation.count=2"),
        "data.task.sim.max_episode_steps=11",
    ),
}
"""Words that make the run of a recipe small."""


def documented() -> list[list[str]]:
    """The words of `mmrl fit` lines, and of code in the text, that say how many processes there are and what they hold.

    Code in the text may be a part of a command: `strategy.shard_size=8` belongs to `strategy=fsdp2`.
    """
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
        for line in "".join(blocks).replace("\\\n", " ").splitlines():
            if match := re.search(r"\bmmrl fit (.*)", line):
                found.append(shlex.split(match[1], comments=True))
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        found += [code.split() for code in re.findall(r"`([^`\n]+)`", prose)]
    return [each for each in found if all(map(is_given, each)) and any(map(concerns_processes, each))]


def is_given(word: str) -> bool:
    """Whether the word is a key with a value, not with a name in its place such as DEVICES or ..."""
    value = word.partition("=")[2]
    return value.strip(".") != "" and "$" not in value and not value.isupper()


def concerns_processes(word: str) -> bool:
    key = word.partition("=")[0]
    return key in PROCESSES or key.startswith("strategy.")


def scale_down(chosen: list[str]) -> list[str]:
    """The words for two processes, with as many copies of the weights as before, if two processes can have them."""
    given = {"recipe": "grpo"} | dict(word.split("=", 1) for word in chosen)
    if size := int(given.get("strategy.shard_size", 0)):
        devices = int(given.get("trainer.devices", 2 * size)) * int(given.get("trainer.num_nodes", 1))
        given["strategy.shard_size"] = str(max(WORLD * size // devices, 1))
    if size := int(given.get("strategy.sequence_parallel", 0)):
        given["strategy.sequence_parallel"] = str(min(size, WORLD))
    if any(key.startswith("strategy.") for key in given):
        given.setdefault("strategy", "fsdp2")
    kept = {key: value for key, value in given.items() if key not in ("trainer.num_nodes", "run_dir", "ckpt_path")}
    return [f"{key}={value}" for key, value in (kept | {"trainer.devices": str(WORLD)}).items()]


def commands() -> list[str]:
    return sorted({shlex.join(sorted(scale_down(chosen))) for chosen in documented()})


def test_the_pages_name_every_strategy():
    text = " ".join(commands())
    assert "strategy=ddp" in text and "strategy=fsdp2" in text and "strategy.shard_size=1" in text
    assert len(commands()) >= 5


@pytest.mark.parametrize("chosen", commands())
def test_a_documented_command_runs_on_two_processes(chosen, tmp_path):
    own = shlex.split(chosen)
    recipe = next(word.partition("=")[2] for word in own if word.startswith("recipe="))
    own = [f"recipe={recipe}", *(word for word in own if not word.startswith("recipe=")), *SMALL[recipe]]
    if "engine=vllm" in own:
        pytest.importorskip("vllm", reason="a vLLM in each process is what `make test-vllm` tests")
    if "engine=vllm_server" in own:  # a model server stands in for vLLM
        own += [f"engine.python={write_python(tmp_path)}", f"engine.logs={tmp_path}/servers"]
    run_ranks(["fit", *words(tmp_path, *own, "trainer.max_epochs=1")], tmp_path, ranks=WORLD)
    ranks = [record(tmp_path, rank) for rank in range(WORLD)]
    assert_close(ranks[0]["weights"], ranks[1]["weights"], atol=0, rtol=0)
    every = sum(value.numel() for value in ranks[0]["weights"].values())
    divided = "strategy=fsdp2" in own and "strategy.shard_size=1" not in own
    assert all((rank["held"] <= 0.55 * every) == divided for rank in ranks)
    assert all(any(rank["minibatches"]) for rank in ranks)  # both learn from rows of their own
    numbers = {key: value for metrics in ranks[0]["metrics"] for key, value in metrics.items()}
    learned = [value for key, value in numbers.items() if key.startswith("train/")]
    assert learned and all(map(math.isfinite, learned))
    folder = "strategy=fsdp2" in own and "strategy.save_distributed_checkpoint=false" not in own
    assert (tmp_path / "checkpoints" / "last.ckpt").is_dir() == folder
