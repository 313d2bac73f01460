"""What a configuration file may name: classes of the slot's type, and code of the working directory or with trust."""

import copy
import functools
import itertools
import re
import sys

import pytest
import yaml
from lightning.pytorch import LightningDataModule, LightningModule

from mmrl.commands.cli import CLI, load_run
from mmrl.config.code.slots import check_slots
from mmrl.config.code.trust import check_named_code
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from sims.host.build import build
from tests.config.named_parts import CALLS

TINY = ("trainer.callbacks.warm_start.stages=null", "logger=csv", "trainer.accelerator=cpu", "run_dir=RUN")
RECIPES = ("ppo_text", "sac", "demo_vla")
"""Recipes whose slots are tried: of text with values, of phases, and of a simulator."""


@functools.cache
def configuration(recipe: str) -> str:
    return CLI(to_lightning(compose([f"recipe={recipe}", *TINY])), build=False).to_yaml()


def slots(node, place=()):
    """The places of all parts, and of dictionaries, each with the key of something that it does not have."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    if isinstance(node, dict) and "class_path" in node and place:
        yield place
    if isinstance(node, dict) and "class_path" not in node and len(place) > 3:
        yield (*place, "further")
    for name, value in pairs:
        yield from slots(value, (*place, name))


def replaced(config, place, value):
    config = copy.deepcopy(config)
    node = config
    for name in place[:-1]:
        node = node[name]
    node[place[-1]] = value
    return config


PARTS = {
    "function": {"class_path": "tests.config.named_parts.record", "init_args": {"lr": 0.1}},
    "class": {"class_path": "tests.config.named_parts.Recorder", "init_args": {"lr": 0.1}},
}


ROOTS = {"trainer": None, "model": LightningModule, "data": LightningDataModule}


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_slot_takes_what_is_not_of_its_type(recipe):
    config = yaml.safe_load(configuration(recipe))
    places, accepted = [place for place in slots(config) if place[0] != "trainer"], []
    check_slots(config, ROOTS)
    for place in places:
        for part in PARTS.values():
            try:
                check_slots(replaced(config, place, part), ROOTS)
            except ConfigError as error:
                assert part["class_path"] in str(error)
            else:
                accepted.append(place)
    assert accepted == []
    assert not CALLS
    assert len(places) >= 20


def test_no_slot_of_a_file_calls_what_is_not_of_its_type():
    config = yaml.safe_load(configuration("ppo_text"))
    places = list(slots(config))
    chosen = [place for place in places if {"optimizer", "scheduler", "further"} & set(place)] + places[::5]
    for place, part in zip(chosen, itertools.cycle(PARTS.values())):
        with pytest.raises(ConfigError) as error:
            CLI(replaced(config, place, part), build=False, trains=False).before_instantiate_classes()
        assert len(str(error.value)) < 1500
    assert not CALLS
    assert len(chosen) >= 15


def loaded(config, folder, **options):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return load_run(folder / "config.yaml", **options)


COMMAND = {"class_path": "os.system", "init_args": {"command": "touch hit"}}


@pytest.mark.parametrize(
    "part", ["{name}.Part", "{{class_path: {name}.Part}}", '{{"class_path": "\\u006d{rest}.Part"}}']
)
@pytest.mark.parametrize("place", ["optimizer", "scheduler"])
def test_evaluate_imports_no_text_of_others(part, place, tmp_path, monkeypatch):
    """The parser imports what a text names before its type is known."""
    folder = tmp_path / "home" / "theirs"
    folder.mkdir(parents=True)
    (folder / "my_code.py").write_text(f"open({str(tmp_path / 'hit')!r}, 'w')")
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.syspath_prepend(tmp_path / "home" / "theirs")
    config = yaml.safe_load(configuration("ppo_text"))
    text = part.format(name="my_code", rest="y_code")
    with pytest.raises(ConfigError, match="trust=true"):
        loaded(replaced(config, ("model", "init_args", place), text), folder)
    assert not (tmp_path / "hit").exists()
    if place == "optimizer":  # which is imported where it is trusted
        with pytest.raises(ConfigError):
            loaded(replaced(config, ("model", "init_args", place), text), folder, trust=True)
        assert (tmp_path / "hit").exists()
        sys.modules.pop("my_code", None)


PLACES = [("optimizer",), ("scheduler",), ("policy", "init_args", "config", "further")]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_evaluate_runs_no_command_of_a_configuration(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = yaml.safe_load(configuration("ppo_text"))
    config = replaced(config, ("model", "init_args", "scheduler"), None)
    for trust in (False, True):
        with pytest.raises(ConfigError, match=r"os\.system"):
            loaded(replaced(config, ("model", "init_args", *place), COMMAND), tmp_path / "run", trust=trust)
    assert not (tmp_path / "hit").exists()


def test_a_run_that_is_measured_has_no_optimiser(tmp_path):
    config = yaml.safe_load(configuration("ppo_text"))
    config["model"]["init_args"]["optimizer"]["init_args"]["betas"] = [2.0, 2.0]
    with pytest.raises(ConfigError, match=r"model\.optimizer"):
        CLI(copy.deepcopy(config), build=False).before_instantiate_classes()
    assert loaded(config, tmp_path / "run").model is not None


# ---------------------------------------------------------------- whose code

REWARD = {"class_path": "mmrl.rewards.function.FunctionReward"}
TOOL = "mmrl.tools.function.FunctionTool"


def functions(*paths):
    return {"data": {"init_args": {"reward": REWARD | {"init_args": {"functions": list(paths)}}}}}


def part(path, **more):
    return {"data": {"init_args": {"x": {"class_path": path}}}, **more}


def guest(path):
    return {"sim": {"class_path": "sims.workers.guest.NamedGuest", "init_args": {"path": path}}}


FOREIGN = {
    "a function's file beside the run": functions("{run}/evil.py:score"),
    "a function's file outside": functions("{outside}/evil.py:score"),
    "a relative path that leads outside": functions("../outside/evil.py:score"),
    "a second function": functions("mine.py:score", "{run}/evil.py:score"),
    "a text in place of a list": {"data": {"init_args": {"functions": "{run}/evil.py:score"}}},
    "a scorer of steps": {"reward": {"init_args": {"scorer": {"init_args": {"function": "{run}/evil.py:score"}}}}},
    "a tool": {"tools": [{"class_path": TOOL, "init_args": {"function": "{outside}/evil.py:score"}}]},
    "a judge": {"reward": {"init_args": {"judge": {"init_args": {"function": "numpy:load"}}}}},
    "an agent": {"data": {"init_args": {"rollout": {"init_args": {"agent": "{run}/evil.py:score"}}}}},
    "a function of an installed package": functions("numpy:load"),
    "a method of an installed package": functions("torch.hub:load"),
    "a project outside": part("evil.Reward", project="{outside}"),
    "tasks of a project outside": part("tasks.evil.Task", project="{outside}"),
    "a module in the run's folder": part("runs.theirs.evil.Reward"),
    "a guest's interpreter": {"data": {"sim": {"python": "{outside}/python"}}},
    "a server of tools": {"data": {"rollout": {"servers": {"main": {"command": "python -c pass"}}}}},
    "a guest's class": guest("runs.theirs.evil:Walk"),
    "an environment's package": {"sim": {"init_args": {"id": "runs.theirs.evil:Walk-v0"}}},
    "a stage's function": {"trainer": {"stages": ["recipe=sft reward={run}/evil.py:score"]}},
    "a stage's class": {"trainer": {"common": ["reward._target_=runs.theirs.evil.Reward"]}},
    "a stage's schedule": {"trainer": {"stages": ["scheduler.lr_lambda=runs.theirs.evil.f"]}},
    "a function in place of a number": {"scheduler": {"init_args": {"lr_lambda": "runs.theirs.evil.f"}}},
    "a list of functions": {"scheduler": {"init_args": {"lr_lambda": [3, "runs.theirs.evil.f"]}}},
    "a function of a callback": {"trainer": {"callbacks": [{"init_args": {"amount": "runs.theirs.evil.f"}}]}},
    "a class that is a text": {"optimizer": "runs.theirs.evil.Adam"},
    "a part that is a text of YAML": {"optimizer": "{class_path: runs.theirs.evil.Adam, init_args: {lr: 1}}"},
    "a part that is a text of JSON": {"optimizer": '{"class_path": "runs.theirs.evil.Adam"}'},
    "a text of YAML with escapes": {"optimizer": '{"class_path": "\\x72uns.theirs.\\u0065vil.Adam"}'},
    "escapes of escapes": {"optimizer": '{a: "{b: \\"\\\\x72uns.theirs.evil.Adam\\"}"}'},
}
"""Needs trust."""
NEVER = {
    "a command": functions("os:system"),
    "a dotted command": functions("subprocess.getoutput"),
    "a builtin": functions("builtins:eval"),
    "the program": functions("__main__:main"),
    "a class": part("subprocess.Popen"),
    "a module that opens a browser": part("antigravity.Part"),
    "no module": part("Part"),
    "a guest": guest("subprocess:Popen"),
    "an environment": {"sim": {"init_args": {"id": "antigravity:Walk-v0"}}},
    "a nested target": {"options": {"deep": [{"_target_": "os.system", "command": "x"}]}},
    "a stage's class": {"trainer": {"stages": [{"reward": "x reward._target_=os.system"}]}},
}
"""Has no place in any run."""
ALLOWED = {
    "mmrl's function": functions("tasks.arithmetic.calculator:calculate"),
    "an own file": functions("{home}/mine.py:score"),
    "an own relative file": functions("mine.py:score"),
    "an own module": part("mine.Reward"),
    "a class of an installed package": part("torch.optim.AdamW"),
    "an own task": part("tasks.home_made.Task"),
    "an own project": part("mine.Reward", project="{home}"),
    "a project without classes": part("torch.optim.AdamW", project="{outside}"),
    "this interpreter": {"data": {"sim": {"python": sys.executable}}},
    "no interpreter": {"data": {"sim": {"python": "null"}}},
    "an environment of gymnasium": {"sim": {"init_args": {"id": "CartPole-v1"}}},
    "a stage": {"trainer": {"stages": ["recipe=sft task=arithmetic"]}},
    "an own function": {"scheduler": {"init_args": {"lr_lambda": "mine.f"}}},
    "ordinary texts": {"task": {"question": "Is runs.theirs. a file, 3.14 or os.path? e.g. \\frac{1}{2} \\x.y {"}},
    "files": {"task": {"file": "runs/theirs/rows.json", "other": "../outside/evil.py", "third": "evil.py"}},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The folder of somebody's run inside of a working directory with code."""
    for place in ("home/runs/theirs/evil.py", "outside/evil.py", "home/mine.py", "outside/python",
                  "outside/tasks/evil.py", "home/tasks/home_made/__init__.py"):  # fmt: skip
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("raise RuntimeError('imported')")
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.syspath_prepend(tmp_path / "home")
    return tmp_path / "home" / "runs" / "theirs"


def written(content, run):
    places = {"run": run, "home": run.parents[1], "outside": run.parents[2] / "outside"}
    text = yaml.safe_dump(content)
    for name, place in places.items():
        text = text.replace(f"{{{name}}}", str(place))
    return yaml.safe_load(text)


@pytest.mark.parametrize("name", FOREIGN)
def test_code_of_others_needs_trust(name, run):
    content = written(FOREIGN[name], run)
    with pytest.raises(ConfigError, match="trust=true"):
        check_named_code(content, run / "config.yaml")
    check_named_code(content, run / "config.yaml", trust=True)


@pytest.mark.parametrize("name", NEVER)
def test_code_that_is_no_part_of_a_run_is_refused(name, run):
    for trust in (False, True):
        with pytest.raises(ConfigError, match="standard library"):
            check_named_code(written(NEVER[name], run), run / "config.yaml", trust)


@pytest.mark.parametrize("name", ALLOWED)
def test_own_code_needs_no_trust(name, run):
    check_named_code(written(ALLOWED[name], run), run / "config.yaml")


@pytest.mark.parametrize("target", ["os:system", "os.system", "subprocess:Popen", "json:dumps", "math.sqrt"])
def test_a_guest_is_a_class_of_no_standard_module(target):
    with pytest.raises(ValueError, match=re.escape(target)):
        build({"_target_": "tests.config.named_parts.Recorder", "x": {"_target_": target}})
    assert not CALLS
