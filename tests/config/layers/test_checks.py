"""Methods, settings, starts and recipes of a user: they run from a project and a folder, or are refused by name."""

import pytest

from mmrl.config import option_files
from mmrl.config.compose import compose
from mmrl.config.option_files import CONFIG_DIR, groups
from mmrl.core.errors import ConfigError

GLOBAL = "# @package _global_\n"
METHOD = GLOBAL + "paper: {title: Mine}\ndefaults: [/method/grpo]\ndata: {update_epochs: 3}\n"
SETTING = GLOBAL + "# mine\ndefaults: [sums]\ntrainer: {max_epochs: 7}\n"
RECIPE = GLOBAL + "defaults: [{override /method: mine}, {override /setting: ours}]\n"


@pytest.fixture(params=["conf", "--config-dir"])
def conf(request, tmp_path, monkeypatch):
    """A folder of groups: of the working directory, or named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CONFIG_DIR, raising=False)
    option_files._list_installed.cache_clear()
    folder = tmp_path / ("conf" if request.param == "conf" else "other")
    folder.mkdir()
    if request.param != "conf":
        monkeypatch.setenv(CONFIG_DIR, str(folder))
    return folder


def write(conf, **texts):
    for name, text in texts.items():
        file = conf / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.mark.parametrize("method", ["method__mine", "method__losses__mine", "method__ours__mine"])
def test_a_method_and_a_setting_of_a_user_run(conf, method):
    path = method.removeprefix("method__").replace("__", "/")
    write(conf, **{method: METHOD, "setting__ours": SETTING, "recipe__mine": RECIPE.replace("mine}", f"{path}}}")})
    write(conf, recipe__heir=GLOBAL + "defaults: [mine]\nseed: 5\n")
    for words in (["recipe=mine"], ["recipe=heir"], ["method=mine", "setting=ours"]):
        cfg = compose([*words, "run_dir=x"])
        assert (cfg.data.update_epochs, cfg.trainer.max_epochs, cfg.data.num_prompts) == (3, 7, 128)
        assert (cfg.choices.method, cfg.choices.setting) == ("mine", "ours")


def test_a_method_extends_a_method_of_mmrls_by_its_theme(conf):
    write(conf, method__losses__mine=METHOD.replace("/method/grpo", "losses/gspo"))
    assert compose(["method=mine"]).model.objective.terms.policy.importance_sampling_level == "sequence"


def test_a_recipe_extends_a_recipe_and_changes_its_method(conf):
    text = GLOBAL + "defaults: [grpo, {override /method: losses/gspo}]\n"
    write(conf, recipe__mine=text)
    cfg, gspo = compose(["recipe=mine", "run_dir=x"]), compose(["recipe=gspo", "run_dir=x"])
    assert cfg.model.objective == gspo.model.objective and cfg.choices.method == "gspo"


def test_a_setting_of_a_user_is_for_pretrained_weights_where_it_says_so(conf):
    words = ["method=gspo", "setting=ours", "policy=text", "policy.path=x"]
    write(conf, setting__ours=GLOBAL + "setting: {weights: pretrained}\ntrainer: {max_epochs: 7}\n")
    assert compose(words).trainer.max_epochs == 7
    write(conf, setting__ours=GLOBAL + "trainer: {max_epochs: 7}\n")
    with pytest.raises(ConfigError, match="setting=ours has the numbers of a small policy"):
        compose(words)
    write(conf, setting__ours=GLOBAL + "setting: {weight: pretrained}\n")
    with pytest.raises(ConfigError, match=r"ours.yaml: setting: weight: must be weights: pretrained"):
        compose(words)
    write(conf, setting__ours=GLOBAL + "setting: pretrained\n")
    with pytest.raises(ConfigError, match=r"ours.yaml: setting: pretrained: must be weights: pretrained"):
        compose(words)


def test_a_start_of_a_user_prepares_a_run(conf):
    write(conf, start__mine=GLOBAL + "# mine\ndefaults: [sums]\ntrainer: {max_epochs: 7}\n")
    cfg = compose(["start=mine"])
    assert cfg.trainer.max_epochs == 7 and cfg.choices.start == "mine" and cfg.run_dir.startswith("runs/mine/")


REFUSED = {
    "override /method: losses/nope": (
        r"mine.yaml: override /method: losses/nope: there is no method 'losses/nope'; "
        r"(did you mean '\S+'\? )?`mmrl list method` names all"
    ),
    "override /method: gsppo": r"mine.yaml: override /method: gsppo: .*did you mean 'gspo'\?",
    "override /method: lossess/gspo": r"there is no method 'lossess/gspo'; did you mean 'gspo'\?",
    "override /task: texts/arithmetic": r"there is no task 'texts/arithmetic'; did you mean 'arithmetic'\?",
    "override /setting: sms": r"mine.yaml: override /setting: sms: there is no setting 'sms'; did you mean 'sums'\?",
    "override /task: nope": r"mine.yaml: override /task: nope: there is no task 'nope'",
    "override /setting: sums}, {override /setting: graphs": r"override /setting is there twice, sums and graphs; leave",
    "override /setting: sums": r"mine.yaml: recipe 'mine' names no method; write defaults: \[\{override /method: NA",
    "/method: losses/gspo": r"mine.yaml: /method: losses/gspo: write override /method: losses/gspo",
    "method: losses/gspo": r"mine.yaml: method: losses/gspo: write override /method: losses/gspo",
}


@pytest.mark.parametrize("entry", REFUSED)
def test_a_recipe_that_names_what_is_not_there_is_refused_in_one_sentence(conf, entry):
    write(conf, recipe__mine=GLOBAL + f"defaults: [{{{entry}}}]\n")
    with pytest.raises(ConfigError, match=REFUSED[entry]) as refused:
        compose(["recipe=mine"])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults: [nope]\n", r"mine.yaml: defaults: nope: there is no recipe 'nope'"),
        ("defaults: [/methods/grpo]\n", r"mine.yaml: defaults: /methods/grpo: there is no group 'methods'"),
        ("seed: 3\n", "recipe 'mine' names no method"),
        ("defaults: [{override /method: null}]\n", "recipe 'mine' names no method"),
        ("- a\n", r"mine.yaml: must be a mapping of keys, got \['a'\]"),
        ("a: [\n", r"mine.yaml: while parsing"),
    ],
)
def test_a_recipe_that_is_none_is_refused(conf, text, message):
    write(conf, recipe__mine=GLOBAL + text)
    with pytest.raises(ConfigError, match=message):
        compose(["recipe=mine"])


def test_what_a_method_extends_is_checked(conf):
    write(conf, method__mine=METHOD.replace("/method/grpo", "grppo"))
    with pytest.raises(ConfigError, match=r"mine.yaml: defaults: grppo: .*did you mean 'grpo'\?"):
        compose(["method=mine"])
    write(conf, method__mine=METHOD.replace("/method/grpo", "/method/grppo"))
    with pytest.raises(ConfigError, match=r"mine.yaml: defaults: /method/grppo: .*did you mean '/method/grpo'\?"):
        compose(["method=mine"])


@pytest.mark.parametrize("entry", ["grpo", "/method/grpo", "losses/grpo", "/method/losses/grpo"])
def test_a_method_extends_another_by_its_name_or_its_path(conf, entry):
    write(conf, method__mine=METHOD.replace("/method/grpo", entry))
    assert compose(["method=mine"]).data.update_epochs == 3


@pytest.mark.parametrize("folder", ["", "text/"])
def test_a_recipe_chooses_options_by_their_names_or_their_paths(conf, folder):
    entries = f"grpo, {{override /task: {folder}strings}}, {{override /policy: {folder}mini_text}}"
    write(
        conf,
        recipe__mine=GLOBAL + f"defaults: [{entries}]\n",
        policy__ours="# @package model.policy\ndefaults: [tiny_vla]\n",
    )
    choices = compose(["recipe=mine"]).choices
    assert (choices.task, choices.policy) == ("strings", "mini_text")
    assert compose(["recipe=demo_vla", "policy=ours"]).model.policy == compose(["recipe=demo_vla"]).model.policy


@pytest.mark.parametrize("group", ["method", "setting", "start", "recipe"])
def test_a_file_without_its_place_or_with_a_name_of_mmrls_is_refused(conf, group):
    write(conf, **{f"{group}__mine": "seed: 3\n"})
    with pytest.raises(ConfigError, match=r"mine.yaml: the first line must be '# @package _global_'"):
        groups()
    (conf / group / "mine.yaml").unlink()
    name = groups()[group][0]
    write(conf, **{f"{group}__theme__{name}": GLOBAL + "seed: 3\n"})
    with pytest.raises(ConfigError, match=f"{name}.yaml: mmrl has a {group} '{name}' too .* rename the file"):
        groups()


def test_names_in_an_extended_file_are_looked_for_where_hydra_does(conf):
    write(conf, method__losses__base=METHOD, method__mine=METHOD.replace("/method/grpo", "/method/losses/base"))
    assert compose(["method=mine"]).data.update_epochs == 3
    write(conf, method__losses__base=METHOD.replace("/method/grpo", "losses/gspo"))
    with pytest.raises(ConfigError, match=r"base.yaml: defaults: losses/gspo: .*did you mean '/method/gspo'\?"):
        compose(["method=mine"])
