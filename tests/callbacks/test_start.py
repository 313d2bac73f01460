import torch

from mmrl.callbacks.start import Start


class Counted(Start):
    """Counts its runs, each of which leaves a checkpoint."""

    runs: list = []

    def _run(self, name, words, folder, checkpoint):
        self.runs.append((name, checkpoint))
        (folder / "checkpoints").mkdir(parents=True)
        torch.save({}, folder / "checkpoints" / "last.ckpt")


class Trainer:
    ckpt_path, is_global_zero = None, True
    strategy = None


def started(tmp_path, monkeypatch, run, stages, common=("seed=0",)):
    loaded = []
    monkeypatch.setattr("mmrl.callbacks.start.load_policy", lambda policy, path: loaded.append(path))
    monkeypatch.setattr("mmrl.callbacks.start.parallel.barrier", lambda *_: None)
    start = Counted(str(tmp_path / run), stages, list(common), cache=str(tmp_path / "cache"))
    start.setup(Trainer(), type("Module", (), {"policy": object()})(), "fit")
    return loaded[0]


def test_a_cached_stage_runs_once_and_only_for_the_same_words_and_seed(tmp_path, monkeypatch):
    Counted.runs.clear()
    stages = {"sft": ["recipe=sft_start"], "more": ["recipe=sft"]}
    first = started(tmp_path, monkeypatch, "a", stages)
    assert [name for name, _ in Counted.runs] == ["sft", "more"] and Counted.runs[1][1] is not None
    assert started(tmp_path, monkeypatch, "b", stages) == first and len(Counted.runs) == 2
    assert started(tmp_path, monkeypatch, "c", stages, ("seed=1",)) != first and len(Counted.runs) == 4
    # another first stage is another start of the second
    other = {"sft": ["recipe=sft_start", "data.prompts=8"], "more": ["recipe=sft"]}
    assert started(tmp_path, monkeypatch, "d", other) != first and len(Counted.runs) == 6


def test_a_stage_that_broke_off_runs_again(tmp_path, monkeypatch):
    Counted.runs.clear()
    started(tmp_path, monkeypatch, "a", {"sft": ["recipe=sft_start"]})
    next((tmp_path / "cache").glob("*/finished")).unlink()
    started(tmp_path, monkeypatch, "b", {"sft": ["recipe=sft_start"]})
    assert len(Counted.runs) == 2
