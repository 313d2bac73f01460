"""Every method: a header, few lines, and a run with pretrained weights and the numbers of its paper."""

import re

import pytest
import yaml

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.layers.settings import read_paper_setting
from mmrl.config.option_files import find_options
from mmrl.core.errors import ConfigError
from mmrl.experiments.papers import STATUS
from tests.checkpoints import llava, openvla, pi0, qwen2
from tests.parsed_words import check_words

FILES = {name: file.path for name, file in find_options()["method"].items() if not file.origin}
THEMES = {name: path.parent.name for name, path in FILES.items()}
HEADER = {"title", "year", "source", "status", "differs"}
ACTS = {"acts", "idle"}
"""What a header may have too: the numbers that show that the mechanism acts, and why an iteration may have no rows."""
LINES = 25
"""Of a method beside the numbers of its paper."""
SMALL_THEMES = ("control", "exploration", "goals", "levels", "world_models")
CONTROL = sorted(name for name, theme in THEMES.items() if theme in SMALL_THEMES)
"""Methods of small networks, which no checkpoint gives their weights."""
PRETRAINED = sorted(set(FILES) - set(CONTROL))
WITH_NUMBERS = [name for name in PRETRAINED if read_paper_setting(name)]

MAKERS = {"text": qwen2, "vlm": llava, "pi0": pi0, "openvla": openvla}
SIM = ("task=sim", "sim=reach", "rollout=env", "evaluation=sim")
OPENVLA = (*SIM, "policy=openvla")
SHARED = ("policy.critic=shared",)  # a checkpoint has no layers for a critic of its own
DIFFUSION = (*SIM, "policy=diffusion_policy", "policy.path=somewhere")
SCORER = (
    "policy._target_=mmrl.policies.text.scorer.ScoringPolicy",
    "task=preferences",
    "evaluation=preference_accuracy",
)
STEPS = (
    "policy._target_=mmrl.policies.text.process.step_scorer.StepScoringPolicy",
    "task=preferences",
    "evaluation=steps",
)
HOUSE = ("task=house", "evaluation=text_environment")
NEEDED = {
    "agent_rlvr_reward": SCORER,
    "ampo": ("task.digits=[2,2]",),
    "asearcher": ("task=wiki",),
    "bc": OPENVLA,
    "bradley_terry": SCORER,
    "dp_bradley_terry": SCORER,
    "dppo": DIFFUSION,
    "dialogue_shaping": HOUSE,
    "embedding_reward": SCORER,
    "flow_ppo": SHARED,
    "flow_sde_ppo": SHARED,
    "glam": ("task=gridworld", "evaluation=text_environment"),
    "lge": HOUSE,
    "lge_guide": HOUSE,
    "mask_search": ("task=wiki",),
    "mean_flow_grpo": (*SIM, "policy=tiny_mean_flow_vla"),  # a chain that no published policy has
    "non_linear": ("task=sim", "sim=program_tree", "policy=tree_controller", "evaluation=control"),
    "one_step": (*SIM, "policy=tiny_one_step_vla"),  # a teacher that no published policy has
    "ppo_vla": (*OPENVLA, *SHARED),
    "process_reward": STEPS,
    "progress": OPENVLA,
    "r1_searcher": ("task=wiki",),
    "reseek": ("task=wiki", "task._target_=tasks.wiki.judged.JudgedWiki"),
    "rl100": DIFFUSION,
    "rl100_offline": (*DIFFUSION, "rollout.path=episodes.npz", "rollout.critics=critics.ckpt"),
    "rlcm": (*SIM, "policy=tiny_consistency_vla"),  # a chain that no published policy has
    "rlfr": ("policy.hidden_layers=[0.5]",),
    "search_r1": ("task=wiki",),
    "cycle_align": ("rollout.judge={_target_: mmrl.rewards.judges.engine.EngineJudge}",),  # the policy itself
    "meta_reward": SCORER,
    "secrets_rlhf": SCORER,
    "simple_vla_rl": OPENVLA,
    "ssp": ("task=wiki", "+rollout.rollout.tools.search={_target_: tasks.wiki.search.Search, task: '${data.task}'}"),
    "vrag_rl": ("policy=vlm", "task=pages"),
    "zerosearch": ("task=wiki",),
}
"""What a method needs of its setting beside the policy of its theme."""
SECOND = {
    "agent_rlvr_reward": "agent",
    "cosmos": "base",
    "epo": "actor",
    "gkd": "teacher",
    "huatuogpt": "verifier",
    "hunyuan_mt": "drafter",
    "optima": "base",
    "optima_sft": "base",
    "rlcoder": "generator",
    "rlgf": "guide",
    "rlmec": "editor",
    "secrets_rlhf": "member_1 member_2 member_3",
    "verirl": "reward_model",
}
"""The models beside the policy that these methods sample from or read; a recipe makes them, a user names them."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny checkpoints, by the policy option that loads them."""
    place = tmp_path_factory.mktemp("checkpoints")
    return {option: make(place / option) for option, make in MAKERS.items()}


def words_of(method: str, setting: str, folders) -> list[str]:
    """The words of the method in this setting, with a checkpoint."""
    theme = {"vision": ("policy=vlm", "task=digits"), "robots": (*SIM, "policy=pi0")}.get(
        THEMES[method], ("policy=text",)
    )
    chosen = {word.partition("=")[0]: word for word in (*theme, *NEEDED.get(method, ()))}
    option = chosen["policy"].partition("=")[2]
    path = [f"policy.path={folders[option]}"] if option in folders else []
    second = [f"model.frozen_models.{name}.path={folders['text']}" for name in SECOND.get(method, "").split()]
    return [f"method={method}", f"setting={setting}", *chosen.values(), *path, *second, "run_dir=same"]


def count_lines(text: str) -> int:
    """Lines of a method's file, without those of its paper's numbers and of what acts."""
    rest = re.sub(r"^paper_setting:.*\n(?:[ #].*\n)*|^  (?:acts|idle):.*\n", "", text, flags=re.M)
    return len([line for line in rest.splitlines() if line.strip()])


@pytest.mark.parametrize("method", FILES)
def test_a_method_has_the_header_of_its_paper_and_is_short(method):
    text = FILES[method].read_text()
    paper = yaml.safe_load(text)["paper"]
    assert HEADER <= set(paper) <= HEADER | ACTS and all(paper[key] for key in set(paper) - {"year"})
    assert paper["status"] in STATUS and isinstance(paper["year"], int | None)
    assert count_lines(text) <= LINES


SILENT = {
    "meta_reward": "answers of the policy that its learner alone reads",
    "modomodo": "shares of tasks that are nearly equal",
    "one_step": "a target that its loss alone reads",
}
"""Methods with a part of their own in the data whose effect no number of a run shows."""


def test_a_method_with_a_part_of_its_own_in_the_data_says_what_shows_that_it_acts():
    for method, file in FILES.items():
        keys = yaml.safe_load(file.read_text())
        own = "mmrl.methods." in str(
            {key: part for key, part in (keys.get("data") or {}).items() if key != "evaluation"}
        )
        assert not own or "acts" in keys["paper"] or method in SILENT, f"{method}: add acts: to its header"


def test_the_numbers_of_a_paper_say_where_they_stand():
    for method in FILES:
        block = read_paper_setting(method)
        assert not block or (block["place"] and set(block) <= {"place", "trainer", "model", "data"}), method


@pytest.mark.parametrize("method", PRETRAINED)
def test_a_method_parses_and_wires_with_pretrained_weights_and_the_numbers_of_its_paper(method, folders):
    """Without numbers of its paper in the setting that has them otherwise, which extends that of pretrained weights."""
    check_words(words_of(method, "paper" if method in WITH_NUMBERS else "pretrained_text", folders))


@pytest.mark.slow
@pytest.mark.parametrize("method", WITH_NUMBERS)
def test_a_method_parses_and_wires_without_the_numbers_of_its_paper_too(method, folders):
    settings = {"vision": "pretrained_vlm", "robots": "pretrained_vla"}
    check_words(words_of(method, settings.get(THEMES[method], "pretrained_text"), folders))


@pytest.mark.parametrize("method", ["gkd", "verirl"])
def test_a_second_model_that_is_not_named_is_refused(method, folders):
    words = [word for word in words_of(method, "pretrained_text", folders) if "frozen_models" not in word]
    with pytest.raises(ConfigError, match=r"give `path` \(a hub id or a folder\)"):
        CLI(to_lightning(compose(words)))
