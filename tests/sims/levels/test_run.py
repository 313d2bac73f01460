"""One line trains in an environment of the user's own with a teacher, and plots its level space."""

import mmrl
from tests.tiny_recipes import QUIET

TINY = (
    *("rollout.num_envs=2", "rollout.horizon=16", "data.num_prompts=32", "data.num_minibatches=1", "capture=false"),
    *("data.update_epochs=1", "trainer.max_epochs=2", "trainer.check_val_every_n_epoch=2"),
    *(word for word in QUIET if word != "trainer.logger=false"),
)


def test_a_run_measures_and_plots_the_level_space(tmp_path):
    run = mmrl.fit(
        *("recipe=alp_gmm", "sim.id=tests.sims.levels.climb:tests/Climb-v0", "task.grid=4", "curriculum.fit_rate=11"),
        *("evaluation.evaluators.mastered.threshold=1.8", f"run_dir='{tmp_path / 'run'}'", *TINY),
    )
    # the return is gift round(steps), whatever the policy does, with gifts of -.75 to .75 and 1.5 to 4.5 steps, each
    # rounded to one of 65535 parts of its range; with a gift of .75, 1.8 needs 3 steps
    steps = [round(1 + 4 * round((centre - 1) / 4 * 65535) / 65535) for centre in (1.5, 2.5, 3.5, 4.5)]
    expected = sum(gift * count >= 1.8 for gift in (-0.75, -0.25, 0.25, 0.75) for count in steps) / 16
    assert run.last_metrics["val/greedy/mastered/mean"] == expected > 0
    assert run.last_metrics["val/greedy/mastered/n"] == 16
    assert 1 <= run.last_metrics["rollout/score/level/steps"] <= 5
    assert (tmp_path / "run/plots/greedy-mastered.png").read_bytes().startswith(b"\x89PNG")
