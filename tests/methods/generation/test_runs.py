"""Runs of policies on a frozen language model: resumed exactly, loaded from checkpoints and exports, and refused."""

import pytest
import torch
from torch.testing import assert_close

import mmrl
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.types import Prompt, Sampling
from mmrl.methods.generation.ldc.policy import SteeredPolicy
from mmrl.methods.generation.stg import SelectiveTokenPolicy
from tests.policies.text.oracle import completions
from tests.test_recipes import TEXT, TINY
from tests.tiny_recipes import record

PROMPTS = [Prompt(f"p/{i}", ({"role": "user", "content": text},)) for i, text in enumerate(["#1?", "#22?", "#333?"])]
SMALL = (
    *(word for word in TINY if not word.startswith("trainer.max_epochs")),
    *(f"policy.config.{word}" for word in TEXT),
    "policy.hidden=8",
    "data.num_minibatches=1",
    "data.sampling.max_tokens=4",
    "data.evaluation.count=6",
    "model.scheduler=null",
    "optimizer.lr=0.05",
)
KINDS = {"stg": SelectiveTokenPolicy, "ldc": SteeredPolicy}


def run(folder, recipe, *more):
    recorder = f"trainer.callbacks.recorder={{_target_: tests.tiny_recipes.Recorder, folder: '{folder}/record'}}"
    CLI(to_lightning(compose([f"recipe={recipe}", *SMALL, f"run_dir='{folder}'", recorder, *more]))).fit()
    return record(folder)


@pytest.mark.parametrize("recipe", KINDS)
def test_a_resumed_run_is_the_uninterrupted_one_and_its_export_is_read_again(tmp_path, recipe):
    whole = run(tmp_path / "whole", recipe, "trainer.max_epochs=2")
    run(tmp_path / "first", recipe, "trainer.max_epochs=1")
    torch.manual_seed(99)
    checkpoint = f"ckpt_path='{tmp_path / 'first/checkpoints/last.ckpt'}'"
    resumed = run(tmp_path / "second", recipe, "trainer.max_epochs=2", checkpoint)
    for part in ("weights", "optimizer"):
        assert_close(resumed[part], whole[part], atol=0, rtol=0)
    # the checkpoint and the folder that was exported are one policy
    loaded = mmrl.load_policy(tmp_path / "whole", decode="sample")
    exported = KINDS[recipe](str(tmp_path / "whole/policy"), hidden=8).eval()
    sampling = Sampling(max_tokens=4)
    one, other = (completions(policy, PROMPTS, sampling) for policy in (loaded.policy, exported))
    assert [done.action.tolist() for done in one] == [done.action.tolist() for done in other]
    assert len(set(loaded.generate("#4?", n=8))) > 1
    with pytest.raises(ValueError, match="top_k"):
        loaded.policy.check_sampling(Sampling(top_k=2))
