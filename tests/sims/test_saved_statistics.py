"""Running statistics and environments in processes of their own: a resumed run is the same run."""

import numpy as np
import torch

import mmrl
from tests.tiny_recipes import command, fit, record

WORDS = (
    "recipe=ppo_control",
    "sim.id=Pendulum-v1",
    "sim.workers=2",
    "sim.max_episode_steps=20",
    "policy.normalize_observations=true",
    "rollout.normalize_rewards=true",
    "rollout.num_envs=4",
    "rollout.horizon=8",
    "data.update_epochs=2",
    "scheduler=null",
    "data.evaluation.count=4",
    "trainer.check_val_every_n_epoch=2",
)


def test_a_run_with_workers_and_statistics_goes_on_exactly_and_its_policy_has_them(tmp_path):
    whole = fit(tmp_path / "whole", *WORDS, "trainer.max_epochs=4")
    fit(tmp_path / "half", *WORDS, "trainer.max_epochs=2")
    checkpoint = tmp_path / "half" / "checkpoints" / "last.ckpt"
    again = command(tmp_path / "again", *WORDS, "trainer.max_epochs=4", f"ckpt_path='{checkpoint}'")
    assert all(torch.equal(value, again["weights"][name]) for name, value in whole["weights"].items())
    rewards = [saved["data"]["rollout"][0]["reward_scale"] for saved in (whole, again)]
    assert rewards[0] == rewards[1] and rewards[0]["count"] == 4 * 32

    # the statistics of the last evaluation are those of the checkpoint, the export and the loaded policy
    run = mmrl.Run(tmp_path / "whole")
    measured = mmrl.evaluate(run, count=4)["greedy"]["returns"]["return"]
    rows = [row["val/greedy/returns/return"] for row in whole["metrics"] if "val/greedy/returns/return" in row]
    assert np.float32(measured) == np.float32(rows[-1])
    loaded, exported = mmrl.load_policy(run), type(mmrl.load_policy(run).policy)(path=str(run.policy))
    # the rows of the last iteration count from the next one on
    assert int(loaded.policy.encoder.statistics.count) == 3 * 32
    state = np.array([0.3, -0.8, 4.0], np.float32)
    encoded = {"state": torch.from_numpy(state)[None]}
    assert torch.equal(exported.predict_values(encoded), loaded.policy.predict_values(encoded))
    assert record(tmp_path / "whole")["weights"].keys() >= {"policy.encoder.statistics.mean"}
