"""A run that is shorter than the interval of its checkpoints ends with one, from which it goes on exactly."""

from tests.learners.test_resume import RUNS, same
from tests.tiny_recipes import fit

SPARSE = (*RUNS["text"], "trainer.check_val_every_n_epoch=1", "trainer.callbacks.last.every_n_epochs=10")


def test_a_short_run_ends_with_a_checkpoint_and_goes_on_like_a_long_one(tmp_path):
    fit(tmp_path / "short", *SPARSE, "trainer.max_epochs=2")
    last = tmp_path / "short" / "checkpoints" / "last.ckpt"
    assert last.exists()
    resumed = fit(tmp_path / "resumed", *SPARSE, "trainer.max_epochs=3", f"ckpt_path={last}")
    through = fit(tmp_path / "through", *SPARSE, "trainer.max_epochs=3")
    same(through, resumed)
