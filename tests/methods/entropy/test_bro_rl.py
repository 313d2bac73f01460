"""The change of the mass of correct answers by one step, against numbers worked out by hand and the step itself."""

import pytest
import torch

from mmrl.core.types import Episode, Prompt
from mmrl.methods.entropy.bro_rl import AnswerMass, mass_balance

LOGITS = torch.tensor([0.5, 0.0, -0.5, 1.0, 0.2, -1.0], dtype=torch.float64)
CORRECT = torch.tensor([True, True, True, False, False, False])
COUNTS = torch.tensor([2, 0, 1, 4, 1, 0])
LR = 1e-4


def test_hand_computed():
    found = mass_balance(LOGITS, COUNTS, CORRECT, LR)
    assert float(found.correct) == pytest.approx(0.430429, abs=1e-6)
    assert float(found.change) == pytest.approx(3.275479e-6, rel=1e-6)
    assert float(found.unsampled) == pytest.approx(1.210222e-7, rel=1e-6)


def test_it_is_the_change_of_one_step_of_the_surrogate():
    logits = LOGITS.clone().requires_grad_()
    rewards = torch.where(CORRECT, 1.0, -1.0)
    loss = -(COUNTS * rewards * logits.softmax(0)).sum() / COUNTS.sum()
    loss.backward()
    after = (LOGITS - LR * logits.grad).softmax(0)[CORRECT].sum()
    exact = float(after - LOGITS.softmax(0)[CORRECT].sum())
    assert exact == pytest.approx(3.275478e-6, rel=1e-6)
    assert float(mass_balance(LOGITS, COUNTS, CORRECT, LR).change) == pytest.approx(exact, rel=1e-5)


def test_answers_that_were_not_drawn_matter_less_with_more_draws():
    """The expected square mass that N draws miss is sum p^2 (1 - p)^N."""
    p, shares = LOGITS.softmax(0), []
    for draws in (4, 16, 64):
        generator = torch.Generator().manual_seed(0)
        counts = [
            torch.bincount(torch.multinomial(p, draws, True, generator=generator), minlength=6) for _ in range(400)
        ]
        missed = torch.stack([(p.square() * (c == 0)).sum() for c in counts]).mean()
        assert float(missed) == pytest.approx(float((p.square() * (1 - p) ** draws).sum()), rel=0.2)
        shares.append(float(missed))
    assert shares[0] > 3 * shares[1] > 9 * shares[2]
    everything = mass_balance(LOGITS, torch.ones(6), CORRECT, LR)
    assert float(everything.unsampled) == 0


def test_refusal():
    with pytest.raises(ValueError, match="no answer was drawn"):
        mass_balance(LOGITS, torch.zeros(6), CORRECT, LR)


def answered(text: str, right: bool, group: int = 0) -> Episode:
    return Episode(Prompt(str(group)), group, 0, [], scores={"exact": float(right)}, info={"answer": text})


def test_the_evaluator_by_hand():
    """Four samples: a (right), b, b, c. p = 1/4, 1/2, 1/4; Q = 1/4; with lr = 1 and rewards 1, -1.

    N = 2, first step draws a, b: S = 1/4 - 1/2 = -1/4; p^2 = 1/16, 1/4, 1/16.
    dQ = 1/2 [3/4 (1/16 + 1/64) - 1/4 (-1/4 + 1/4 (1/4 + 1/16))] = 1/2 [0.05859375 + 0.04296875] = 0.05078125;
    unsampled (c): 1/2 * -1/4 * (1/4 * 1/16) = -0.001953125.
    Second step draws b, c: S = -3/4; dQ = 1/2 [3/4 (3/64) - 1/4 (-5/16 + 3/4 * 5/16)] = 1/2 [0.03515625 + 0.01953125]
    = 0.02734375; unsampled (a): 1/2 * -3/4 * (-3/4 * 1/16) = 0.017578125.
    N = 4: S = 1/4 - 1 - 1/4 = -1; dQ = 1/4 [3/4 (1/8) - 1/4 (-9/16 + 5/16)] = 1/4 [0.09375 + 0.0625] = 0.0390625.
    """
    group = [answered("a", True), answered("b", False), answered("b", False), answered("c", False)]
    result = AnswerMass([2, 4])(group)
    assert result == pytest.approx(
        {
            "correct": 0.25,
            "change@2": (0.05078125 + 0.02734375) / 2,
            "unsampled@2": (-0.001953125 + 0.017578125) / 2,
            "falls@2": 0,
            "change@4": 0.0390625,
            "unsampled@4": 0,
            "falls@4": 0,
            "errors": 0,
        }
    )


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match=r"answer_mass\.draws=\[4\]: a problem has 1 samples.*num_samples"):
        AnswerMass([4])([answered("a", True)])
    with pytest.raises(ValueError, match=r"answer_mass\.draws must be at least 1, got 0"):
        AnswerMass([0])


def test_other_rewards_change_the_mass_as_a_step_of_their_surrogate_does():
    logits = LOGITS.clone().requires_grad_()
    loss = -(COUNTS * torch.where(CORRECT, 2.0, -0.5) * logits.softmax(0)).sum() / COUNTS.sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    exact = float((LOGITS - LR * gradient).softmax(0)[CORRECT].sum() - LOGITS.softmax(0)[CORRECT].sum())
    assert float(mass_balance(LOGITS, COUNTS, CORRECT, LR, 2.0, -0.5).change) == pytest.approx(exact, rel=1e-4)


def test_a_mass_that_stays_does_not_fall_and_every_problem_needs_its_samples():
    right = [answered("a", True), answered("b", True)]
    assert AnswerMass([2])(right)["falls@2"] == 0
    with pytest.raises(ValueError, match="a problem has 1 samples"):
        AnswerMass([2])([*right, answered("a", True, group=1)])
