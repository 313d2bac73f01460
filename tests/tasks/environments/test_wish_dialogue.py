"""Dialogues about a wish: beliefs by hand, the noisy user, its expert, and scripted dialogues with their critic."""

import itertools

import numpy as np
import pytest

from mmrl.core.types import Prompt
from mmrl.rollouts.text.scripted import play_episode
from tasks.twenty_questions.belief import Belief, binary_entropy
from tasks.twenty_questions.imagined import ScriptedCritic, ScriptedDialogues
from tasks.twenty_questions.table import TABLE
from tasks.twenty_questions.task import TwentyQuestions
from tasks.twenty_questions.wishes import Wish, WishDialogue


def prompt(thing: str, user: int = 0) -> Prompt:
    return Prompt("wish_dialogue/train/0", info={"problem": Wish(thing, user)})


def meet(task: WishDialogue, thing: str, seed: int = 0):
    environment = task.make_environment()
    assert environment.reset(prompt(thing), seed).text == "Ask."
    return environment


def test_beliefs_by_hand():
    """Half of eight things are animals: 1 - H(.1) = 1 - .468996 bits at a noise of .1, and 1 bit without.

    One answer gives four things .9 / 4 each and the others .1 / 4; three right answers .9^3 = .729."""
    assert binary_entropy(0.1) == pytest.approx(0.468996, abs=1e-6) and binary_entropy(0.0) == 0
    belief = WishDialogue().make_belief()
    assert belief.information("animal") == pytest.approx(0.531004, abs=1e-6)
    assert WishDialogue(noise=0.0).make_belief().information("animal") == 1
    # one of eight is heavy: yes with probability 1/8 .9 + 7/8 .1 = .2, and H(.2) = .721928
    assert belief.information("heavy") == pytest.approx(0.721928 - 0.468996, abs=1e-6)
    belief.update("animal", True)
    assert sorted(belief.probabilities) == pytest.approx([0.025] * 4 + [0.225] * 4)
    for name in ("handheld", "sharp"):
        belief.update(name, True)
    assert belief.best() == 0 and belief.probabilities[0] == pytest.approx(0.729)  # the bee


def test_information_is_that_of_the_joint_distribution():
    """Sum over things and answers of p log2 (p(thing, answer) / (p(thing) p(answer)))."""
    task = WishDialogue(noise=0.2)
    for names in itertools.permutations(task.properties, 2):
        belief = task.make_belief()
        belief.update(names[0], False)
        joint = np.array(
            [
                [p * (0.8 if (names[1] in TABLE[thing]) == yes else 0.2) for yes in (True, False)]
                for thing, p in zip(task.things, belief.probabilities)
            ]
        )
        product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
        assert belief.information(names[1]) == pytest.approx((joint * np.log2(joint / product)).sum(), abs=1e-12)


def test_answers_without_noise_that_contradict_change_nothing():
    belief = Belief(("bee", "cat"), ("sharp",), 0.0)
    belief.update("sharp", True)
    belief.update("sharp", False)
    assert belief.probabilities.tolist() == [1, 0] and belief.information("sharp") == 0


def test_a_dialogue_by_hand():
    environment = meet(WishDialogue(noise=0.0), "frog")
    played = [("Is it an animal?", "Yes.", -0.05), ("green", "Yes.", -0.05), ("What is it?", "What?", -0.05)]
    for action, text, reward in played:
        step = environment.step(action)
        assert step.text == text and step.reward == reward and not step.done
    assert not step.valid and step.scores["information"] > 0.5
    step = environment.step("frog!")
    assert step.text == "Thanks." and step.terminated and step.reward == 0.95 and step.scores["exact"] == 1
    step = meet(WishDialogue(noise=0.0), "frog").step("Is it a bee?")
    assert step.terminated and step.reward == -0.05 and step.scores == {"exact": 0.0, "information": 0.0}


def test_noise_is_the_share_of_wrong_answers():
    """2,000 answers: 4 standard errors of a share of 0.1 are 0.027; another seed gives others."""
    environments = [meet(WishDialogue(max_turns=2000), "cat", seed) for seed in (0, 1)]
    answers = [[environment.step("animal?").text for _ in range(2000)] for environment in environments]
    assert all(abs(each.count("No.") / 2000 - 0.1) < 0.027 for each in answers) and answers[0] != answers[1]


def test_the_expert_finds_every_wish_without_noise_and_most_with_it():
    for noise, least in ((0.0, 1.0), (0.1, 0.75)):
        task = WishDialogue(noise=noise).on("held_out")
        episodes = [play_episode(task, task[i], lambda each: each.expert_action()) for i in range(256)]
        scores = [task.score(episode) for episode in episodes]
        assert np.mean([each["exact"] for each in scores]) >= least
        if not noise:
            assert {each["turns"] for each in scores} == {4}  # three questions of a bit each
        assert all(episode.ended == "done" for episode in episodes)


def test_splits_and_refusals():
    task = WishDialogue()
    users = [{task.on(split).problem(i) for i in range(200)} for split in ("train", "held_out")]
    assert not users[0] & users[1] and {wish.thing for wish in users[1]} == set(task.things)
    assert task.describe_user(prompt("bee")) == "The user wants the bee." and "bee" in task.explain(Wish("bee", 0))
    with pytest.raises(ValueError, match="2 things have 1 different answers"):
        WishDialogue(things=["cat", "bee"], properties=["animal"])
    for key, words in (("things", ["cat", "unicorn"]), ("properties", ["animal", "magic"])):
        with pytest.raises(ValueError, match=rf"task\.{key} has \['(unicorn|magic)'\]"):
            WishDialogue(**{key: words})
    with pytest.raises(ValueError, match="noise"):
        WishDialogue(noise=0.5)


def test_scripted_dialogues_succeed_by_skill():
    task, writer = WishDialogue(), ScriptedDialogues()
    prompts = [task[i] for i in range(300)]
    success = {}
    for skill in ("good", "fair", "poor"):
        texts = writer.write(task, prompts, [skill] * 300, 7)
        assert texts == writer.write(task, prompts, [skill] * 300, 7)
        dialogues = [[line.split(": ", 1)[1] for line in text.splitlines()] for text in texts]
        judgements = ScriptedCritic().judge(task, prompts, dialogues)
        success[skill] = np.mean([outcome for outcome, _ in judgements])
        named = [task.read_word(turns[-2]) == p.info["problem"].thing for turns, p in zip(dialogues, prompts)]
        assert [outcome for outcome, _ in judgements] == named
    # a random turn names a thing in 8 of 14 cases, and one in 8 of them is right: 4 standard errors are 0.076
    assert success["good"] > success["fair"] + 0.1 > success["poor"] + 0.1 and abs(success["poor"] - 0.125) < 0.08


def test_the_critic_by_hand():
    turns = ["animal?", "Yes.", "green?", "No.", "sharp?", "No.", "Hm", "What?", "frog!", "Thanks."]
    outcome, consistency = ScriptedCritic().judge(WishDialogue(), [prompt("frog")], [turns])[0]
    assert outcome == 1 and consistency == pytest.approx(2 / 3)  # a frog is green
    assert ScriptedCritic().judge(WishDialogue(), [prompt("frog")], [["bee!"]])[0] == (0.0, 1.0)


def test_what_the_script_cannot_write():
    with pytest.raises(ValueError, match=r"rollout\.skills has 'expert'"):
        ScriptedDialogues().write(WishDialogue(), [prompt("bee")], ["expert"], 0)
    with pytest.raises(ValueError, match="got 'twenty_questions'; take rollout=imagined_model"):
        ScriptedDialogues().write(TwentyQuestions(), [prompt("bee")], ["good"], 0)
    with pytest.raises(ValueError, match=r"random_fractions\.good"):
        ScriptedDialogues({"good": 2.0})
