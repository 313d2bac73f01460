"""Samples of every iteration are in the run folder, and the run is the same with and without them."""

import pytest
import torch

from mmrl.callbacks.samples import Samples
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.samples.folder import SampleFolder
from tests.runs.processes import run_ranks
from tests.test_recipes import shrink
from tests.tiny_recipes import fit, words

CONTROL = ("recipe=ppo_control", "trainer.max_epochs=2", "data.rollout.num_envs=2", "data.rollout.horizon=16")


def assert_equal(one, other) -> None:
    """Nested records without a difference in any bit."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other):
            assert_equal(a, b)
    else:
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize(
    "chosen",
    [("trainer.max_epochs=2",), ("trainer.max_epochs=2", "capture=true"), (*CONTROL, "capture=true")],
    ids=["text", "captured_text", "captured_control"],
)
def test_a_run_has_the_same_bits_with_and_without_samples(chosen, tmp_path):
    with_samples = fit(tmp_path / "with", *chosen)
    without = fit(tmp_path / "without", *chosen, "trainer.callbacks.samples=null")
    assert SampleFolder(tmp_path / "with").iterations() == [0, 1]
    assert not (tmp_path / "without" / "rollouts").exists()
    for part in ("weights", "optimizer", "minibatches", "metrics"):  # gymnasium seeds the spaces of "data" anew
        assert_equal(with_samples[part], without[part])


def read(recipe, folder, *more):
    """Samples of one tiny iteration of a recipe."""
    cfg = compose([*shrink((f"recipe={recipe}",), folder), *more])
    if recipe != "sac":
        cfg.data.reward = {"_target_": "tests.tiny_recipes.Alternating"}
    CLI(to_lightning(cfg)).fit()
    return SampleFolder(folder).read(0)


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Samples of a run whose rows have ratios too."""
    return read("grpo", tmp_path_factory.mktemp("grpo"), "data.pipeline=[old,importance,group_advantage]")


def test_completions_have_a_number_for_every_token(groups):
    assert [group["iteration"] for group in groups] == [0] * len(groups)
    assert groups[0]["messages"][0]["content"].endswith("=") and isinstance(groups[0]["answer"], int)
    for group in groups:
        assert group["group_size"] == len(group["episodes"]) == 2
        for episode in group["episodes"]:
            (turn,) = episode["turns"]
            assert {len(values) for values in turn.values()} == {len(turn["tokens"])}
            text = "".join(turn["tokens"])
            for special in ("<pad>", "<bos>", "<eos>", "<unk>", "<image>"):
                text = text.replace(special, "")
            assert text == episode["output"] and set(turn["chosen"]) == {1}
            assert set(episode["scores"]) == {"exact", "format"} and episode["trained"]
        rewards = {episode["reward"]: episode["turns"][0]["advantages"] for episode in group["episodes"]}
        assert rewards.keys() == {0, 1} and max(rewards[0.0]) < 0 < min(rewards[1.0])


def test_ratios_are_those_of_the_learner_and_the_engine(groups):
    ratios = [ratio for group in groups for each in group["episodes"] for ratio in each["turns"][0]["ratios"]]
    assert ratios and ratios == pytest.approx([1] * len(ratios), abs=1e-3)


def test_images_are_small_and_tool_results_stand_beside_their_calls(tmp_path):
    digits = read("grpo_digits_vlm", tmp_path / "digits")
    assert all(group["images"][0].startswith("data:image/png;base64,") for group in digits)
    episodes = [episode for group in read("search_r1", tmp_path / "wiki") for episode in group["episodes"]]
    called = [call for episode in episodes for call in episode.get("calls", [])]
    assert called and all(call["result"].startswith(f"[{call['outcome']}") for call in called)


@pytest.mark.parametrize("recipe", ["ppo_control", "sac", "demo_vla"])
def test_episodes_of_simulators_are_short_rows_without_tensors(recipe, tmp_path):
    for group in read(recipe, tmp_path):
        for episode in group["episodes"]:
            assert episode["decisions"] > 0 and "turns" not in episode and "return" in episode["scores"]


def check_groups(folder, iterations: list[int], numbers: list[int]) -> None:
    """These iterations alone have a file, with these groups of four episodes."""
    assert {file.name for file in (folder / "rollouts").iterdir()} == {f"{number}.jsonl" for number in iterations}
    samples = SampleFolder(folder)
    assert samples.iterations() == iterations
    for groups in map(samples.read, iterations):
        assert [group["group"] for group in groups] == numbers
        assert all(len(group["episodes"]) == group["group_size"] == 4 for group in groups)


def test_every_nth_iteration_and_a_number_of_groups(tmp_path):
    more = ("trainer.callbacks.samples.every_n_iterations=2", "trainer.callbacks.samples.groups=2")
    fit(tmp_path, "trainer.max_epochs=4", *more)
    check_groups(tmp_path, [0, 2], [0, 1])


@pytest.mark.parametrize("key", ["groups", "every_n_iterations", "max_tokens", "max_mb"])
def test_values_that_cannot_be_are_refused_by_name(key, tmp_path):
    with pytest.raises(ValueError, match=rf"trainer\.callbacks\.samples\.{key} must be"):
        Samples(str(tmp_path), **{key: 0})


def test_the_first_process_writes_its_own_first_groups_once(tmp_path):
    more = ("trainer.max_epochs=1", "trainer.callbacks.samples.groups=2")
    strategy = "{_target_: lightning.pytorch.strategies.DDPStrategy, process_group_backend: gloo}"
    run_ranks(["fit", *words(tmp_path, *more, "trainer.devices=2", f"trainer.strategy={strategy}")], tmp_path)
    check_groups(tmp_path, [0], [0, 2])  # every second prompt is the other process's
