"""RL-GPT's agents: splits read from answers, the scripts by hand, and what a language model is asked."""

import json
from dataclasses import replace

import pytest

from mmrl.methods.exploration.rl_gpt.agents import LanguageAgents, MacroUse, RoundFeedback, SubAction, read_split
from mmrl.methods.exploration.rl_gpt.library import ProgramTrial
from mmrl.methods.exploration.rl_gpt.scripts import ScriptedAgents, list_recipes, order_items
from mmrl.tools.programs.writers import find_program
from sims.craft.macros import CraftMacroSim
from tests.sims.craft.worlds import TINY, default
from tests.tools.programs.chat_server import serve_texts

SIM = CraftMacroSim(**{**TINY, "slots": 4})
SPLIT = [SubAction("collect_log", "collect a log", True), SubAction("make_plank", "make a plank", False)]


def feedback(sim=SIM, **options):
    world = sim.make_world()
    world.reset(0)
    parts = (sim.items, sim.needs, sim.makes, sim.target, sim.action_names, world.named_state())
    return RoundFeedback(*parts, sim.slots, sim.macro_steps, **options)


def macro_default(**options):
    plain = default()
    return CraftMacroSim(materials=plain.materials, recipes=plain.recipes, target="wood_pickaxe", **options)


def entry(name="dig", task="dig", codable=True):
    return {"name": name, "task": task, "codable": codable}


def test_a_split_is_read_entry_by_entry():
    entries = [entry(), entry("rest", codable=False), {"name": "x"}, entry("Dig it"), entry(), entry("y", codable=1)]
    split, refused = read_split(f"Sure: {json.dumps([*entries, entry('over')])} Done.", 1)
    assert split == [SubAction("dig", "dig", True), SubAction("rest", "dig", False)]
    starts = [
        "3: give an object with name, task and codable",
        "4: name: lower-case letters, digits and underscores, got Dig it",
        "5: name: dig is there already",
        "6: codable: true or false, got 1",
        "7: over: there is room for 1 programs",
    ]
    assert len(refused) == 5 and all(text.startswith(start) for text, start in zip(refused, starts))
    assert read_split("no", 1) == ([], ["there is no list in 'no'"])
    assert read_split("[{]", 1)[1][0].startswith("the list is no JSON")


def test_items_are_in_the_order_of_their_needs():
    assert order_items(feedback()) == ["log", "plank", "table", "stone"]
    pickaxe = feedback(macro_default())
    assert order_items(pickaxe) == ["wood", "plank", "stick", "table", "wood_pickaxe"]
    assert list_recipes(pickaxe)["wood_pickaxe"] == ({"plank": 1, "stick": 1}, ["table"], 1)
    assert list_recipes(feedback()) == {"plank": ({"log": 1}, [], 2), "table": ({"plank": 3}, [], 1)}


def test_the_critic_hands_the_first_failing_item_to_code():
    """Below .5 of the episodes, in the order of needs; what is coded already stays, and materials are coded anyway."""
    agents, plain = ScriptedAgents(), feedback()
    split, refused = read_split(agents.split_task(plain), 4)
    assert not refused
    coded = lambda some: [each.name for each in some if each.codable]  # noqa: E731
    assert coded(split) == ["collect_log", "collect_stone", "wander"]
    assert [each.name for each in split] == ["collect_log", "make_plank", "make_table", "collect_stone", "wander"]
    report = feedback(success={"log": 0.1, "plank": 0.5, "table": 0.49, "stone": 0.0}, split=split)
    advice = agents.criticise(report)
    assert advice == "table was had in 49% of the episodes: code table"
    split, _ = read_split(agents.split_task(replace(report, advice=advice)), 4)
    assert coded(split) == ["collect_log", "make_table", "collect_stone", "wander"]
    assert agents.criticise(replace(report, split=split)) == "keep the split"
    assert coded(read_split(agents.split_task(replace(report, split=split)), 4)[0]) == coded(split)
    assert "wander" not in ScriptedAgents(useless=False).split_task(plain)


def write(agents, name, report, program=None, problem=None):
    return find_program(agents.write_program(SubAction(name, "", True), report, program, problem))


def test_the_first_program_is_broken_and_mended_from_its_error():
    agents, report = ScriptedAgents(), feedback()
    trial = ProgramTrial(SIM.build_program, [report.state], 4096)
    first = write(agents, "collect_log", report)
    problem = trial.find_problem(first, "collect_log.py")
    assert problem == "line 5: KeyError: 'player'"
    assert trial.find_problem(write(agents, "collect_log", report, first, problem), "") is None
    assert trial.find_problem(write(agents, "collect_stone", report), "") is None
    assert write(ScriptedAgents(broken=False), "collect_log", report) == write(
        agents, "collect_log", report, first, problem
    )
    with pytest.raises(ValueError, match="least"):
        ScriptedAgents(least=1.5)


def test_written_programs_do_what_they_are_for():
    """Every collecting program takes its material; making plans what all of an item takes, in the order of needs."""
    sim, agents = macro_default(), ScriptedAgents(broken=False)
    report = feedback(sim)
    names = ["collect_wood", "make_table", "make_wood_pickaxe", "wander"]
    env = sim.with_programs([write(agents, name, report) for name in names]).make(3)
    env.reset(seed=[3, 4, 5])
    first = sim.sizes()["actions"] - sim.slots
    assert [plan for plan, _ in env.programs[2].plan(env.named_states())] == [[]] * 3  # nothing is held
    for count in range(1, 5):
        env.step([first] * 3)
        assert [state["held"] for state in env.named_states()] == [{"wood": count}] * 3
    plan, problem = env.programs[2].plan(env.named_states())[0]
    # a table of two planks, then a plank and a stick, whose plank is made anew
    items = ["plank", "plank", "table", "plank", "plank", "stick", "wood_pickaxe"]
    assert problem is None and sim.action_names[plan[-1]] == "make wood_pickaxe"
    assert sorted(sim.action_names[k] for k in plan) == sorted(f"make {item}" for item in items)
    _, rewards, done, _, infos = env.step([first + 2] * 3)
    assert done.all() and infos["executed"].tolist() == [7] * 3 and rewards == pytest.approx([0.99**6] * 3)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (None, "the answer has no block of Python"),
        ("x" * 50, "the program has 50 bytes, and there is room for 40"),
        ("def act(state)", "dig.py: line 1: SyntaxError: expected ':'"),
        ("def act(state):\n  return ['fly']", "'fly' is no action; there are up"),
    ],
)
def test_what_is_wrong_with_a_program(source, problem):
    assert ProgramTrial(SIM.build_program, [feedback().state], 40).find_problem(source, "dig.py").startswith(problem)


def test_a_language_model_is_told_what_it_needs():
    uses = {"collect_log": MacroUse(0.25, 3.5, ["line 2: KeyError: 'x'"])}
    report = feedback(success={"log": 0.75}, uses=uses, split=SPLIT, advice="code plank", refused=["1: no"], number=7)
    answers = ["[]", "```python\nx\n```", "advice"]
    with serve_texts(answers) as (url, asked):
        agents = LanguageAgents({"url": url, "model": "any"})
        assert agents.split_task(report) == "[]"
        assert agents.write_program(SPLIT[0], report, "old\n", "line 1: NameError") == answers[1]
        assert agents.criticise(report) == "advice"
    split, program, advice = (body["messages"][0]["content"] for body in asked)
    assert all(body["seed"] == 7 for body in asked)
    game = ("- log is collected", "stone is collected where it lies, with table in hand", "table uses up 3 plank")
    success = (
        "log was had in 75% of the episodes",
        "25% of the decisions, 3.5 steps each, failed 1 times: line 2: Key",
    )
    for part in (*game, "make plank", "have a stone"):
        assert all(part in text for text in (split, program, advice))
    for part in (*success, "collect_log"):
        assert part in split and part in advice
    assert "code plank" in split and "1: no" in split and "At most 4 are codable" in split
    assert "collect a log" in program and "line 1: NameError" in program and "old\n" in program
    assert json.dumps(report.state) in program and "Mend" not in "".join((split, advice))


def test_prepared_answers_are_given_in_their_order(tmp_path):
    for number, text in enumerate(("[1]", "[2]")):
        (tmp_path / f"{number}.md").write_text(f"```python\n{text}\n```")
    agents = LanguageAgents({"files": [str(tmp_path / "0.md"), str(tmp_path / "1.md")]})
    assert "[1]" in agents.split_task(feedback()) and "[2]" in agents.criticise(feedback(number=1))
