"""The comparison of agents with single turns samples the same requests on both sides."""

import re

from scripts.agents.measure_throughput import main
from tests.checkpoints import qwen2


def test_both_sides_have_the_same_requests_and_a_ratio_is_printed(tmp_path, capsys):
    main(["--path", str(qwen2(tmp_path)), "--episodes", "6", "--tokens", "4", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert re.search(r"6 episodes, \d+ tokens in the last run\n", printed)
    assert re.search(r"ratio \d\.\d\d, from \d\.\d\d to \d\.\d\d in 1 runs", printed)
