"""Folders of policies and data sets whose files are no files, or whose templates and tables are programs or bombs."""

import json
import os
import random
import re
import resource
import signal
import time
from pathlib import Path

import pytest

from mmrl.api import loaded_policy
from mmrl.core.errors import is_user_error
from mmrl.datasets.lerobot.info import read_paths
from mmrl.evaluation.statistics import seeds
from mmrl.files.foreign import check_regular, read_foreign
from mmrl.files.limited import find_failure
from mmrl.files.strict_json import read_json_object
from mmrl.policies.text.checks.chat_template import check_chat_template
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.scorer import ScoringPolicy
from mmrl.rollouts.offline.logged import LoggedEpisodes
from tasks.dataset.arrow_tables import Arrow
from tests.malformed.files.policies import text_policy

FILES = (
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "more.bin",
)


@pytest.fixture
def folder(tmp_path):
    text_policy().save_pretrained(tmp_path / "policy")
    return tmp_path / "policy"


@pytest.mark.parametrize("policy", [TextPolicy, ScoringPolicy])
@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_a_folder_is_refused(name, policy, folder):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    started = time.monotonic()
    with pytest.raises(ValueError, match=rf"{name}.*pipe"):
        policy(str(folder))
    assert time.monotonic() - started < 60  # a pipe that is opened waits for ever


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "/dev/random", "/tmp"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_devices_are_refused(name, target, folder):
    (folder / name).unlink()
    (folder / name).symlink_to(target)
    with pytest.raises(ValueError, match=name) as error:
        TextPolicy(str(folder))
    assert is_user_error(error.value)


LOOP = "{% for a in range(99999) %}"
NESTED = 3 * LOOP + "x" + 3 * "{% endfor %}"
GROWS = "{% set n = namespace(t='x') %}{% for i in range(40) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}"
BAD = {
    "an end that is missing": "{% for message in messages %}x",
    "a word that is none": "{% foo %}",
    "a bracket too many": "{{ messages }}}} {{ }}",
    "a filter that does not exist": "{{ messages | nofilter }}",
    "an unknown end": "{% endif %}",
    "three nested loops": NESTED,
    "a text that grows": GROWS,
    "a large product": "{{ 'x' * 10**10 }}",
    "a large list": "{{ [0] * 10**10 }}",
    "a wide number": "{{ '%1000000000d' % 3 }}",
    "a format that is wide": "{{ '{:>1000000000}'.format(3) }}",
    "a centred text": "{{ 'x'.center(10**9) }}",
    "twelve megabytes": "{{ 'x' * 12000000 }}",
    "a million letters": "x" * 1_000_001,
    "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a large power": "{{ 9 ** (9 ** 9) }}",
    "squares of squares": "{% set n = namespace(x=3) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}x",
    "one letter a line": "{{ ('x' * 10**6) | wordwrap(1) }}",
    "three thousand conditions": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
}


class Words:
    bos_token, eos_token, pad_token, unk_token = "<s>", "</s>", None, None

    def __init__(self, chat_template):
        self.chat_template = chat_template


@pytest.mark.parametrize("name", BAD)
def test_chat_templates_are_refused(name):
    started = time.monotonic()
    with pytest.raises(ValueError, match="its chat template") as error:
        check_chat_template(Words(BAD[name]))
    assert time.monotonic() - started < 30 and is_user_error(error.value)
    assert len(str(error.value)) < 500


GOOD = {
    "plain": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    "one that refuses systems": "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}x",
    "one that needs texts": "{{ messages[0]['content'] + 'x' }}",
    "one with a date": "{{ strftime_now('%Y') }}{{ messages | tojson }}",
    "one with marks": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "one that stops": "{% for m in messages %}{% break %}{% endfor %}",
    "two": {"default": "x", "tool_use": "{{ tools | tojson(indent=4) if tools }}"},
    "none": None,
}


@pytest.mark.parametrize("name", GOOD)
def test_chat_templates_are_accepted(name):
    check_chat_template(Words(GOOD[name]))


LATE = {
    "roles must alternate": "{{ raise_exception('roles must alternate') }}",
    "recursion": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{% if messages[0].content == 'x' %}{{ f(1) }}{% endif %}ok",
    "no element|undefined": "{{ messages[7].content.more }}",
    "division": "{{ 1 // (messages | length - 1) }}",
    "unsafe": "{{ ''.format.__globals__.os.system('x') }}{{ messages.append(1) }}",
}


@pytest.mark.parametrize("reason", LATE)
def test_a_conversation_that_a_template_refuses_is_named(reason, folder):
    (folder / "chat_template.jinja").write_text(LATE[reason])
    policy = TextPolicy(str(folder))
    with pytest.raises(ValueError, match=rf"policy.*chat template cannot render .*({reason}).*change"):
        policy.prompt_text([{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    "pattern",
    [
        "{chunk_index:>10000000000}", "{chunk_index.__class__}", "{chunk_index!r}", "{file_index[0]}", "{0}", "{}",
        "{chunk_index:{file_index}}", "{video_key.__init__.__globals__}", "{chunk_index:010000000d}", "{chunk_index:e}",
        "{nothing}", "{", "}", "{chunk_index:03d", "{chunk_index!s:>9}", "../{chunk_index}", "/etc/{chunk_index}",
        "{video_key:*^99999}", "{chunk_index:,}", "{file_index:%}", 3, None, ["x"], {}, "{chunk_index:\x00}",
    ],
    ids=str,
)  # fmt: skip
def test_patterns_of_paths_are_refused(pattern, tmp_path):
    for info in ({"data_path": pattern}, {"data_path": "data/{chunk_index}", "video_path": pattern or 0}):
        with pytest.raises(ValueError, match=r"info\.json.*path"):
            read_paths(info, tmp_path / "info.json")


def test_the_patterns_of_lerobot_are_right(tmp_path):
    data = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    video = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    assert read_paths({"data_path": data, "video_path": video}, tmp_path) == (data, video)


def test_flipped_bits_of_an_arrow_file_end_no_process(tmp_path):
    """In processes of their own, so that a crash is a failure here."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"question": [f"{i}?" * 5 for i in range(40)], "tags": [["a", "b"] * (i % 3) for i in range(40)]})
    file = tmp_path / "x.arrow"
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    right, draw = file.read_bytes(), random.Random(0)
    pid = os.fork()
    if pid == 0:
        for _ in range(60):
            content = bytearray(right)
            for _ in range(6):
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            file.write_bytes(content)
            try:
                list(Arrow(file).records())
            except ValueError:
                continue
            except BaseException:
                os._exit(3)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def read_run(folder):
    (folder / "metrics.csv").write_text("iteration,loss\n1,2\n")
    return seeds._read_run(folder)


def read_classifier(folder):
    scores = pytest.importorskip("mmrl.api.serving.scores")  # needs aiohttp
    assert scores.find_classifier(str(folder)) is None
    raise ValueError("x.json, config.yaml or logged.pt")


READERS = {
    "config.yaml": read_run,
    "logged.pt": lambda folder: LoggedEpisodes(str(folder / "logged.pt"))._read(),
    "config.json": read_classifier,
    "image.png": lambda folder: loaded_policy._pixels(str(folder / "image.png")),
}


@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
@pytest.mark.parametrize("name", READERS)
def test_pipes_and_devices_are_not_read(name, target, tmp_path):
    """In a process with a limit of time and memory, which a reader that opens them passes."""
    if target == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to(target)
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        held = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # bytes
        resource.setrlimit(resource.RLIMIT_DATA, (held + 2**28, held + 2**28))
        try:
            READERS[name](tmp_path)
        except ValueError as error:
            os._exit(0 if name in str(error) or "config.yaml" in str(error) else 2)
        except BaseException:
            os._exit(3)
        os._exit(4)
    assert os.waitpid(pid, 0)[1] == 0


def test_limits_of_a_process():
    assert find_failure("import json; json.load(sys.stdin)", {"a": [1]}) is None
    assert find_failure("sys.exit('no such thing')", None) == "no such thing"
    assert "seconds" in str(find_failure("while True: pass", None, seconds=1))
    assert "MB" in str(find_failure("x = bytearray(10**9)", None))
    assert "SIGSEGV" in str(find_failure("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", None))
    assert "ZeroDivisionError" in str(find_failure("1 / 0", None))


def test_regular_files_of_a_bounded_size(tmp_path):
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"a": 1}))
    assert check_regular(file, "copy it") == 8 and read_foreign(file, "copy it", 8) == b'{"a": 1}'
    for limit in (0, 7):
        with pytest.raises(ValueError, match=r"x\.json: 8 bytes, more than the \d.*copy it"):
            read_foreign(file, "copy it", limit)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "link.json").symlink_to("link.json")
    for name in ("pipe.json", "link.json", "none.json", "a" * 300):
        with pytest.raises(ValueError, match=f"{name[:20]}.*copy it"):
            read_json_object(tmp_path / name, "copy it")
