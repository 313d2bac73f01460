import numpy as np
import pytest
from lightning.pytorch.loggers import CSVLogger
from PIL import Image

from mmrl.evaluation.report.plots import Curve, plot_learning_curve, read_metrics

TRAIN = Curve("train/success", "training")
HELD_OUT = Curve("eval/success", "held out", "eval/success_lower", "eval/success_upper", points=True)


@pytest.fixture
def metrics_csv(tmp_path):
    logger = CSVLogger(tmp_path, name="", version="")
    for epoch in range(6):
        logger.log_metrics({"epoch": epoch, "train/success": epoch / 10}, step=2 * epoch)
        logger.log_metrics({"epoch": epoch, "train/success": epoch / 5}, step=2 * epoch + 1)
        if epoch % 5 == 0:
            value = epoch / 5
            interval = {"eval/success_lower": value - 0.1, "eval/success_upper": value + 0.1}
            logger.log_metrics({"epoch": epoch, "eval/success": value, **interval}, step=2 * epoch + 1)
    logger.save()
    return tmp_path / "metrics.csv"


def test_metrics_are_read_by_iteration(metrics_csv):
    metrics = read_metrics(metrics_csv)
    assert metrics["train/success"] == {epoch: epoch / 5 for epoch in range(6)}  # the last of an iteration counts
    assert metrics["eval/success"] == {0: 0.0, 5: 1.0}


def test_image_shows_both_curves(metrics_csv, tmp_path):
    figure_path = plot_learning_curve(metrics_csv, tmp_path / "new" / "curve.png", [TRAIN, HELD_OUT], title="reach")
    image = np.asarray(Image.open(figure_path).convert("RGB")).astype(int)
    assert image.shape == (750, 1200, 3)
    for colour in ((0x44, 0x77, 0xAA), (0xEE, 0x66, 0x77)):
        assert (abs(image - colour).max(axis=2) < 8).sum() > 200, colour


def test_same_numbers_same_image_and_other_numbers_another(metrics_csv, tmp_path):
    def draw(name, curves, **kwargs):
        return plot_learning_curve(metrics_csv, tmp_path / name, curves, **kwargs).read_bytes()

    first = draw("a.png", [TRAIN])
    assert first == draw("b.png", [TRAIN])
    assert first != draw("c.png", [HELD_OUT])
    assert first != draw("d.png", [TRAIN], percent=False, y_label="reward")
    band = Curve("eval/success", "held out", "eval/success_lower", "eval/success_upper")
    assert draw("e.png", [band]) != draw("f.png", [Curve("eval/success", "held out")])


def test_refusals(metrics_csv, tmp_path):
    with pytest.raises(KeyError, match=r"no values in column 'train/reward'; it has \['epoch', 'eval/success'"):
        plot_learning_curve(metrics_csv, tmp_path / "x.png", [Curve("train/reward", "reward")])
    with pytest.raises(ValueError, match="lack iterations of 'train/success'"):
        curve = Curve("train/success", "training", "eval/success_lower", "eval/success_upper")
        plot_learning_curve(metrics_csv, tmp_path / "x.png", [curve])
    with pytest.raises(ValueError, match="needs both `lower` and `upper`"):
        Curve("a", "a", lower="b")
    with pytest.raises(ValueError, match="has no column 'iteration'"):
        read_metrics(metrics_csv, index="iteration")
