"""Every recipe and every start: few lines, typed and wired, its own, and one iteration of it at a tiny size."""

import functools
import math
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from mmrl.commands.cli import CLI
from mmrl.config.compose import CONF, compose, to_lightning
from mmrl.config.option_files import find_option, read_comment
from mmrl.experiments.experiment import read_experiment
from tests.acts.gradients import term_names
from tests.composed_words import compose_words
from tests.parsed_words import check_typed
from tests.tiny_recipes import Watcher

RECIPES, STARTS = (sorted(file.stem for file in (CONF / group).rglob("*.yaml")) for group in ("recipe", "start"))
RUNS = [*(f"recipe={name}" for name in RECIPES), *(f"start={name}" for name in STARTS)]
LINES = 25
runs = pytest.mark.parametrize("run", RUNS, scope="module")  # one after the other: what is parsed is cached

TINY = (
    "trainer.callbacks.warm_start.stages=null",
    "trainer.callbacks.progress=null",
    "trainer.max_epochs=1",
    "trainer.check_val_every_n_epoch=1",
    "trainer.accelerator=cpu",
    "trainer.logger=false",
    "trainer.enable_progress_bar=false",
    "data.num_prompts=4",
)
PAIRS = ("num_pairs=16", "members=1", "passes=1")
TEXT = (
    "hidden_size=16",
    "intermediate_size=32",
    "num_hidden_layers=1",
    "num_attention_heads=2",
    "num_key_value_heads=2",
)
SMALL = {
    **{name: tuple(f"policy.config.{word}" for word in TEXT) for name in ("tiny_text", "mini_text", "tiny_uni_moe")},
    **{
        name: (
            *(f"policy.config.text_config.{word}" for word in TEXT),
            "policy.config.vision_config.hidden_size=16",
            "policy.config.vision_config.num_attention_heads=2",
        )
        for name in ("tiny_vlm", "mini_vlm", "mini_vlm_24", "mini_vlm_28", "mini_vlm_32")
    },
    **{
        name: ("policy.hidden_size=32", "policy.layers=1", "policy.heads=2")
        for name in (
            "tiny_vla",
            "tiny_vla_scaled",
            "tiny_flow_vla",
            "tiny_flow_vla_scaled",
            "tiny_flow_noise_vla",
            "tiny_diffusion_vla",
            "tiny_gaussian_vla",
            "tiny_mean_flow_vla",
            "tiny_consistency_vla",
            "tiny_one_step_vla",
            "tiny_state_vla",
            "tiny_state_flow_vla",
            "tiny_libero_flow_vla",
        )
    },
    "smollm2": ("policy.path=null", f"policy.config={{model_type: llama, {', '.join(TEXT).replace('=', ': ')}}}"),
    "smolvlm_small": (
        "policy.path=null",
        f"policy.config={{model_type: llava, text_config: {{model_type: qwen2, {', '.join(TEXT).replace('=', ': ')}}}, "
        "vision_config: {model_type: siglip_vision_model, hidden_size: 16, intermediate_size: 32, image_size: 16, "
        "num_hidden_layers: 1, num_attention_heads: 2, patch_size: 8, vision_use_head: false}}",
    ),
    **{
        name: tuple(f"policy.config.{word}" for word in TEXT)
        for name in ("tiny_scorer", "mini_scorer", "mini_step_scorer")
    },
    "word_scorer": ("policy.buckets=512", "policy.embedding=4", "policy.hidden=8", "task.max_turns=3"),
    "tree_controller": ("policy.width=8",),
    "control": (),
    "state_diffusion": ("policy.hidden=[16]",),
    "recurrent": ("policy.memory_size=8",),
    "goal_views": ("policy.memory_size=8",),
    "asymmetric": ("policy.hidden=[16]",),
    "student_pair": ("policy.hidden=[16]",),
    "recipe_graph": ("policy.hidden=[16]",),
    **{name: ("policy.hidden=[16]",) for name in ("skills", "macros")},
    "squashed": ("policy.hidden=[16]",),
    "q_network": ("policy.hidden=[16]",),
    "deterministic": ("policy.hidden=[16]",),
    "tanh_mean": ("policy.hidden=[16]",),
    "goal": ("policy.hidden=[16]",),
    "hilbert": ("policy.hidden=[16]", "policy.representation_hidden=[16]", "policy.landmarks=8"),
    "mean_flow": ("policy.hidden=[16]", "policy.flow_hidden=[16]"),
    "pixels": ("policy.hidden=[16]",),
    "world_model": ("policy.hidden=[16]", "policy.belief_size=8", "policy.hidden_size=8", "policy.image_depth=2"),
}
"""Words that make policies of conf/policy small, those of installed packages by random weights."""
STAND_INS = {
    "reasoning_gym": ("data.task._target_=tests.tiny_recipes.Generated",),
    "browser_clicks": ("data.task._target_=tests.tiny_recipes.Pages",),
    "bfcl": (f"data.task.path='{Path(__file__).parent / 'tasks' / 'bfcl' / 'rows'}'",),
}
"""Words that replace tasks of conf/task whose packages or programs are not installed everywhere."""
SIM_STAND_INS = {
    "libero": ("data.task.sim._target_=tests.sims.workers.stand_ins.LiberoStandIn",),
    "metaworld": ("data.task.sim._target_=tests.sims.workers.stand_ins.MetaWorldStandIn",),
    "ogbench": ("data.task.sim._target_=tests.sims.workers.stand_ins.OGBenchStandIn",),
}
"""Words that replace simulators of conf/sim whose Python environment is not made everywhere."""
TAGS = ("_target_=mmrl.tools.call_parser.TagParser", "open_tag=<tool_call>", "close_tag=</tool_call>")


def plain_of(recipe: str) -> DictConfig:
    """The recipe as it is; not to be changed."""
    return compose_words((f"recipe={recipe}",))


def words_of(recipe: str, folder) -> list[str]:
    """The recipe at a tiny size."""
    return shrink((f"recipe={recipe}",), folder)


def shrink(chosen: tuple[str, ...], folder) -> list[str]:
    """These words with those that make their run tiny."""
    plain = compose_words(chosen)
    words = [
        *chosen,
        *TINY,
        *SMALL[plain.choices.policy],
        *STAND_INS.get(plain.choices.task, ()),
        *SIM_STAND_INS.get(plain.choices.get("sim"), ()),
        f"run_dir='{folder}'",
    ]
    if OmegaConf.is_dict(plain.data.group_size) or plain.data.group_size > 1:  # a schedule, or a number
        words.append("data.group_size=2")
    if plain.data.get("evaluation") is not None:
        words.append("data.evaluation.count=4")
        words += ["data.evaluation.interim_count=2"] if plain.data.evaluation.get("interim_count") else []
    if "max_tokens" in plain.data.sampling:
        words.append("data.sampling.max_tokens=3")
    if "replay" in plain.data:
        words += [
            "data.gradient_steps=2",
            "data.learning_starts=8",
            "data.replay.batch_size=4",
            "data.replay.capacity=1000",
        ]
        words += ["data.replay.chunk=3"] if "chunk" in plain.data.replay else []
        words += ["data.log.num_episodes=3"] if plain.data.get("log") else []
        if "held_back" in plain.data:
            words += ["data.log.num_episodes=12", "data.held_back=10", "data.num_demonstrations=1", "data.steps=2"]
        if "prior" in plain.data:
            words += ["data.log.num_episodes=12", "data.prior_episodes=2"]
        if relabelling := plain.data.get("relabelling"):
            small = ("labelled=0.7", "below=1.0", "steps=2") if "labelled" in relabelling else PAIRS
            words += [f"data.relabelling.{word}" for word in small]
    else:
        words += ["data.update_epochs=1", "data.num_minibatches=2"]
    if plain.data.curriculum.get("steps"):  # of a model that the curriculum trains first
        words.append("data.curriculum.steps=2")
    if plain.choices.rollout == "hinted":
        words.append("data.rollout.rounds=2")
    if plain.choices.rollout == "calculator_demonstrations":  # the character tokenizer's template has no end of a turn
        words += [f"rollout.parser.{word}" for word in TAGS]
    if plain.choices.rollout in ("fixed_horizon", "recurrent_replay", "envgen"):
        words += ["data.rollout.num_envs=2", "data.rollout.horizon=8"]
    return words


@runs
def test_the_file_of_a_run_is_short(run):
    group, _, name = run.partition("=")
    assert len([line for line in find_option(group, name).path.read_text().splitlines() if line.strip()]) <= LINES


def test_a_start_says_what_it_is():
    for name in STARTS:
        assert read_comment(find_option("start", name).path.read_text()), name


def test_no_two_runs_are_the_same():
    seen: dict[str, str] = {}
    for run in RUNS:
        plain = OmegaConf.to_container(compose_words((run,)), resolve=True)
        key = repr({root: plain[root] for root in ("trainer", "model", "data")})
        assert key not in seen, f"{run} and {seen[key]} make the same run"
        seen[key] = run


@functools.cache
def parse(words: tuple[str, ...]) -> None:
    """These words, and those of the warm-start stages that they name, make a run."""
    cfg = compose_words(words)
    check_typed(cfg)
    plain = OmegaConf.to_container(cfg, resolve=True)
    start = (plain["trainer"].get("callbacks") or {}).get("warm_start") or {}
    for stage in filter(None, (start.get("stages") or {}).values()):
        parse((*start["common"], *stage))


@runs
def test_a_run_parses_typed_and_wires(run):
    parse((run,))


@pytest.mark.parametrize("recipe", RECIPES, scope="module")
def test_both_sides_of_an_experiment_parse_and_are_evaluated_at_their_end(recipe):
    experiment = read_experiment(recipe)
    for words in experiment.sides().values() if experiment else ():
        parse(tuple(words))
    if experiment:
        experiment.check_evaluation_interval()


LEARNING = {
    **{f"recipe={name}": 2 for name in ("siren", "metra", "medvlthinker", "medvlthinker_text", "timelens")},
    "recipe=sasr": 4,
}
"""Iterations until every term has a gradient, where one is not enough."""


PRIVATE = {
    f"recipe={name}": ("data.num_minibatches=1", "model.privacy={noise_multiplier: 0.5, target_epsilon: null}")
    for name in ("dp_sft", "dp_bradley_terry", "dp_ppo")
}
"""Private gradients: one step an iteration, with noise that is given, since computing it takes seconds."""
STOPS = "data.sampling.stop=['0','1','2','3','4','5','6','7','8','9']"
NEEDED = {
    **PRIVATE,
    "recipe=absolute_zero": ("data.num_prompts=24",),  # several rows of one role and kind are compared
    "recipe=archer": (  # the critic reads dialogues of twenty questions at each of its steps
        "data.task.max_turns=3",
        "data.transforms.critic.critic_steps=1",
        "data.transforms.critic.batch_size=4",
        "data.transforms.critic.actor_states=8",
        "data.transforms.critic.warmup=0",
    ),
    "recipe=cpl": (STOPS,),  # an answer that does not end is wrong
    "recipe=dapo": tuple(
        f"data.transforms.{name}.score_name=reward" for name in ("drop_zero_variance", "dynamic_sampling")
    ),
    "recipe=deep_search": (STOPS,),  # here too
    **dict.fromkeys(["recipe=ilql", "recipe=filtered_bc"], ("data.rollout.count=24",)),  # games that are played first
    # without the rows that are added, of which the last iteration would learn
    "recipe=flow_rft_libero": ("data.rows.replay.groups=0", "data.transforms.expert.count=1"),
    "recipe=glam": ("policy.reduction=mean",),  # by the sum a random network always takes the shortest action
    "recipe=glam_new_names": ("policy.reduction=mean",),
    "recipe=flag_trader": ("model.learning_rates=null",),  # the only layer of a tiny model is the frozen one
    **dict.fromkeys(
        ["recipe=goal_filtering", "recipe=goal_beam"],
        ("model.frozen_models.reward_model._target_=tests.methods.preferences.goal_conditioned.test_guidance.AnyGoal",),
    ),
    "recipe=agent_rlvr": ("data.transforms.guidance.score_name=reward", "data.transforms.pairs.score_name=reward"),
    "recipe=agent_rlvr_reward": ("data.rollout.score_name=reward",),
    # a value that also stories of random weights differ in
    "recipe=cosmos": (
        "data.rollout._target_=tests.methods.search.test_cosmos.Curious",
        "data.rollout.iterations=3",
        "data.rollout.gap=0.0",
    ),
    "recipe=lspo": ("data.rollout.games=8", "data.rollout.iterations=50"),
    "recipe=webthinker": ("data.transforms.pairs.score_name=reward",),
    "recipe=laser": (STOPS,),  # the self-reward token stands after answers that end
    "recipe=recap": ("data.transforms.objectives.score_names=[reward]",),  # scores of random answers are all 0
    "recipe=stg": ("policy.adapter_share=0.5",),  # few tokens of a tiny iteration are those of the adapter
    "recipe=relift": ("data.transforms.hard.size=2",),  # as many questions as a tiny iteration fails
    "recipe=sasr": ("data.rollout.imitation_probability.warmup=1",),
    # some random completions are questions, which no random answer from documents passes
    "recipe=ssp": (
        STOPS,
        "data.num_prompts=24",
        "data.rollout.check=false",
        "data.rollout.min_searches=0",
        "data.rollout.question_pattern='(.+)'",
    ),
    "recipe=trapo": (
        "data.transforms.trajectory.labelled_fraction=1.0",
        "data.transforms.trajectory.score_name=reward",
    ),
    "recipe=rltf": ("data.rows.pool.groups=0",),  # with old rows an iteration without episodes learns too
    "recipe=rlpr": ("data.num_prompts=64",),  # some completions have a line end, after which the answer stands
    "recipe=medvlthinker": ("data.curriculum.measure_iterations=1",),  # nothing is learned while the start is measured
    "recipe=medvlthinker_text": ("data.curriculum.measure_iterations=1",),
    "recipe=videossr": (  # as many of each of three tasks
        "data.num_prompts=6",
        "data.task.counts={grounding: 8, counting: 8, jigsaw: 8}",
    ),
    "recipe=timelens": ("data.curriculum.measure_iterations=1", "data.curriculum.size=4"),  # here too
    **dict.fromkeys(
        [f"recipe={name}" for name in ("ppo_metaworld", "flow_ppo_metaworld", "flow_ppo_mt10", "flow_ppo_libero")],
        ("model.objective.coefficients.policy=1",),
    ),
    "recipe=mm_eureka": ("data.transforms.accuracy.score_name=reward",),
    "recipe=vlm_rm": ("data.task.reward_model.steps=2",),
    "recipe=vrag_rl": (STOPS, "data.rollout.parser._target_=tests.tiny_recipes.Searches"),
    "start=huatuogpt_traces": ("data.rollout._target_=tests.methods.search.huatuogpt.test_traces.FirstAttempt",),
    "start=principles": ("data.rollout._target_=tests.methods.preferences.rlbff.test_principles.OnePrinciple",),
    "start=veripo_clips_dpo": (
        "data.transforms.pairs.correct_score=reward",
        "data.transforms.pairs.consistent_score=null",
    ),
    "start=veripo_dpo": ("data.transforms.pairs.correct_score=reward", "data.transforms.pairs.consistent_score=null"),
    "start=verirl_pairs": ("data.rollout.rounds=1",),  # alternating rewards repair everything in two
    "recipe=metra": ("model.phases.representation.optimizer.lr=0.3",),  # some steps violate the constraint
    "recipe=dreamer": ("model.phases.model.terms.kl.free_nats=0",),
}
"""What a tiny run needs beside its size for every term to have something to do."""


def learning_run(run: str, folder, last: int) -> DictConfig:
    """Iterations of the run at a tiny size, in which some episodes of each problem are rewarded; the last one has no
    episodes."""
    words = [*shrink((run,), folder), f"trainer.max_epochs={last}", f"trainer.check_val_every_n_epoch={last}"]
    words.append("trainer.callbacks.watcher={_target_: tests.tiny_recipes.Watcher}")
    words.append(f"data.transforms.none={{_target_: tests.tiny_recipes.DropFrom, iteration: {last - 1}}}")
    cfg = compose([*words, *NEEDED.get(run, ())])
    if "replay" not in cfg.data:  # there the simulator pays every decision
        cfg.data.reward = {"_target_": "tests.tiny_recipes.Alternating"}
    return cfg


@runs
def test_every_run_learns_with_every_term_and_not_without_rows(run, tmp_path):
    learning = LEARNING.get(run, 1)
    cfg = learning_run(run, tmp_path, learning + 1)
    cli = CLI(to_lightning(cfg))
    model, watcher = cli.model, next(c for c in cli.trainer.callbacks if isinstance(c, Watcher))
    cli.fit()
    data = cli.datamodule
    steps = getattr(data, "gradient_steps", data.update_epochs * data.num_minibatches)
    result = getattr(model, "updates", cli.trainer.global_step)
    assert result in (learning * steps, (learning + 1) * steps) and cli.datamodule.iteration == learning + 1
    logged = {k: float(v) for k, v in cli.trainer.callback_metrics.items()}
    for name, value in logged.items():
        assert math.isfinite(value) or not name.startswith(("train/", "rollout/")), name
    terms = term_names(model)
    assert all(f"train/{name}" in logged for name in terms)

    assert watcher.terms == terms  # each has a gradient in some iteration
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    moved = {name for name in trained if not torch.equal(watcher.start[name], watcher.ends[-1][name])}
    assert len(moved) > len(trained) / 2, sorted(trained - moved)
    if "replay" not in cfg.data and run not in PRIVATE:  # a replay buffer goes on to be trained on, and noise is a step
        for name, value in watcher.ends[learning - 1].items():
            assert torch.equal(value, watcher.ends[learning][name]), name
        assert watcher.schedules[learning - 1] == watcher.schedules[learning]
    assert (tmp_path / "config.yaml").exists() and (tmp_path / "policy").is_dir()


def test_a_resolved_file_is_the_same_run(tmp_path):
    words = words_of("grpo", tmp_path)
    CLI(to_lightning(compose(words))).fit()
    again = CLI(["--config", str(tmp_path / "config.yaml")], build=False)
    assert again.to_yaml() == CLI(to_lightning(compose(words)), build=False).to_yaml()
