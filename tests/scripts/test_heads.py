"""The table of all heads: what it would run, and how it is shown."""

import importlib.util
import sys
from pathlib import Path

import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning

SCRIPTS = Path(__file__).parents[2] / "scripts" / "robots"


@pytest.fixture(scope="module")
def heads():
    spec = importlib.util.spec_from_file_location("heads", SCRIPTS / "heads.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["heads"] = module
    spec.loader.exec_module(module)
    return module


def test_every_head_has_the_same_budget_and_states(heads, tmp_path):
    clones = {}
    for head in heads.HEADS:
        runs = list(heads.list_runs(head, 0, 20, [], tmp_path))
        words = compose(runs[-1].overrides)
        assert words.data.num_prompts * words.data.group_size * words.trainer.max_epochs == 20 * heads.EPISODES
        assert words.data.evaluation.offset == 1024 and words.data.evaluation.count == 512
        assert words.data.task.sim._target_ == "sims.tabletop.sims.Reach"
        CLI(to_lightning(words), build=False)
        if len(runs) > 1:
            clones.setdefault(head.start, set()).add(runs[0].folder)
            assert (
                f"trainer.callbacks.warm_start.checkpoint={runs[0].folder}/checkpoints/last.ckpt" in runs[1].overrides
            )
    assert all(len(folders) == 1 for folders in clones.values())  # heads of one network share a clone
    assert len({folder for folders in clones.values() for folder in folders}) == len(clones)


def test_the_table_shows_every_seed(heads):
    seed = {"before": 0.25, "after": 0.5, "wilson_before": (0.2, 0.3), "wilson_after": (0.4, 0.6), "seconds": 120.0}
    text = heads.format_table([{"head": "tokens", "seeds": [seed, seed]}])
    shown = "25.0 % [20, 30], 25.0 % [20, 30] | 50.0 % [40, 60], 50.0 % [40, 60]"
    assert text.splitlines()[2] == f"| tokens | {shown} | 2 | 2 |"
