"""NLRL: an improver picks one of the moves that the policy samples, by their written evaluations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_seed
from mmrl.core.types import Context, Episode, Prompt, Request, Sampling
from mmrl.files.patterns import fill_template
from mmrl.methods.games.nlrl.matches import BoardGames, Match, Move, board_task, read_action
from mmrl.methods.games.nlrl.values import TEMPLATE, compile_counts, draw_move, read_value, write_row
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question
from mmrl.rollouts.base import text_observation
from mmrl.rollouts.text.single_turn import SingleTurn


def count_actions(actions: Sequence[int | None], keep: int) -> list[int]:
    """The most frequent moves, at most `keep`; of equally frequent ones the first sampled. None is no move."""
    counts = Counter(action for action in actions if action is not None)
    return [action for action, _ in counts.most_common(keep)]


QUESTION = (
    "In the game tic-tac-toe X is to move in the position\n{position}\nSquares are 0 to 8, by rows. Evaluations of "
    "some moves:\n{moves}\nThink about which of these moves is best, and end with its number."
)


class MoveImprover:
    """Picks one of several moves by their evaluations.

    Without a judge it is the move of largest (wins - losses) / games; of equals the first, and an evaluation that
    cannot be read is below all others. A judge's reply whose last number is none of the moves is left out: the
    selection mask.

    Args:
        template: of the evaluations, as that of `MoveAggregator`.
        judge: a language model that picks in place of the counts, such as one behind a server with OpenAI's interface
            (`ServerJudge`).
        question: to the judge, with {position} and {moves}, one a line with its evaluation.
    """

    def __init__(self, template: str = TEMPLATE, judge: LanguageJudge | None = None, question: str = QUESTION):
        self.pattern, self.judge, self.question = compile_counts(template), judge, question

    def pick(self, cases: Sequence[tuple[str, Mapping[int, str]]]) -> list[int | None]:
        """Return the pick for each (position, evaluation by move): one of the moves, or None to be left out."""
        if self.judge is None:
            return [self._compare(evaluations) for _, evaluations in cases]
        asked = []
        for position, evaluations in cases:
            moves = "\n".join(f"{action}: {text}" for action, text in evaluations.items())
            asked.append(Question(self.question.format(position=position, moves=moves), lambda reply: reply.text))
        return [
            None if isinstance(verdict, NoAnswer) else read_action(verdict, list(evaluations))
            for verdict, (_, evaluations) in zip(self.judge.judge(asked), cases)
        ]

    def _compare(self, evaluations: Mapping[int, str]) -> int | None:
        values = {action: read_value(text, self.pattern) for action, text in evaluations.items()}
        if all(value is None for value in values.values()):
            return next(iter(values)) if len(values) == 1 else None
        return max(values, key=lambda action: -2.0 if values[action] is None else values[action])


class MoveImprovement(BoardGames, SingleTurn):
    """Rollout of better moves in visited positions, for the policy to learn.

    A game is played for each prompt, and one of its positions is drawn. There the policy samples `samples` moves, of
    which the `keep` most frequent legal ones are candidates; the value model writes an evaluation of each, and the
    improver picks one of the candidates. The episode's prompt is `task.find(position)`, and `info["answer"]` the text
    of the pick. pick="won" asks no values: the drawn move itself where its game was won, which is rejection-sampling
    fine-tuning. Positions without a pick give an error. Source: NLRL, 2024, section 4.2, arXiv:2411.14251; released
    code, tictactoe/scripts/run_nlrl.sh: 10 samples, of which the 10 most frequent are kept.

    Args:
        view: as in `BoardGames`.
        model: as in `BoardGames`.
        value_view: what the value model reads, with {board} and {action}.
        value_model: by its name in `model.frozen_models`.
        value_tokens: most tokens of an evaluation, which is greedy.
        improver: that picks; None reads counts.
        answer: of a pick, with {action}, and {evaluation} if wanted.
        samples: of the policy in a position.
        keep: candidates.
        pick: "values" or "won".
    """

    def __init__(
        self,
        view: str = "{board}",
        model: str | None = None,
        value_view: str = "{board}{action}",
        value_model: str = "value",
        value_tokens: int = 64,
        improver: MoveImprover | None = None,
        answer: str = "{evaluation} so {action}",
        samples: int = 10,
        keep: int = 10,
        pick: Literal["values", "won"] = "values",
    ):
        super().__init__(view, model)
        check_at_least(1, "rollout", samples=samples, keep=keep, value_tokens=value_tokens)
        if pick not in ("values", "won"):
            raise ValueError(f"rollout.pick must be values or won, got {pick!r}")
        for name, text, key in (("value_view", value_view, "board"), ("value_view", value_view, "action"),
                                ("answer", answer, "action")):  # fmt: skip
            if f"{{{key}}}" not in text:
                raise ValueError(f"rollout.{name}={text!r} lacks {{{key}}}; write it where its value belongs")
        self.value_view, self.value_model, self.value_tokens = value_view, value_model, value_tokens
        self.improver, self.answer = improver or MoveImprover(), answer
        self.samples, self.keep, self.picks_won = samples, keep, pick == "won"

    def sampled_models(self) -> frozenset[str]:
        return super().sampled_models() | (frozenset() if self.picks_won else frozenset({self.value_model}))

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        matches = self.begin(prompts, ctx)
        self.play(matches, ctx)
        chosen = [draw_move(match, ctx) for match in matches]
        decisions = [(match, move) for match, move in zip(matches, chosen) if move is not None]
        texts = iter(self._take_won(decisions) if self.picks_won else self._improve(decisions, ctx))
        episodes = []
        for match, move in zip(matches, chosen):
            text = next(texts) if move is not None else None
            prompt = match.prompt if move is None else board_task(ctx.task).find(move.position)
            episodes.append(write_row(match, prompt, move, text))
        return episodes

    def _take_won(self, decisions: Sequence[tuple[Match, Move]]) -> list[str | None]:
        """Return the moves of games that were won."""
        return [self._write("", move.action) if match.outcome == 1 else None for match, move in decisions]

    def _improve(self, decisions: Sequence[tuple[Match, Move]], ctx: Context) -> list[str | None]:
        """Return the text of the pick in each position."""
        rules = board_task(ctx.task).rules
        # moves of the policy in each position
        boards = [rules.write(move.position) for _, move in decisions]
        requests = [
            self.request(match.prompt, board, ("sample", *match.key, k), ctx)
            for (match, _), board in zip(decisions, boards)
            for k in range(self.samples)
        ]
        sampled = ctx.engine.sample(requests, ctx.sampling) if requests else []
        candidates = []
        for place, (_, move) in enumerate(decisions):
            texts = [str(done.output) for done in sampled[place * self.samples : (place + 1) * self.samples]]
            legal = rules.actions(move.position)
            candidates.append(count_actions([read_action(text, legal) for text in texts], self.keep))
        # an evaluation of each candidate, and the pick
        asked = [(place, action) for place, actions in enumerate(candidates) for action in actions]
        written = self._evaluate([(decisions[place][0].prompt, boards[place], action) for place, action in asked], ctx)
        evaluations: list[dict[int, str]] = [{} for _ in decisions]
        for (place, action), text in zip(asked, written):
            evaluations[place][action] = text
        cases = [(board, each) for board, each in zip(boards, evaluations) if each]
        picks = iter(self.improver.pick(cases))
        out: list[str | None] = []
        for each in evaluations:
            action = next(picks) if each else None
            out.append(None if action is None else self._write(each[action], action))
        return out

    def _evaluate(self, moves: Sequence[tuple[Prompt, str, int]], ctx: Context) -> list[str]:
        """Write the value model's evaluations of (prompt, board, move)."""
        requests = []
        for prompt, board, action in moves:
            text = fill_template(self.value_view, board=board, action=str(action))
            raw = {**text_observation(prompt), "messages": ({"role": "user", "content": text},)}
            requests.append(Request(raw, derive_seed("value", board, action), model=self.value_model))
        greedy = Sampling(decode="argmax", max_tokens=self.value_tokens)
        return [str(done.output) for done in (ctx.engine.sample(requests, greedy) if requests else [])]

    def _write(self, evaluation: str, action: int) -> str:
        return re.sub(r"\s+", " ", fill_template(self.answer, evaluation=evaluation, action=str(action))).strip()
