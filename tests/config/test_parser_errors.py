"""Bad input, as typed by a user: one line that names the place, the exit status, and no traceback."""

import logging

import pytest

from mmrl.__main__ import main

GRPO = ("recipe=grpo", "task=arithmetic", "policy=tiny_text")
TINY = (
    "trainer.callbacks.warm_start.stages=null",
    "trainer.max_epochs=1",
    "trainer.logger=false",
    "trainer.accelerator=cpu",
    "trainer.enable_progress_bar=false",
    "trainer.callbacks.progress=null",
    "data.evaluation.count=2",
)
CONTROL = (
    "policy=control",
    "policy.observation_dims=4",
    "policy.actions=2",
    "policy.kind=categorical",
    "policy.low=-1",
    "policy.high=1",
)
GYM = ("task=sim", "sim=gym", "sim.id=CartPole-v1")

CONFIGURATION = {
    "a size that comes from a simulator": (("policy=control",), "policy.observation_dims", "sim="),
    "a size that the simulator does not have": ((*GYM, "policy=tiny_vla"), "GymSim", "policy.action_dims", "kind"),
    "an unknown key of a part": (
        ("objective.nonsense=1",),
        "model.objective",
        "'nonsense'",
        "terms, coefficients, row_masks",
    ),
    "an unknown root": (("trainre.max_epochs=2",), "trainre.max_epochs", "'trainer'"),
    "an unknown key of Lightning's": (("trainer.max_epoch=2",), "trainer", "'max_epoch'", "'max_epochs'"),
    "a bar that is off and there": (
        ("trainer.callbacks.progress={_target_: mmrl.callbacks.progress.Progress}",),
        "trainer: ",
        "enable_progress_bar=False",
        "trainer.callbacks.NAME=null",
    ),
    "an unknown key of the data": (("data.num_promts=2",), "data", "'num_promts'", "'num_prompts'"),
    "an unknown key of the sampling": (("sampling.temprature=2",), "sampling", "temprature"),
    "a number that is a word": (("data.num_prompts=five",), "data.num_prompts", "int", "five"),
    "a number deep inside": (
        ("objective.terms.policy.clip_high=abc",),
        "model.objective.terms",
        "clip_high",
        "float",
        "abc",
    ),
    "a choice that is not one": (("data.annotators.group_advantage.scale=typo",), "data.annotators", "scale", "sample"),
    "a class that is not there": (
        ("objective.terms.policy._target_=mmrl.objectives.policy.No",),
        "model.objective",
        "No",
    ),
    "a value out of its range": (("sampling.temperature=0",), "sampling.temperature", "> 0"),
    "an unknown recipe": (("recipe=grpoo",), "recipe=grpoo", "'grpo'"),
    "an unknown option": (("policy=tiny_txt",), "policy=tiny_txt", "'tiny_text'"),
    "a word without a value": (("nonsense",), "'nonsense'", "key=value"),
    "a path that is needed": (("policy=text",), "policy.path", "missing"),
    "advantages that nobody writes": (("data.pipeline=[]",), "'grpo'", "'policy'", "advantages"),
    "values that nobody writes": (("recipe=ppo_text", "data.pipeline=[gae]"), "'ppo_text'", "'gae'", "values"),
    "values without a head": (
        ("recipe=ppo_text", "policy.value_head=false"),
        "annotator 'values'",
        "model.policy.value_head=true",
    ),
    "a reference that is not kept": (("data.pipeline=[reference]",), "'reference'", "model.reference=true"),
    "an annotator without a name": (("data.pipeline=[nope]",), "data.pipeline", "'nope'"),
    "an objective without terms": (("objective.terms.policy=null",), "objective.terms"),
    "a checkpoint that is not there": (("ckpt_path=/no/such.ckpt",), "ckpt_path=/no/such.ckpt", "no such file"),
}
FAILURES = {
    "a policy that cannot see": (("task=digits",), "TextPolicy cannot see", "policy=tiny_vlm"),
    "a policy that cannot read": (CONTROL, "ControlPolicy", "messages", "fits the task"),
    "a simulator that is not stepped": (GYM, "CartPole", "rollout=env"),
    "a policy without a camera": (
        (
            *GYM,
            *("policy=tiny_vla", "policy.action_dims=1", "policy.chunk=1", "policy.proprio_dims=4"),
            *("rollout=env", "evaluation=sim"),
        ),
        "ActionTokenPolicy",
        "image",
    ),
    "a score that nobody gives": (("data.reward.weights={exakt: 1}",), "data.reward.weights", "'exakt'", "exact"),
    "a precision that rounds advantages": (
        ("trainer.precision=bf16-true",),
        "trainer.precision=bf16-true",
        "bf16-mixed",
    ),
}


@pytest.fixture(autouse=True)
def silence():
    """Lightning's log handler keeps the error stream of the first test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def refused(words, capsys, folder) -> tuple[int, str]:
    """Exit status and the message, when that is all that was said."""
    given = {word.split("=")[0] for word in words}
    base = [word for word in (*GRPO, *TINY) if word.split("=")[0] not in given]
    status = main(["fit", *base, *words, f"run_dir='{folder}'"])
    output = capsys.readouterr().err
    assert "Traceback" not in output
    (message,) = [line for line in output.splitlines() if line.startswith("mmrl fit: ")]
    assert output.rstrip().endswith(message)
    return status, message


@pytest.mark.parametrize("name", CONFIGURATION)
def test_a_configuration_is_refused_before_anything_runs(name, capsys, tmp_path):
    words, *parts = CONFIGURATION[name]
    status, message = refused(words, capsys, tmp_path)
    assert status == 2
    for part in parts:
        assert part in message, message
    assert len(message) < 600


@pytest.mark.parametrize("name", FAILURES)
def test_parts_that_do_not_fit_say_so_when_they_meet(name, capsys, tmp_path):
    words, *parts = FAILURES[name]
    status, message = refused(words, capsys, tmp_path)
    assert status in (1, 2)
    for part in parts:
        assert part in message, message


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 half a zip file"])
def test_an_unreadable_checkpoint(content, capsys, tmp_path):
    (tmp_path / "bad.ckpt").write_bytes(content)
    status, message = refused((f"ckpt_path={tmp_path}/bad.ckpt",), capsys, tmp_path)
    assert status == 2 and f"ckpt_path={tmp_path}/bad.ckpt" in message and "not a readable checkpoint" in message


def test_a_folder_without_a_model(capsys, caplog, tmp_path):
    status, message = refused(("policy=text", f"policy.path={tmp_path}"), capsys, tmp_path)
    assert status == 2 and f"policy.path={str(tmp_path)!r} cannot be loaded" in message


def test_a_row_without_an_answer(capsys, caplog, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n{"question": "2+2="}\n')
    status, message = refused(("task=dataset", f"task.path={tmp_path}/rows.jsonl"), capsys, tmp_path)
    assert status == 2 and f"{tmp_path}/rows.jsonl:2" in message and "'answer' is missing" in message


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch, capsys):
    from mmrl import commands

    def broken(words):
        return {}["missing"]

    monkeypatch.setitem(commands.COMMANDS, "fit", broken)
    with pytest.raises(KeyError, match="missing"):
        main(["fit"])


def test_a_traceback_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("MMRL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no such recipe"):
        main(["fit", "recipe=gpro"])


def test_an_unknown_command(capsys):
    assert main(["fitt"]) == 2
    assert "unknown command 'fitt'; commands are fit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("policy=text", "policy.path=/nowhere"), "policy"),
        (
            (*GRPO, "+model.frozen_models.teacher={_target_: mmrl.policies.text.policy.TextPolicy, path: /nowhere}"),
            "model.frozen_models.teacher",
        ),
    ],
)
def test_a_message_about_a_model_names_its_key(arguments, key, tmp_path, capsys):
    assert main(["fit", *arguments, *TINY, f"run_dir={tmp_path / 'run'}"]) != 0
    assert f"mmrl fit: {key}.path='/nowhere': no such folder" in capsys.readouterr().err
