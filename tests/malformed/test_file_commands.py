"""At least one malformed file of each kind through the command that reads it: refused, and nothing is trained."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil

import pytest
import torch

from mmrl.__main__ import main
from mmrl.runs.checkpoint_file import read_checkpoint, write_checkpoint
from tests.datasets.episodes import episode, write
from tests.malformed.files import datasets, images, policies, rows
from tests.malformed.files.case import Case
from tests.malformed.files.refusals import commanded

TINY = ("policy=tiny_text", "policy.config.hidden_size=32", "policy.config.intermediate_size=64",
        "policy.config.num_hidden_layers=1", "trainer.max_epochs=1", "data.num_prompts=4", "trainer.accelerator=cpu",
        "trainer.logger=false", "trainer.enable_progress_bar=false", "trainer.callbacks.progress=null")  # fmt: skip
SFT = ("fit", "recipe=sft", *TINY, "data.num_minibatches=1", "data.evaluation.count=2")
CLONE = ("fit", "recipe=bc", "sim=null", "task=offline", "rollout=offline", "trainer.max_epochs=1",
         "trainer.logger=false",
         "trainer.accelerator=cpu", "trainer.enable_progress_bar=false", "trainer.callbacks.progress=null",
         "data.evaluation=null", "data.num_prompts=2", "curriculum=shuffled")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def trained(tmp_path_factory):
    """A run; it is made first in any case, so that no library logs into the captured stream of one test for ever."""
    folder = tmp_path_factory.mktemp("trained")
    assert main([*SFT, "task=arithmetic", f"run_dir={folder}"]) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run that may be broken."""
    return shutil.copytree(trained, tmp_path / "run")


def check_untrained(folder):
    assert not list(folder.rglob("last.ckpt")) and not list(folder.rglob("*.safetensors")), "something was trained"


ROWS = [
    (rows.ROWS, "a question twice", ()),
    (rows.ROWS, "half of a surrogate pair", ()),
    (rows.ROWS, "another answer", ()),
    (images.IMAGES, "a PNG cut in its pixels", ("task.images=image",)),
]


def case_of(table, name):
    return next(case for case in table if case.name == name)


@pytest.mark.parametrize(("table", "name", "words"), ROWS, ids=[name for _, name, _ in ROWS])
def test_fit_refuses_rows(table, name, words, tmp_path, capsys):
    case = case_of(table, name)
    task = case.build(tmp_path)
    out = tmp_path / "out"
    commanded([*SFT, "task=dataset", f"task.path={task.path}", f"run_dir={out}", *words], case, capsys)
    check_untrained(out)


def test_fit_refuses_a_prompt_that_is_too_long(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "x" * 200_000, "answer": 1}) + "\n")
    with open(tmp_path / "rows.jsonl", "a") as file:
        file.write(json.dumps({"question": "short", "answer": 1}) + "\n")
    case = Case("long", lambda folder: folder, r"rows\.jsonl:1", "more than 2048 tokens.*shorten the prompt")
    words = [f"task.path={tmp_path}/rows.jsonl", "task.held_out_fraction=0.5", f"run_dir={tmp_path}/out"]
    commanded([*SFT, "task=dataset", *words], case, capsys)
    check_untrained(tmp_path / "out")


def test_fit_refuses_a_policy_folder(tmp_path, capsys):
    case = case_of(policies.TEXT, "weights without their last bytes")
    words = [f"policy.path={case.build(tmp_path)}", "policy.config=null", f"run_dir={tmp_path}/out"]
    commanded([*SFT, "task=arithmetic", *words], case, capsys)
    check_untrained(tmp_path / "out")


@pytest.mark.parametrize("name", ["an action that is NaN", "fps is 0", "mmrl.json is a list"])
def test_fit_refuses_a_dataset(name, tmp_path, capsys):
    case = case_of(datasets.LEROBOT, name)
    folder = case.build(tmp_path)
    if name == "an action that is NaN":  # inspect sums them up, fit names the first
        case = Case(name, case.build, "episode 1", "action is not finite at control step 2")
    commanded([*CLONE, f"task.path={folder}", f"run_dir={tmp_path}/out"], case, capsys)
    check_untrained(tmp_path / "out")


def changed(path, change):
    """The checkpoint with its weights changed."""
    saved = read_checkpoint(path)
    change(saved["state_dict"])
    write_checkpoint(saved, path)
    return path


def spoil(state):
    state[next(name for name in state if name.endswith("norm.weight"))].fill_(float("nan"))


def reshape(state):
    state[next(name for name in state if name.endswith("norm.weight"))] = torch.ones(7)


CHECKPOINTS = [
    ("NaN", spoil, "last.ckpt", "numbers that are not finite"),
    ("another shape", reshape, "last.ckpt", r"another shape: .*norm.weight \[7\] \(here \[32\]\)"),
]


@pytest.mark.parametrize("kind", CHECKPOINTS, ids=[kind[0] for kind in CHECKPOINTS])
def test_checkpoints_are_refused_by_every_command(kind, run, tmp_path, capsys):
    name, change, place, expected = kind
    case = Case(name, lambda folder: folder, place, expected)
    last = changed(run / "checkpoints" / "last.ckpt", change)
    commanded(["evaluate", run], case, capsys)
    assert not (run / "evaluation.json").exists()
    out = tmp_path / "out"
    fit = [*SFT, "task=arithmetic", f"run_dir={out}"]
    commanded([*fit, "trainer.max_epochs=2", f"ckpt_path={last}"], case, capsys)
    commanded([*fit, f"trainer.callbacks.warm_start={{_target_: mmrl.callbacks.warm_start.WarmStart, run_dir: {out}, "
               f"checkpoint: {last}}}"], case, capsys)  # fmt: skip
    check_untrained(out)


STATED = [
    ("contract.json", "[]", "a list, not an object"),
    ("environment.json", "{", "broken JSON"),
]


@pytest.mark.parametrize(("name", "content", "expected"), STATED, ids=[name for name, _, _ in STATED])
def test_evaluate_refuses_a_damaged_run_folder(name, content, expected, run, capsys):
    (run / name).write_text(content)
    commanded(["evaluate", run], Case(name, lambda folder: folder, name.replace(".", r"\."), expected), capsys)


def test_evaluate_refuses_a_damaged_measurement(run, tmp_path, capsys):
    assert main(["evaluate", str(run), "count=2"]) == 0
    (run / "evaluation.json").write_text("[")  # of the run itself: it is written anew
    assert main(["evaluate", str(run), "count=2"]) == 0
    for name, expected in (("protocol.json", "a list, not an object"), ("episodes.jsonl", "must be an object")):
        other = shutil.copytree(run, tmp_path / f"other-{name}")
        (other / name).write_text("[]")
        case = Case(name, lambda folder: folder, name.replace(".", r"\."), expected + ".*measure again")
        commanded(["evaluate", run, "count=2", f"compare={other}"], case, capsys)


PLACES = [
    ("/proc/mmrl", "cannot be written"),
    ("/dev/null", "is a file, not a folder"),
    ("/etc/passwd", "is a file, not a folder"),
    ("/etc/passwd/set", "is a file, not a folder"),
    ("a" * 300, "has 300 bytes"),
]


@pytest.mark.parametrize(("place", "expected"), PLACES, ids=[place[:20] for place, _ in PLACES])
def test_data_record_refuses_a_place_that_cannot_be_written(place, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    case = Case(place, lambda folder: folder, place[:11], expected)
    words = ["sim=reach", "sim.image_size=16", "sim.max_decisions=1", "num_episodes=1", "video=false"]
    commanded(["data", "record", *words, f"out={place}"], case, capsys)


@pytest.mark.parametrize(
    "words, expected",
    [
        (["sim=reach", "num_episodes=1", "num_episodes=2"], "num_episodes is given twice"),
        (["sim=reach", "sampling.temperature=3"], "an expert is recorded with its sim, sim.* and task.* alone"),
        (["run=run", "send=true"], "send=... is an option of `mmrl evaluate`"),
    ],
)
def test_data_record_refuses_words_that_change_nothing(words, expected, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(run.parent)
    words = [word.replace("run=run", f"run={run}") for word in words]
    assert main(["data", "record", *words, f"out={tmp_path / 'data'}"]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("place", ["/proc/mmrl", "/etc/passwd/sheet"])
def test_data_inspect_refuses_a_place_that_cannot_be_written(place, tmp_path, capsys):
    case = Case(place, lambda folder: folder, f"out: {place}", "cannot be written .*give a folder")
    folder = write(tmp_path / "set", [episode(5, 0)])
    commanded(["data", "inspect", folder, f"out={place}"], case, capsys)


@contextlib.contextmanager
def full_disk(size):
    """No file may grow beyond this many bytes, as on a disk that is full; the log of the tests may, afterwards."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_grows_too_large_while_it_is_written_is_told_in_a_line(run, tmp_path, capsys):
    case = Case("full", lambda folder: folder, "evaluate: .*run", "cannot be written .*on a disk with room")
    with full_disk(1000):
        commanded(["evaluate", run, "count=2"], case, capsys)
    case = Case("full", lambda folder: folder, "out: .*recorded", "cannot be written .*on a disk with room")
    words = ["sim=reach", "sim.image_size=16", "sim.max_decisions=1", "num_episodes=1", "video=false"]
    with full_disk(1000):
        commanded(["data", "record", *words, f"out={tmp_path}/recorded"], case, capsys)


def test_data_inspect_computes_statistics_where_the_stated_ones_are_broken(tmp_path, capsys):
    folder = case_of(datasets.LEROBOT, "stats.json is not JSON").build(tmp_path)
    assert main(["data", "inspect", str(folder), "write=true"]) == 0
    assert main(["data", "inspect", str(folder)]) == 0
