"""Check the chat template of a checkpoint, a program in jinja: one prompt is rendered in a process with limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jinja2

from mmrl.files.limited import find_failure

_LONGEST = 10**6  # characters of a template
_RENDER = """
import json, time
from jinja2.exceptions import TemplateSyntaxError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
given = json.load(sys.stdin)
class Refused(Exception): pass
def refuse(message): raise Refused(message)
environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
environment.filters["tojson"] = lambda x, **options: json.dumps(x, ensure_ascii=False)
environment.globals |= {"raise_exception": refuse, "strftime_now": lambda form: time.strftime(form)}
for source in given["templates"]:
    try:
        # the block of transformers that marks the words of an assistant says nothing about the text
        source = source.replace("{% generation %}", "").replace("{% endgeneration %}", "")
        source = source.replace("{%- generation %}", "").replace("{%- endgeneration %}", "")
        source = source.replace("{%- generation -%}", "").replace("{%- endgeneration -%}", "")
        template = environment.from_string(source)
    except TemplateSyntaxError as error:
        sys.exit(f"line {error.lineno}: {error.message}")
    for messages in given["messages"]:
        try:
            size = 0
            for part in template.generate(messages=messages, add_generation_prompt=True, **given["tokens"]):
                size += len(part)
                if size > 10_000_000:
                    sys.exit("it writes more than 10 million characters for one question")
        except (MemoryError, RecursionError) as error:
            sys.exit(f"{type(error).__name__} {error}")
        except (SystemExit, KeyboardInterrupt):
            raise
        except Exception:
            pass  # it may refuse this form of messages; a prompt that it cannot render is named when it comes
"""
_CONTENT = ("hello", [{"type": "text", "text": "hello"}])


@contextmanager
def chat_template_error(path: str | None) -> Iterator[None]:
    """Convert what a chat template raises to one message with the checkpoint."""
    try:
        yield
    except (
        jinja2.TemplateError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(
            f"policy.path={path!r}: its chat template cannot render this conversation ({reason}); change the messages "
            "of the task or rollout, or chat_template.jinja"
        ) from error


def check_chat_template(tokenizer: Any) -> None:
    """Refuse a chat template with an error in its syntax, and one that needs seconds or gigabytes for one question.

    Args:
        tokenizer: or processor; without a template nothing is checked.

    Raises:
        ValueError: with what is wrong.
    """
    template = getattr(tokenizer, "chat_template", None)
    # one template, or several by name
    templates = list(template.values()) if isinstance(template, dict) else [template] if template else []
    if wrong := [each for each in templates if not isinstance(each, str)]:
        raise ValueError(f"its chat template is {type(wrong[0]).__name__}, not a text; correct chat_template.jinja")
    if long := [each for each in templates if len(each) > _LONGEST]:
        raise ValueError(f"its chat template has {len(long[0]):,} characters, more than {_LONGEST:,}; shorten it")
    if not templates:
        return
    tokens = getattr(tokenizer, "tokenizer", tokenizer)
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    # render one question with text or parts as content, with and without a system message
    arguments = {
        "templates": templates,
        "messages": [
            [*([{"role": "system", "content": content}] if system else []), {"role": "user", "content": content}]
            for content in _CONTENT
            for system in (False, True)
        ],
        "tokens": {name: str(getattr(tokens, name, None) or "") for name in names},
    }
    if failure := find_failure(_RENDER, arguments, seconds=2):
        raise ValueError(f"its chat template cannot be used: {failure}; correct chat_template.jinja")
