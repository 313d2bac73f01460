"""`mmrl chat` answers lines of a pipe in order, keeps the conversation, and reads images."""

import io
import re

import numpy as np
import pytest
from PIL import Image

from mmrl.__main__ import main
from mmrl.api.chat import Conversation, chat
from mmrl.api.loaded_policy import load_policy
from mmrl.core.errors import ConfigError
from tests.test_recipes import words_of


def train(recipe, folder):
    assert main(["fit", *words_of(recipe, folder)]) == 0
    return folder


def test_lines_of_a_pipe_are_answered_with_the_conversation_before(tmp_path, monkeypatch, capsys):
    run = train("grpo", tmp_path / "run")
    policy = load_policy(run)
    first = policy.generate("1+2=")
    messages = [{"role": "user", "content": "1+2="}, {"role": "assistant", "content": first}]
    second = policy.generate([*messages, {"role": "user", "content": "3+4="}])
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("1+2=\n\n3+4=\n/new\n1+2=\n/quit\n5+5=\n"))
    chat([str(run)])
    out = capsys.readouterr().out
    assert out == "".join(f"{answer}\n" for answer in (first, second, first))
    # a system message begins each conversation, also after /new
    system = "Write the sum. "
    monkeypatch.setattr("sys.stdin", io.StringIO("1+2=\n/new\n1+2=\n"))
    chat([str(run), f"system={system}"])
    instructed = policy.generate([{"role": "system", "content": system}, {"role": "user", "content": "1+2="}])
    assert capsys.readouterr().out == f"{instructed}\n" * 2
    talk = Conversation(policy, system=system)
    talk.reply("1+2=")
    assert [message["role"] for message in talk.messages] == ["system", "user", "assistant"]
    monkeypatch.setattr("sys.stdin", io.StringIO("1+2=\n"))
    chat([str(run), "regex=[7-9]{2}"])
    assert re.fullmatch("[7-9]{2}", capsys.readouterr().out.strip())
    # an empty answer is an empty line, which is said on the other stream
    monkeypatch.setattr("sys.stdin", io.StringIO("1+2=\n"))
    chat([str(run), "regex=7{0}"])
    assert capsys.readouterr() == ("\n", "the answer above is empty: the policy ended it at once\n")
    with pytest.raises(ConfigError, match=r"sampling\.regex='\(a'.*unclosed group"):
        chat([str(run), "regex=(a"])


def test_images_belong_to_the_next_message(tmp_path):
    policy = load_policy(train("grpo_digits_vlm", tmp_path / "run"))
    image = tmp_path / "digit.png"
    Image.fromarray(np.full((32, 32, 3), 200, dtype=np.uint8)).save(image)
    talk = Conversation(policy)
    assert talk.reply(f"/image {tmp_path / 'none.png'}").endswith("none.png: no such file")
    assert talk.reply(f"/image {image}") is None
    assert talk.reply("Digit?") == policy.generate("Digit?", images=[image])
    assert talk.images == [image] and talk.waiting == []
    (tmp_path / "broken.png").write_text("no image")
    talk.reply(f"/image {tmp_path / 'broken.png'}")
    assert talk.reply("Digit?").startswith("not answered: ") and len(talk.messages) == 2


def test_arguments_are_checked(tmp_path):
    for arguments in ([], ["a", "b"], [str(tmp_path), "seed=x"], [str(tmp_path), "colour=1"]):
        with pytest.raises(ConfigError, match="give one run folder"):
            chat(arguments)
