"""The page of samples: nothing is loaded or run but its own script, filters and sorting work, one file stays small."""

import json
import re

import numpy as np
import pytest

from mmrl.samples.html import MAX_BYTES, render_page, render_section
from mmrl.samples.images import encode_thumbnail
from tests.browser import open_page
from tests.hostile import HOSTILE

ALL = "(selector => [...document.querySelectorAll(selector)])"
IMAGE = encode_thumbnail(np.random.default_rng(0).integers(0, 256, (28, 28, 3), dtype=np.uint8))


def episode(number=0, reward=1.0, text="2", **more):
    turn = {"tokens": [text, "<eos>"], "chosen": [1, 1], "logprobs": [-0.5, -0.1], "advantages": [1.5, -0.5]}
    row = {"sample_index": number, "ended": "done", "reward": reward, "scores": {"exact": reward}, "output": text}
    return {**row, "turns": [turn], **more}


def group(number=0, episodes=None, **more):
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": f"{number}+1="}]}]
    row = {"group": number, "key": f"sums/train/{number}", "messages": messages, "images": [IMAGE], "answer": 2}
    made = [episode(0, 1.0), episode(1, 0.0, "x")] if episodes is None else episodes
    return {**row, "score_name": "exact", "group_size": len(made), "episodes": made, **more}


def hostile_group(number, text):
    call = {"name": text, "arguments": {text: text}, "outcome": text, "result": text}
    row = episode(0, 0.0, text, scores={text: 0.0}, ended=text, calls=[call], error=text, extracted=text)
    messages = [{"role": text, "content": text}]
    return group(number, [row], key=text, messages=messages, answer=text, images=[text])


def data_of(page):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, flags=re.DOTALL)[1])


def test_hostile_texts_are_data_alone(tmp_path):
    groups = [hostile_group(number, text) for number, text in enumerate(HOSTILE)]
    page = render_page(HOSTILE[0], HOSTILE[1], groups)
    assert page.count("<script") == page.count("</script>") == 2  # the data and the script of the package
    assert len(data_of(page)["groups"]) == 50
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")
    counted = f"document.querySelectorAll('button.more').forEach(b => b.click()), {ALL}('.sample').length"
    made = f"{ALL}('.sample *').filter(node => !['DIV', 'PRE', 'SPAN', 'B', 'H4'].includes(node.tagName)).length"
    opened = open_page(file, counted, made, "window.hostile === undefined", "document.body.innerText")
    assert opened.messages == [] and opened.answers[:3] == [50, 0, True]
    assert "<script>window.hostile=1</script>" in opened.answers[3] and "\u202e" not in opened.answers[3]


def test_filter_sorting_and_colours(tmp_path):
    groups = [group(0), group(1, [episode(0, 1.0)]), group(2, [episode(0, 0.0), episode(1, 0.0)])]
    file = tmp_path / "page.html"
    file.write_text(render_page("run", "text", groups), "utf-8")
    keys = f"{ALL}('.sample .head').map(node => node.textContent)"
    episodes = f"{ALL}('.episode').map(node => node.classList[1])"

    def choose(i, value):
        return (
            f"(() => {{ const s = document.querySelectorAll('select')[{i}]; s.value = '{value}'; "
            "s.dispatchEvent(new Event('change')); })()"
        )

    first = f"{ALL}('.episode pre span').slice(0, 2).map(node => node.style.background)"
    beside = "image.getBoundingClientRect().right < image.nextSibling.getBoundingClientRect().left"
    image = f"(image => [image.naturalWidth, {beside}])(document.querySelector('.prompt img'))"
    questions = (keys, first, image, choose(0, "failures"), keys, episodes, choose(1, "reward"), keys)
    opened = open_page(file, *questions, choose(2, "probability"), first, choose(2, "none"), first)
    names = [f"#{i} sums/train/{i}" for i in range(3)]
    assert opened.messages == [] and opened.answers[0] == names
    assert opened.answers[1] == ["rgba(34, 136, 51, 0.57)", "rgba(204, 51, 17, 0.27)"]
    assert opened.answers[2] == [28, True]  # the image is drawn, beside the text
    assert opened.answers[4:6] == [[names[0], names[2]], ["failure"] * 3]
    assert opened.answers[7] == [names[2], names[0]]  # the lowest mean reward first
    assert opened.answers[9][0].startswith("rgba(68, 119, 170") and opened.answers[11] == ["", ""]


def test_two_checkpoints_stand_side_by_side():
    section = render_section({"before": [group(0, [episode(0, 0.0)])], "after": [group(0), group(1)]})
    data = data_of(section)
    assert data["titles"] == ["before", "after"]
    assert [[len(side) for side in each["sides"]] for each in data["groups"]] == [[1, 2], [0, 2]]


def test_the_page_is_bounded_and_says_what_is_left_out():
    long = [group(i, [episode(0, 0.0, "word " * 4000)]) for i in range(300)]
    page = render_page("run", "text", long)
    kept = data_of(page)
    assert MAX_BYTES * 0.9 < len(page) < 3_000_000 and kept["left"] == 300 - len(kept["groups"]) > 0


@pytest.mark.parametrize("word", ["http:", "https:", "src=", "@import", "url("])
def test_nothing_comes_from_outside(word):
    assert word not in render_page("run", "text", [group(0)]).replace("image.src = uri", "")


def test_numbers_that_all_tokens_share_are_stored_once():
    alike = {"tokens": ["a", "b"], "chosen": [1, 1], "logprobs": [0.0, 0.0], "advantages": [0.5, 0.5]}
    forced = {"tokens": ["a", "b", "[x]", "c"], "chosen": [1, 1, 0, 1], "logprobs": [0.0] * 4}
    (made,) = data_of(render_section({"": [group(0, [episode(turns=[alike, forced])])]}))["groups"]
    assert made["sides"][0][0]["turns"] == [
        {"tokens": ["a", "b"], "advantages": 0.5},
        {"tokens": ["ab", "[x]", "c"], "chosen": [1, 0, 1]},
    ]
