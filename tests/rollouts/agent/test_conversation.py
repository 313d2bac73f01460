"""Which calls go on in a row, and what the context of another row is."""

import pytest
import torch

from mmrl.core.types import Sampling
from mmrl.engines.endpoint.chat_format import ChatFormat
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.request import ChatRequest
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.agent.conversation import REWRITTEN, AgentConversation, count_changes
from tests.rollouts.agent.policies import save_checkpoint
from tests.rollouts.text.test_tools import policy as character_policy

ASK = [{"role": "user", "content": "add the numbers"}]
AGAIN = {"role": "user", "content": "look again"}
LIMITED = Sampling(max_tokens=6)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return TextPolicy(path=str(save_checkpoint(tmp_path_factory.mktemp("conversation")))).eval()


class Talk:
    """A conversation with an engine, whose calls have seeds of their own."""

    def __init__(self, policy, **options):
        self.conversation, self.engine = AgentConversation(ChatFormat(policy), **options), LocalEngine()
        self.engine.sync(policy, 0)
        self.calls = 0

    def say(self, messages, sampling=LIMITED, n=1, tools=()):
        self.calls += n
        request = ChatRequest("policy", messages, list(tools), n=n)
        planned = self.conversation.plan(request, sampling, [self.calls - i for i in range(n)])
        done = [self.engine.sample([turn.request], turn.sampling)[0] for turn in planned]
        choices = [self.conversation.record(request, *pair) for pair in zip(planned, done)]
        clean = self.conversation.chat.clean
        return [{**choice.message, "content": clean(choice.message["content"])} for choice in choices]

    def masks(self):
        """The number of choices of every row, and of its context."""
        rows = [turn.completion for turn in self.conversation.turns()]
        return [(int(row.action_mask.sum()), len(row.observation["input_ids"])) for row in rows]


def test_what_goes_on_and_what_is_a_row_of_its_own(policy):
    talk = Talk(policy)
    [first] = talk.say(ASK)
    history = [*ASK, first, AGAIN]
    talk.say(history)
    [(choices, context)] = talk.masks()
    assert choices == 12
    rows = talk.conversation.rows
    for number, (messages, options) in enumerate([
        (history, {}),  # a second time from the same reply
        ([*ASK, {**first, "content": "edited"}, AGAIN], {}),  # an edited reply
        ([ASK[0], AGAIN], {}),  # a reply that was dropped
        ([{"role": "system", "content": "be brief"}, *history], {}),  # another beginning
    ]):  # fmt: skip
        talk.say(messages, **options)
        assert len(rows) == number + 2
    forked, *others = (turn.completion for turn in talk.conversation.turns()[1:])
    sampled = rows[0].script.ids
    # the context of a branch has the sampled ids, and its own choices alone are trained on
    assert torch.equal(forked.observation["input_ids"][context : context + 6], sampled[:6])
    assert forked.action_mask.all() and len(forked.action) == 6
    assert forked.observation["input_ids"].tolist()[: context + 6] == [*rows[0].context.tolist(), *sampled[:6].tolist()]
    for row, messages in zip(others, ([*ASK, {**first, "content": "edited"}, AGAIN], [ASK[0], AGAIN])):
        assert torch.equal(row.observation["input_ids"], policy.encode({"messages": messages})["input_ids"])


def test_another_temperature_and_further_choices_are_rows(policy):
    talk = Talk(policy)
    first, second = talk.say(ASK, n=2)
    assert first != second
    talk.say([*ASK, second, AGAIN])  # each choice goes on in its own row
    talk.say([*ASK, first, AGAIN], Sampling(max_tokens=6, temperature=0.5))
    talk.say([*ASK, first, AGAIN], Sampling(max_tokens=3))  # a limit is no other distribution
    rows = [turn.completion for turn in talk.conversation.turns()]
    assert [int(row.action_mask.sum()) for row in rows] == [9, 12, 6]
    assert [float(row.extra["temperature"]) for row in rows] == [1.0, 1.0, 0.5]
    assert talk.conversation.rows[2].start[:6].tolist() == talk.conversation.rows[0].script.ids[:6].tolist()
    assert len({str(row.prompt_id) for row in rows}) == 2  # the branch has a longer context


def test_a_template_without_ends_of_turns_gives_a_row_a_call():
    """The contents stand end to end: what was sampled ends with a token that the template does not write."""
    talk = Talk(character_policy())
    history = list(ASK)
    for _ in range(3):
        [reply] = talk.say(history)
        history += [reply, AGAIN]
    assert len(talk.masks()) == 3 and talk.conversation.counts[REWRITTEN] == 2
    with pytest.raises(RequestError, match="positions"):
        talk.say([{"role": "user", "content": "a" * 40_000}])


def test_changes_between_sequences():
    for one, other, expected in (
        ([1, 2, 3], [1, 2, 3], (0, 3)), ([1, 2, 3], [1, 4, 3], (1, 3)), ([1, 2, 3], [1, 4, 5, 3], (2, 4)),
        ([1, 1], [1, 1, 1], (1, 3)), ([1, 2], [3, 4], (2, 2)), ([], [1], (1, 1)),
    ):  # fmt: skip
        assert count_changes(torch.tensor(one), torch.tensor(other)) == expected
        assert count_changes(torch.tensor(other), torch.tensor(one)) == expected
