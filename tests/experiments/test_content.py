import ast
import importlib.util

from mmrl.experiments.content import (
    HASHED,
    MACHINERY,
    _RemoveProse,
    collect_sources,
    find_targets,
    hash_content,
    training_config,
)


def test_words_that_learn_something_else_have_another_hash():
    assert hash_content(["recipe=grpo"]) == hash_content(["recipe=grpo", "seed=3", "run_dir=elsewhere"])
    assert hash_content(["recipe=grpo"]) != hash_content(["recipe=grpo", "optimizer.lr=1e-3"])


def test_capture_does_not_count():
    assert hash_content(["recipe=grpo", "capture=false"]) == hash_content(["recipe=grpo", "capture=true"])


def test_a_start_stage_belongs_to_the_run():
    stage = "trainer.callbacks.warm_start.stages.sft=['start=sums','data.num_prompts=7']"
    assert hash_content(["recipe=grpo"]) != hash_content(["recipe=grpo", stage])


def test_a_stage_with_a_seed_of_its_own_is_hashed():
    """The stages of this recipe have seed=1${seed}; a seed is no part of the hash."""
    config = training_config(["recipe=secrets_rlhf"])
    assert len(config["stages"]) == 3
    assert hash_content(["recipe=secrets_rlhf"]) == hash_content(["recipe=secrets_rlhf", "seed=7"])


def test_when_a_start_stops_is_what_it_learns():
    def stopped(at):
        words = f"['start=sums','trainer.callbacks.stop.stopping_threshold={at}']"
        return hash_content(["recipe=grpo", f"trainer.callbacks.warm_start.stages.sft={words}"])

    assert stopped(0.15) != stopped(0.35)
    assert hash_content(["recipe=grpo"]) == hash_content(
        ["recipe=grpo", "trainer.callbacks.checkpoint.every_n_epochs=7"]
    )


def test_a_part_is_followed_to_its_arithmetic():
    result = collect_sources(["mmrl.annotators.group_advantage.GroupAdvantage"])
    assert any(name.startswith("mmrl.ops.advantage.") for name in result)
    assert not any(name.startswith(("mmrl.core.types", "mmrl.learners")) for name in result)
    # what the package only re-exports is found where it is defined
    assert "tasks.arithmetic.task.Arithmetic" in collect_sources(["tasks.arithmetic.Arithmetic"])


def test_functions_that_a_configuration_names_are_followed():
    named = set(find_targets({"reward": {"functions": ["mmrl.rewards.shaping:exact_within_limit"], "text": "a: b"}}))
    assert named == {"mmrl.rewards.shaping.exact_within_limit"} == set(collect_sources(sorted(named)))
    assert "mmrl.rewards.shaping.exact_within_limit" in set(find_targets(training_config(["recipe=siri"])))


def test_imports_inside_functions_are_followed():
    assert "sims.render.ray.RayRenderer" in collect_sources(["sims.render.base.make_renderer"])


def test_prose_does_not_count():
    def bare(text):
        return ast.dump(_RemoveProse().visit(ast.parse(text)))

    assert bare("def f(x: int) -> int:\n    'doubles'\n    return 2 * x  # twice") == bare("def f(x): return 2 * x")
    assert bare("def f(x): return 2 * x") != bare("def f(x): return 3 * x")
    assert bare("raise E(f'no {x}') from None") == bare("raise E('there is no ' 'x') from None")
    assert bare("raise E('a')") != bare("raise F('a')") and bare("f('a')") != bare("f('b')")


def test_shared_code_and_its_exceptions_exist():
    missing = [name for name in (*MACHINERY, *HASHED) if importlib.util.find_spec(name) is None]
    assert missing == []
