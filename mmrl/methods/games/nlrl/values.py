"""NLRL: language Monte Carlo, in which an aggregator writes an evaluation of a move from games that go on from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Turn
from mmrl.methods.games.nlrl.matches import BoardGames, BoardRules, Match, Move, board_task
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question, Unreadable
from mmrl.rollouts.text.single_turn import SingleTurn

TEMPLATE = "wins {wins}, draws {draws}, losses {losses}: {verdict}"
_COUNTS = {"wins": r"(?P<wins>\d+)", "draws": r"(?P<draws>\d+)", "losses": r"(?P<losses>\d+)", "verdict": r"\w+"}


@dataclass(frozen=True)
class PlayedGame:
    """A game that went on from a move: its positions as texts, and its outcome."""

    positions: tuple[str, ...]
    outcome: int


QUESTION = (
    "In the game tic-tac-toe X plays square {move} (0 to 8, by rows) in the position\n{position}\nThese games went on "
    "from there, each with its positions and its outcome for X:\n{games}\nSay in a few sentences how good the move is "
    "and why, and end with a judgement: good, even or bad."
)


class MoveAggregator:
    """Writes one evaluation of a move from several games that went on from it; it ends with a judgement.

    Without a judge it writes the numbers of won, drawn and lost games by a template, and good, even or bad.

    Args:
        template: of an evaluation, with {wins}, {draws}, {losses} and {verdict}: good for more wins than losses, bad
            for fewer.
        judge: a language model that writes in place of the template, such as one behind a server with OpenAI's
            interface (`ServerJudge`).
        question: to the judge, with {position}, {move} and {games}, one a line.
    """

    def __init__(self, template: str = TEMPLATE, judge: LanguageJudge | None = None, question: str = QUESTION):
        compile_counts(template)
        self.template, self.judge, self.question = template, judge, question

    def write(self, cases: Sequence[tuple[str, int, Sequence[PlayedGame]]]) -> list[str | None]:
        """Return the evaluation of each (position, move, games); None where there is none."""
        if self.judge is None:
            return [self._count([game.outcome for game in games]) for _, _, games in cases]
        asked = []
        for position, move, games in cases:
            lines = "\n".join(f"{' '.join(g.positions)} {('lost', 'drawn', 'won')[g.outcome + 1]}" for g in games)
            asked.append(Question(self.question.format(position=position, move=move, games=lines), _read_text))
        return [None if isinstance(text, NoAnswer) else text for text in self.judge.judge(asked)]

    def _count(self, outcomes: Sequence[int]) -> str | None:
        if not outcomes:
            return None
        wins, draws, losses = (outcomes.count(outcome) for outcome in (1, 0, -1))
        verdict = "good" if wins > losses else "bad" if wins < losses else "even"
        return self.template.format(wins=wins, draws=draws, losses=losses, verdict=verdict)


def _read_text(reply: Any) -> str:
    text = " ".join(reply.text.split())
    if not text:
        raise Unreadable("it is empty")
    return text


def compile_counts(template: str) -> re.Pattern[str]:
    """Compile the pattern of the evaluations that a template writes; refuses one without the three counts.

    Raises:
        ValueError: a count is missing, or another name stands in braces.
    """
    names = re.findall(r"\{(\w+)\}", template)
    if not {"wins", "draws", "losses"} <= set(names) <= set(_COUNTS):
        raise ValueError(
            f"template={template!r} must have {{wins}}, {{draws}} and {{losses}}, and beside them {{verdict}} alone"
        )
    return re.compile("".join(_COUNTS.get(part, re.escape(part)) for part in re.split(r"\{(\w+)\}", template)))


def read_value(text: str, pattern: re.Pattern[str]) -> float | None:
    """Return (wins - losses) / games of a written evaluation; None where it cannot be read."""
    match = pattern.search(text)
    if match is None:
        return None
    wins, draws, losses = (int(match[name]) for name in ("wins", "draws", "losses"))
    total = wins + draws + losses
    return (wins - losses) / total if total else None


class LanguageMonteCarlo(BoardGames, SingleTurn):
    """Rollout of evaluations of visited moves: a game for each prompt, and `continuations` of one of its moves.

    The move is drawn among those of the game. The episode's prompt is that of the move, `task.find(position, move)`,
    and `info["answer"]` the evaluation that `aggregator` writes, for a value model to learn. A game without a legal
    move gives an error. Source: NLRL, 2024, section 4.1 (language Monte Carlo), arXiv:2411.14251; released code,
    tictactoe/scripts/pipeline_nlac.sh: 5 continuations.

    Args:
        view: as in `BoardGames`.
        model: as in `BoardGames`.
        aggregator: that writes; None counts.
        continuations: of a move, played by the same policy.
    """

    def __init__(
        self,
        view: str = "{board}",
        model: str | None = None,
        aggregator: MoveAggregator | None = None,
        continuations: int = 5,
    ):
        super().__init__(view, model)
        check_at_least(1, "rollout", continuations=continuations)
        self.aggregator, self.continuations = aggregator or MoveAggregator(), continuations

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        rules = board_task(ctx.task).rules
        matches = self.begin(prompts, ctx)
        self.play(matches, ctx)
        chosen = [draw_move(match, ctx) for match in matches]
        games = [
            [] if move is None else [continue_game(match, move, k, rules) for k in range(self.continuations)]
            for match, move in zip(matches, chosen)
        ]
        self.play([game for each in games for game in each], ctx)
        cases = [
            (rules.write(move.position), move.action, [describe_game(game, rules) for game in each])
            for move, each in zip(chosen, games)
            if move is not None
        ]
        texts = iter(self.aggregator.write(cases))
        episodes = []
        for match, move in zip(matches, chosen):
            text = next(texts) if move is not None else None
            prompt = match.prompt if move is None else board_task(ctx.task).find(move.position, move.action)
            episodes.append(write_row(match, prompt, move, text))
        return episodes


def draw_move(match: Match, ctx: Context) -> Move | None:
    """Draw one of the legal moves of a game; None without one."""
    legal = [move for move in match.moves if move.action >= 0]
    if not legal:
        return None
    return legal[int(derive_rng("visited", ctx.seed, ctx.purpose, ctx.iteration, *match.key).integers(len(legal)))]


def continue_game(match: Match, move: Move, number: int, rules: BoardRules) -> Match:
    """Return a game that begins after a move."""
    position = rules.move(move.position, move.action)
    key = ("continuation", match.slot, match.number, number)
    return Match(match.slot, match.prompt, match.number, key, position, True, outcome=rules.outcome(position))


def describe_game(match: Match, rules: BoardRules) -> PlayedGame:
    """Return a continuation as texts."""
    positions = [*(rules.write(move.position) for move in match.moves), rules.write(match.position)]
    return PlayedGame(tuple(positions), match.outcome or 0)


def write_row(match: Match, prompt: Prompt, move: Move | None, text: str | None) -> Episode:
    """Return an episode whose answer is a written text; an error without one."""
    if move is None or text is None:
        reason = "the game has no legal move" if move is None else "no text was written"
        info = {"error": reason, "answer": "", "counts": {"nlrl/failed": 1}}
        return Episode(match.prompt, match.slot, match.number, ended="error", info=info)
    info = {"answer": text, "outcome": match.outcome, "counts": {"nlrl/written": 1}}
    return Episode(prompt, match.slot, match.number, [Turn(move.completion)], info=info)
