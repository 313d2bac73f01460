"""Conversations: ids are those of the chat template, the mask is that of transformers' own generation blocks."""

import random

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from mmrl.core.types import Context, Prompt, Sampling, Task
from mmrl.data.collate import collate
from mmrl.policies.text.conversation import assistant_spans
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.offline.conversations import Conversations
from tests.policies.text.oracle import TINY

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = ["the", "quick", "brown fox", "jumps", "and", "counts", "1", "100", "yes,", "no;", "user", "assistant"]


def random_conversation(rng: random.Random) -> list[dict[str, str]]:
    def text() -> str:
        words = rng.choices([*WORDS, "é", "漢字", "🙂", "<|x|>"], k=rng.randint(0, 12))
        return rng.choice(["", " ", "\t"]) + rng.choice([" ", "  ", "\n"]).join(words) + rng.choice(["", " ", "\n."])

    system = [{"role": "system", "content": text()}] if rng.random() < 0.5 else []
    turns = [{"role": role, "content": text()} for _ in range(rng.randint(1, 4)) for role in ("user", "assistant")]
    return [*system, *turns]


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A tiny policy whose byte-level BPE has merges, also of newlines and spaces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(7)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    corpus = [m["content"] + "\n\n" for _ in range(300) for m in random_conversation(rng)]
    tokenizer.train_from_iterator(corpus, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHATML
    )
    torch.manual_seed(0)
    ids = {"eos_token_id": fast.eos_token_id, "pad_token_id": fast.pad_token_id, "bos_token_id": None}
    folder = tmp_path_factory.mktemp("checkpoint")
    AutoModelForCausalLM.from_config(AutoConfig.for_model(**TINY, vocab_size=len(fast), **ids)).save_pretrained(folder)
    fast.save_pretrained(folder)
    return TextPolicy(path=str(folder))


def test_ids_and_mask_are_those_of_transformers(policy):
    rng = random.Random(0)
    for _ in range(200):
        messages = random_conversation(rng)
        ids, mask = policy.encode_conversation(messages)
        expected = policy.tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        assert ids.tolist() == expected["input_ids"]
        theirs = torch.tensor(expected["assistant_masks"]).bool()
        # a token with the newline of the generation prompt in it is theirs and not ours
        for position in (mask != theirs).nonzero().flatten().tolist():
            assert theirs[position] and policy.tokenizer.decode([ids[position]]).startswith("\n")
        ends = [i for i, mine in zip(ids.tolist(), mask.tolist()) if mine and i == policy.tokenizer.eos_token_id]
        assert len(ends) == sum(message["role"] == "assistant" for message in messages)


class Talks(Task):
    """Random conversations whose last message is the answer."""

    name, split = "talks", "train"

    def __init__(self, count=6):
        rng = random.Random(3)
        self.all = [random_conversation(rng) for _ in range(count)]

    def __len__(self):
        return len(self.all)

    def __getitem__(self, index):
        return Prompt(f"talks/train/{index}", tuple(self.all[index][:-1]))

    def score(self, episode):
        return {}

    def on(self, split):
        return self

    def demonstrate(self, index):
        return self.all[index][-1]["content"]


def test_rows_hold_whole_conversations_and_their_loss_is_the_models(policy):
    task = Talks()
    ctx = Context(task, None, policy, Sampling(), seed=0, iteration=0)
    episodes = Conversations().collect([(slot, task[slot]) for slot in range(len(task))], ctx)
    batch = collate(episodes, policy)
    out = policy(batch)  # in whatever packing is the cheapest
    for row, messages in enumerate(task.all):
        ids, mask = policy.encode_conversation(messages)
        done = episodes[row].turns[0].completion
        assert torch.equal(torch.cat([done.observation["input_ids"], done.action]), ids)
        with torch.no_grad():
            plain = policy.model(ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        assert_close(out.logprobs[row][batch["action_mask"][row]], plain[mask[1:]], atol=1e-5, rtol=0)


def test_templates_without_an_end_token_get_one(policy):
    tiny = TextPolicy(config=dict(TINY))
    talk = [{"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "bc"), ("user", "d"))]
    ids, mask = tiny.encode_conversation([*talk, {"role": "assistant", "content": "e"}])
    assert tiny.tokenizer.decode(ids) == "abcde<eos>" and mask.tolist() == [False, True, True, False, True, True]


def test_refusals(policy):
    user, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    with pytest.raises(ValueError, match="ends with the assistant's message"):
        policy.encode_conversation([user])
    with pytest.raises(ValueError, match="which ends turns"):
        policy.encode_conversation([user, {"role": "assistant", "content": "b<|im_end|>c"}])

    with pytest.raises(ValueError, match=r"prompts have no messages, only \['state'\]; use rollout=demonstrations"):
        Conversations().encode({"state": 0}, "b", None)

    def forgets(messages, opened):
        return "".join(m["content"] for m in messages[-2:])

    with pytest.raises(ValueError, match="number 3 in another way"):
        assistant_spans(forgets, [user, answer, user, {"role": "assistant", "content": "c"}], [])
