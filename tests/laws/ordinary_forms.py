"""The forms in which models from outside write a right answer, and near misses of them."""

from __future__ import annotations

import re


def ordinary_forms(answer: str) -> dict[str, str]:
    """Forms of an answer that `extract=answer` reads, by kind."""
    before, newline, last = answer.rpartition("\n")
    bullet = "*" if answer[:1] in "-.0123456789(" else "-"
    block = {
        "plain": answer,
        "fence": f"```\n{answer}\n```",
        "fence with a language": f"```text\n{answer}\n```",
        "sentence and fence": f"Here it is:\n\n```\n{answer}\n```\n",
        "tags": f"Some words.\n<answer>{answer}</answer>",
        "tags on lines": f"<answer>\n{answer}\n</answer>",
        "fence and words": f"```\n{answer}\n```\nThat is the answer.",
        "Final Answer: and fence": f"Final Answer:\n```\n{answer}\n```",
        "heading and fence": f"### Final Answer\n\n```\n{answer}\n```",
        "bold heading and fence": f"**Final Answer**\n```\n{answer}\n```",
        "tags and words": f"Some words.\n<answer>\n{answer}\n</answer>\nThat is the answer.",
        "thought and fence": f"<think>It is hard.</think>\n```\n{answer}\n```",
        "fence of tildes": f"~~~\n{answer}\n~~~",
        "fence of four marks": f"````text\n{answer}\n````",
        "fence in tags": f"<answer>\n```\n{answer}\n```\n</answer>",
        "thought and tags": f"<think>It is hard.</think><answer>{answer}</answer>",
        "boxed": rf"\boxed{{{answer}}}" if _has_closed_braces(answer) else answer,
        "sentence and box": rf"The answer is $\boxed{{{answer}}}$." if _has_closed_braces(answer) else answer,
        "line ends of Windows": f"{answer}\n".replace("\n", "\r\n"),
        "thought": f"<think>It is hard.\n{last}1</think>\n{answer}",
        "blank lines": f"\n\n{answer}\n\n",
        "bold at the end": answer if last[:1] == " " else f"{before}{newline}**{last}**",
        "code marks at the end": answer if "`" in last or last[:1] == " " else f"{before}{newline}`{last}`",
    }
    if newline:
        return block
    return block | {
        "dollars": f"${answer}$" if "$" not in answer else answer,
        "brackets of LaTeX": rf"\({answer}\)",
        "formula of three lines": f"\\[\n{answer}\n\\]",
        "dollars on lines": answer if "$" in answer else f"$$\n{answer}\n$$",
        "heading Final Answer": f"Some steps.\n\n### Final Answer\n{answer}",
        "bold Final Answer": f"Some steps.\n\n**Final Answer**\n\n**{answer}**" if "*" not in answer else answer,
        "I think": f"I think the answer is {answer}",
        "quotes": f'"{answer}"' if '"' not in answer else answer,
        "full stop": f"{answer}.",
        "italics": f"*{answer}*" if "*" not in answer else answer,
        "heading": f"### {answer}",
        "bullet": f"{bullet} {answer}",
        "Answer:": f"Answer: {answer}",
        "bold Answer:": f"**Answer:** {answer}",
        "bold Answer: and it": f"**Answer: {answer}**" if "*" not in answer else answer,
        "The answer is": f"I compared both.\nThe answer is {answer}.",
        "Final Answer": f"Final Answer: **{answer}**" if "*" not in answer else answer,
        "four hashes": f"It follows.\n#### {answer}",
        "a line of its own": f"Answer:\n{answer}",
    }


def inner_forms(answer: str) -> list[str]:
    """Forms of the values of an answer's last line: separators, brackets, capitals, zeros; none for other lines."""
    before, newline, line = answer.rpartition("\n")
    forms: list[str] = []
    if re.fullmatch(r"[0-9]+([ ,][0-9]+)+", line):
        n = re.findall("[0-9]+", line)
        forms = [", ".join(n), f"[{', '.join(n)}]", f"({', '.join(n)})", ",".join(n), "; ".join(n), "  ".join(n)]
    elif re.fullmatch(r"[0-9]+-[0-9]+", line):
        forms = [line.replace("-", " - "), line.replace("-", "\u2013"), line.replace("-", " to "), f"[{line}]"]
    elif re.fullmatch(r"[0-9]+", line):
        forms = [f"{line}.0", f"({line})", f"0{line}", f"+{line}"]
    elif re.fullmatch(r"[0-9]+\.[0-9]{2}", line):
        forms = [f"${line}", f"{line} dollars", f"{line}0"]
    elif re.fullmatch("[a-z]+( [a-z]+)*", line):
        forms = [line.capitalize(), line.upper(), line.title(), f"({line})", line.replace(" ", ", ")]
    elif re.fullmatch("[A-Z]+", line):
        forms = [line.lower(), f"({line})", ", ".join(line), " ".join(line)]
    return [f"{before}{newline}{form}" for form in dict.fromkeys(forms) if form != line]


def near_misses(answer: str, other: str) -> dict[str, str]:
    """Texts that hold a right answer of one line and are none, by kind."""
    return {
        "not": f"The answer is not {answer}.",
        "or": f"The answer is {answer} or {other}.",
        "two boxes": rf"\boxed{{{answer}}} \boxed{{{other}}}",
        "two answers": f"Answer: {answer}\nAnswer: {other}",
        "two fences": f"```\n{answer}\n```\n```\n{other}\n```",
        "two fences of other marks": f"~~~\n{answer}\n~~~\n```\n{other}\n```",
        "two fences in tags": f"<answer>\n```\n{answer}\n```\n```\n{other}\n```\n</answer>",
        "two tags": f"<answer>{answer}</answer><answer>{other}</answer>",
        "thought alone": f"<think>{answer}</think>",
        "another one after it": f"<think>{answer}</think>Answer: {other}",
    }


def _has_closed_braces(text: str) -> bool:
    depth = 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0 and "\\" not in text
