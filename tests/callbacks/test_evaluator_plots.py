import csv

from tests.tiny_recipes import fit


def test_a_run_compares_itself_with_its_start_and_draws(tmp_path):
    """Also when it is resumed, where the start is in the checkpoint, and at its end, where nothing is measured."""
    words = (
        "evaluation=pass_at_k",
        "evaluation.count=3",
        "evaluation.num_samples=2",
        "evaluation.evaluators.pass.ks=[1,2]",
        "trainer.check_val_every_n_epoch=1",
        f"trainer.logger={{csv: {{_target_: mmrl.runs.metrics_csv.MetricsCSV, run_dir: '{tmp_path}'}}}}",
    )
    fit(tmp_path, *words, "trainer.max_epochs=1")
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    last = [row for row in rows if row["val/sampled/support/preserved"]][-1]
    counted = sum(float(last[f"val/sampled/support/{kind}"]) for kind in ("preserved", "lost", "gained", "never"))
    assert counted >= 3
    drawn = {path.name for path in (tmp_path / "plots").iterdir()}
    assert drawn == {"sampled-pass.png", "sampled-support.png", "sampled-solved.png"}
    fit(tmp_path, *words, "trainer.max_epochs=1", f"ckpt_path={tmp_path}/checkpoints/last.ckpt")
    assert {path.name for path in (tmp_path / "plots").iterdir()} == drawn
