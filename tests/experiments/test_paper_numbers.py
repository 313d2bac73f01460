"""The table of docs/recipes.md has the numbers of every method's file, and where they stand in the paper."""

import pytest
import yaml

from mmrl.config.layers.settings import choose_setting
from mmrl.config.option_files import CONF
from mmrl.experiments.paper_numbers import ABSENT, END, START, read_numbers, render_numbers, replace_numbers

PAGE = CONF.parent / "docs" / "recipes.md"


def read_rows() -> dict[str, list[str]]:
    """Cells of the table as it stands, by method."""
    table = PAGE.read_text().partition(START)[2].partition(END)[0].strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table[2:]]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_the_table_is_what_the_files_say():
    """Where this fails: python scripts/paper_index.py."""
    assert replace_numbers(PAGE) == PAGE.read_text()


def test_every_method_has_a_row_with_its_numbers_and_their_place():
    rows, files = read_rows(), {file.stem: file for file in (CONF / "method").rglob("*.yaml")}
    assert set(rows) == set(files)
    for name, file in files.items():
        block = yaml.safe_load(file.read_text()).get("paper_setting")
        assert rows[name][-1] == (ABSENT if block is None else " ".join(block["place"].split())), name
        rate = ((block or {}).get("model", {}).get("optimizer") or {}).get("lr")
        assert rows[name][0] == "-" if rate is None else float(rows[name][0]) == float(rate), name
        for column, key in ((1, "num_prompts"), (2, "group_size"), (3, "num_minibatches")):
            number = (block or {}).get("data", {}).get(key)
            assert rows[name][column] == ("-" if number is None or isinstance(number, dict) else str(number)), name


def test_the_table_changes_with_a_number_and_with_a_place():
    blocks = read_numbers()
    table = render_numbers(blocks)
    dapo = blocks["dapo"]
    for change in ({"place": "another section"}, {"data": {**dapo["data"], "num_prompts": 513}},
                   {"trainer": {"gradient_clip_val": 0.1}}):  # fmt: skip
        assert render_numbers({**blocks, "dapo": {**dapo, **change}}) != table
    assert render_numbers({**blocks, "dapo": {}}).count(ABSENT) == table.count(ABSENT) + 1


def test_a_page_without_markers_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"a page\n{START}\n")
    with pytest.raises(ValueError, match="end of the numbers"):
        replace_numbers(page)


def test_the_page_shows_the_first_line_of_a_run_in_another_setting():
    words = ["recipe=gspo", "policy=text", "policy.path=Qwen/Qwen2.5-0.5B-Instruct"]
    assert f"mmrl fit {' '.join(words)}\n" in PAGE.read_text()
    assert f"# {choose_setting(words).line}\n" in PAGE.read_text()
