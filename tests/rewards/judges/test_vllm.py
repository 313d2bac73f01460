"""vLLM's own server as the judge, beside the untouched model of transformers."""

import pytest
import torch

from mmrl.rewards.judges.model import ModelJudge
from mmrl.rewards.judges.pointwise import Pointwise, YesNo
from mmrl.rewards.judges.server import ServerJudge
from tests.engines.vllm.servers.openai_server import serve
from tests.rewards.judges.checkpoint import build_checkpoint
from tests.rewards.judges.episodes import group_of
from tests.rewards.judges.test_engine import ANSWERS

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def judges(tmp_path_factory):
    """A judge whose likely first words are yes and no, in this process and behind a server."""
    folder = tmp_path_factory.mktemp("judge")
    build_checkpoint(folder)
    judge = ModelJudge(str(folder), max_tokens=12, device="cpu")
    model, tokenizer = judge._parts
    inputs = tokenizer(
        [judge._format(question.text, tokenizer) for question in YesNo().ask(group_of(ANSWERS))],
        return_tensors="pt", padding=True, add_special_tokens=False,
    )  # fmt: skip
    with torch.no_grad():
        state = model.model(**inputs).last_hidden_state[:, -1].mean(dim=0)  # [D], which the words' rows point along
        for scale, word in ((12, "yes"), (11, "no"), (10, " Yes")):
            model.lm_head.weight[tokenizer.convert_tokens_to_ids(word)] = scale * state / state.square().sum()
    model.save_pretrained(folder)
    alone = ModelJudge(str(folder), max_tokens=12, device="cpu")  # reads what the server reads
    with serve(folder, "judge", "--max-model-len", "1024") as url:
        yield ServerJudge(f"{url}/v1", "judge", max_tokens=12), alone


def test_written_replies(judges):
    questions = Pointwise().ask(group_of(ANSWERS))
    replies, expected = (judge.reply(questions) for judge in judges)
    assert [(r.text, r.prompt_tokens) for r in replies] == [(r.text, r.prompt_tokens) for r in expected]


def test_log_odds(judges):
    """vLLM lists the 20 most likely first tokens, among which are those of both words."""
    questions = YesNo().ask(group_of(ANSWERS))
    odds, expected = (judge.judge(questions) for judge in judges)
    assert odds == pytest.approx(expected, abs=1e-3)
    assert max(odds) - min(odds) > 1e-3
