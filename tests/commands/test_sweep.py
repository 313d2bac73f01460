import pytest
from omegaconf import OmegaConf

from mmrl.commands.sweep import evaluate_words, job_folder, job_words, plain_words, train_words
from mmrl.errors import ConfigError


def test_words_of_a_sweep_are_spelled_out_and_keep_their_commas():
    out = train_words(["--multirun", "seed=0,1", "recipe=grpo,rloo", "policy.path=a/b", "run_dir=runs/x"])
    assert out[:5] == ["--multirun", "++seed=0,1", "recipe=grpo,rloo", "++model.policy.path=a/b", "++run_dir=runs/x"]
    assert "hydra.sweep.dir=runs/x" in out


def test_hydras_own_flags_pass_and_win_over_ours():
    out = train_words(["-m", "hydra.sweep.dir=mine", "hydra/launcher=basic", "seed=range(0,3)"])
    assert "hydra.sweep.dir=mine" in out and "hydra/launcher=basic" in out and "++seed=range(0,3)" in out
    assert sum(word.startswith("hydra.sweep.dir=") for word in out) == 1


def test_every_option_of_a_sweep_is_checked():
    with pytest.raises(ConfigError, match="Did you mean 'grpo'"):
        train_words(["--multirun", "recipe=rloo,grop"])


def test_a_job_is_told_what_a_user_would_have_typed():
    typed = ["++model.policy.path=a", "recipe=grpo", "++data.task.sim.renderer=ray", "++trainer.max_epochs=2"]
    assert job_words(typed) == ["policy.path=a", "recipe=grpo", "sim.renderer=ray", "trainer.max_epochs=2"]


def test_each_job_has_a_folder_of_its_own():
    assert job_folder("runs/x", None, None) == "runs/x"
    assert job_folder("runs/x", "runs/x", 3) == "runs/x/3"


def test_an_evaluation_becomes_the_words_of_the_command():
    cfg = OmegaConf.create({"run": "runs/a", "count": 8, "compare": None, "video": True, "sim": {"renderer": "ray"}})
    assert plain_words(cfg) == ["runs/a", "count=8", "video=true", "sim.renderer=ray"]
    assert evaluate_words(["run=a,b", "sim.renderer=ray"])[:2] == ["run=a,b", "++sim.renderer=ray"]
