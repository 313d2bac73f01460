"""Warm-start stages that were run before, with the same words, are not run again where they are kept."""

from mmrl.callbacks.warm_start import WarmStart
from mmrl.runs import child_process

COMMON = ["task=arithmetic", "policy=mini_text", "seed=3"]


def test_a_kept_stage_is_taken(tmp_path, monkeypatch):
    ran = []

    def run(command, env):
        folder = next(word for word in command if word.startswith("run_dir=")).removeprefix("run_dir=")
        ran.append(folder)
        last = tmp_path / folder / "checkpoints" / "last.ckpt"
        last.parent.mkdir(parents=True)
        last.write_bytes(b"weights")

    monkeypatch.setattr(child_process, "run", run)
    monkeypatch.setenv("MMRL_STARTS", str(tmp_path / "starts"))

    def stage(name, words=("recipe=sft_start",), common=COMMON, checkpoint=None):
        folder = tmp_path / name
        WarmStart(str(tmp_path), common=list(common))._run("sft", list(words), folder, checkpoint)
        return (folder / "checkpoints" / "last.ckpt").read_bytes()

    assert stage("first") == stage("second") == b"weights" and len(ran) == 1
    stage("seed", common=[*COMMON[:2], "seed=4"])
    stage("words", words=["recipe=sft_start", "trainer.max_epochs=3"])
    stage("end", words=["recipe=sft_start", "trainer.callbacks.stop.stopping_threshold=0.15"])
    assert len(ran) == 4
    other = tmp_path / "other.ckpt"
    other.write_bytes(b"others")
    stage("after", checkpoint=str(other))
    assert len(ran) == 5
    monkeypatch.delenv("MMRL_STARTS")
    stage("alone")
    assert len(ran) == 6
