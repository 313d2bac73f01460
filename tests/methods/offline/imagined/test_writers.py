"""Imagined conversations: dialogues that are read, written by a language model, and judged by one."""

import pytest

from mmrl.core.errors import ConfigError
from mmrl.methods.offline.imagined.writers import ModelCritic, ModelDialogues, describe_user, read_dialogue
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rewards.judges.engine import EngineJudge
from mmrl.rewards.judges.server import ServerJudge
from tasks.twenty_questions.task import TwentyQuestions
from tasks.twenty_questions.wishes import WishDialogue
from tests.rewards.judges.stub_server import StubServer
from tests.tools.programs.chat_server import serve_texts

TASK = WishDialogue()


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("Agent: sharp?\nUser: Yes.\nAgent: bee!", ["sharp?", "Yes.", "bee!"]),
        ("Here it is:\n\n**Agent:** sharp?\n  user:  Yes. \n\nThat was it.", ["sharp?", "Yes."]),
        ("Agent: a\nUser: b\nAgent: c\nUser: d\nAgent: e", ["a", "b", "c", "d"]),  # two turns of the agent at most
        ("User: Hello.\nAgent: sharp?", None),
        ("Agent: sharp?\nAgent: bee!", None),
        ("Agent:\nUser: Yes.", None),
        ("I cannot do that.", None),
        ("", None),
    ],
)
def test_dialogues_are_read(text, turns):
    assert read_dialogue(text, 2) == turns


def test_a_language_model_writes_dialogues_of_the_described_skill():
    prompts, texts = [TASK[0], TASK[1]], ["Agent: sharp?\nUser: No.", "Agent: bee!"]
    with serve_texts(texts) as (url, bodies):
        writer = ModelDialogues(url, "any", requests=1)
        assert writer.write(TASK, prompts, ["good", "poor"], 5) == texts
        with pytest.raises(ConfigError, match=r"rollout\.skills has 'wise'"):
            writer.write(TASK, prompts[:1], ["wise"], 0)
    contents = [body["messages"][0]["content"] for body in bodies]
    assert [body["seed"] for body in bodies] == [5, 6]
    assert "very skilled" in contents[0] and "unskilled" in contents[1] and "at most 8 turns" in contents[0]
    for content, prompt in zip(contents, prompts):
        assert prompt.messages[0]["content"] in content and f"wants the {prompt.info['problem'].thing}" in content


@pytest.mark.parametrize(
    ("success", "consistency", "judgement"),
    [("1", "0.75", (1.0, 0.75)), ("0", "1", (0.0, 1.0)), ("0.5", "1", (1.0, 1.0)), ("yes", "1", None)],
)
def test_a_language_model_judges(success, consistency, judgement):
    with StubServer(lambda text, mark: f"success-{mark}: {success}\nconsistency-{mark}: {consistency}") as stub:
        critic = ModelCritic(ServerJudge(url=stub.url, model="m"))
        (answer,) = critic.judge(TASK, [TASK[0]], [["sharp?", "No.", "bee!"]])
    content = stub.requests[0]["messages"][0]["content"]
    assert "Agent: sharp?\nUser: No.\nAgent: bee!" in content and TASK.describe_user(TASK[0]) in content
    if judgement is None:
        assert isinstance(answer, NoAnswer) and "is no number" in answer.reason
    else:
        assert answer == judgement


def test_agents_are_described_by_given_words():
    writer = ModelDialogues("http://127.0.0.1:1/v1", "any", {"shy": "one that says little"})
    assert "The agent is one that says little." in writer._ask(TASK, TASK[0], "shy")[0]["content"]


def test_refusals():
    with pytest.raises(ValueError, match=r"EngineJudge is a model of the run.*ServerJudge"):
        ModelCritic(EngineJudge())
    with pytest.raises(ConfigError, match=r"'twenty_questions' describes no user.*setting=wishes"):
        describe_user(TwentyQuestions(), TwentyQuestions()[0])
    with pytest.raises(ValueError, match=r"rollout\.writer\.requests"):
        ModelDialogues("http://127.0.0.1:1/v1", "any", requests=0)
