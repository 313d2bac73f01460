"""The HTML report: one self-contained file, failures first, with videos of the first episodes in order."""

import base64
import io
from html.parser import HTMLParser

import imageio.v3 as imageio
import numpy as np
from PIL import Image

from mmrl.core.types import Episode, Prompt
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.protocol import Protocol
from mmrl.evaluation.report.html_report import HtmlReport
from mmrl.evaluation.report.result import EvaluationResult
from mmrl.evaluation.statistics.paired import compare_checkpoints
from mmrl.evaluation.video.recording import EpisodeVideo, EpisodeVideos
from mmrl.evaluation.video.scenes import select_episodes, sort_failures_first

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Reader(HTMLParser):
    """Refuses tags that do not match; keeps addresses, table rows and all text."""

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.rows, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.sources += [given[name] for name in ("poster", "src", "href") if name in given]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.rows and self.rows[-1] and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data.strip()


def episode(i: int, success: float, ended: str = "done") -> Episode:
    prompt = Prompt(f"suite/held_out/{i}", info={"seed": 2**60 + i, "task": "push" if i % 2 else "lift"})
    scores = {} if ended == "error" else {"success": success, "dropped": 1 - success, "return": success}
    info = {"instruction": f"<move> & {i}", "decisions": 4}
    return Episode(prompt, i, 0, ended=ended, scores=scores, info=info)


def page(folder, **changes) -> HtmlReport:
    after = [episode(i, float(i in (1, 2, 5)), "error" if i == 4 else "done") for i in range(6)]
    before = [episode(i, 0.0) for i in range(6)]
    played = {"before": {"mean": before}, "after": {"mean": after}}
    rate = SuccessRate("success")
    metrics = {title: {"mean": {"success": rate(e["mean"]), "scores": {"return": 0.5}}} for title, e in played.items()}
    tasks = {"before": {}, "after": {"mean": {"push": {"success": rate(after[1::2])}}}}
    result = {"task": "suite", "split": "held_out", "offset": 0, "count": 6, "num_samples": 1, "against": None}
    result |= {"metrics": metrics, "tasks": tasks}
    result["checkpoints"] = {"after": {"path": "last.ckpt", "optimiser_steps": 3, "epoch": 1}}
    actual = EvaluationResult(Protocol({"suite": {"renderer": "ray"}}, {}, {"torch": "2"}), played)
    compared = compare_checkpoints({"mean": before}, {"mean": after}, {"success": rate})
    return HtmlReport(folder, actual, result, compared, "success", **changes)


def videos() -> EpisodeVideos:
    videos = [EpisodeVideo([np.full((64, 64, 3), 40 * i, np.uint8)] * 12, f"move {i}") for i in range(6)]
    return EpisodeVideos(
        videos, [episode(i, float(i in (1, 2, 5)), "error" if i == 4 else "done") for i in range(6)], 20
    )


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_failures_come_first_and_clips_are_the_first_ones_in_order():
    episodes = page(".").evaluation.episodes["after"]["mean"]
    assert [e.group for e in sort_failures_first(episodes, "success")] == [4, 0, 3, 1, 2, 5]
    assert select_episodes(episodes, "success", 2) == [0, 3, 1, 2]
    assert select_episodes(episodes, None, 2) == [0, 1]  # without a score nothing failed and nothing succeeded


def test_the_page_is_one_well_formed_file_with_every_number(tmp_path):
    output = page(tmp_path)
    written = output.write()
    assert written == tmp_path / "report.html"
    reader = read(written.read_text())
    assert reader.sources == []
    text = " ".join("".join(reader.text).split())
    assert output.evaluation.protocol.hash in text and "last.ckpt" in text and "suite.renderer" in text
    assert "exact McNemar p" in text and "60.0 %" in text  # 3 of 5 that finished
    table = [row for row in reader.rows if len(row) == 9 and row[1].startswith("1152")]
    assert [row[0] for row in table] == ["4", "0", "3", "1", "2", "5"]
    assert table[0][3:6] == ["<move> & 4", "simulator error", "dropped"]
    assert table[1][4] == "dropped" and table[3][4] == "success"
    totals = [row for row in reader.rows if row[:4] == ["after", "mean", "all", "success"]]
    assert totals and totals[0][7:9] == ["5", "1"]


def test_clips_and_curve_are_inside(tmp_path):
    (tmp_path / "metrics.csv").write_text(
        "epoch,iterations,rollout/reward,val/mean/success/mean,val/mean/success/lower,val/mean/success/upper\n"
        "0,0,0.1,0.2,0.1,0.3\n1,1,0.2,0.4,0.3,0.5\n"
    )
    reader = read(page(tmp_path, videos={"mean": {"before": videos(), "after": videos()}}).html())
    kinds = [source.split(";")[0] for source in reader.sources]
    assert kinds == ["data:image/png"] + ["data:image/jpeg", "data:video/mp4"] * 5
    content = [base64.b64decode(source.split(",", 1)[1]) for source in reader.sources]
    assert Image.open(io.BytesIO(content[0])).size == (1200, 750)
    frames = imageio.imread(content[2], extension=".mp4")
    assert len(frames) >= 12 and frames.shape[2] > 2 * 64
    assert Image.open(io.BytesIO(content[1])).size == frames.shape[2:0:-1]
