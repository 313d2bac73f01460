"""The control loop under a simulated clock, in which delays are exact, and once under the machine's."""

import time

import numpy as np
import pytest

from mmrl.api.robots.clock import SimulatedClock, SystemClock
from mmrl.api.robots.inference import SimulatedInference, ThreadedInference, start_inference
from mmrl.api.robots.player import RealTimePlayer
from mmrl.api.robots.timing import TimingReport, join_reports
from tests.api.robots.arms import Arm, count_ahead


def play(size, delay_s, steps=100, slow=None, **options):
    """An episode of `Arm` at 20 ms with a policy of `size` actions that takes `delay_s`."""
    clock = SimulatedClock()
    arm = Arm(clock, steps, slow)
    player = RealTimePlayer(arm, SimulatedInference(count_ahead(size), clock, delay_s), clock, **options)
    return arm, clock, player.play()


def test_no_command_is_late_at_20_ms_with_a_policy_of_150_ms():
    """150 ms are 7.5 control steps, so a chunk comes 8 steps after its observation and loses 8 of its 20 actions.

    The policy is asked at steps 0 (before the start), 10, 20, ..., 90: the first chunk loses none, the 9 others 8 each.
    Step k plays action k throughout.
    """
    arm, clock, played = play(20, 0.15)
    assert arm.commands == list(range(100))
    timing = played.timing
    assert (timing.steps, timing.late, timing.held, timing.chunks, timing.past_steps) == (100, 0, 0, 10, 72)
    assert clock.now() == pytest.approx(0.15 + 99 * 0.02)
    assert timing.inference_s == [0.15] * 10


def test_chunks_that_are_too_short_for_the_delay_leave_steps_without_an_action():
    """H = 10, asked at step 5 for the first time: there at step 13, but the old chunk ends before step 10.

    Steps 10, 11, 12 hold; the chunk of step 5 has actions 13 and 14. The next is asked at 13 (13 - 5 >= 5) and there at
    21: 15 to 20 hold, its actions are 21 and 22.
    """
    arm, _, played = play(10, 0.15, steps=23)
    assert arm.commands == [*range(10), *[-1] * 3, 13, 14, *[-1] * 6, 21, 22]
    assert played.timing.held == 9 and played.timing.late == 0


def test_a_policy_that_is_slower_than_its_chunk_gives_only_stale_chunks():
    arm, _, played = play(4, 0.15, steps=20)
    assert arm.commands == [0, 1, 2, 3, *[-1] * 16]
    assert played.timing.chunks == 1 and played.timing.stale_chunks == 2  # asked at 2 and 10; that of 18 never comes


def test_execute_says_when_the_next_chunk_is_asked_for():
    """With execute = 1 a chunk is asked for as soon as the one before is there: at steps 1, 3, 5, ..., 19."""
    _, _, played = play(10, 0.03, steps=20, execute=1)
    assert len(played.timing.inference_s) == 10 and played.timing.past_steps == 2 * played.timing.chunks - 2


def test_a_late_command_is_counted_and_moves_the_following_steps():
    """Reading takes 50 ms in step 3, which begins at 60 ms: its command comes at 110, step 4 begins at 110 and step 9,
    the last one, at 210 ms."""
    arm, clock, played = play(20, 0.0, steps=10, slow={3: 0.05})
    assert played.timing.late == 1 and played.timing.steps == 10
    assert played.timing.command_s == pytest.approx([0, 0, 0, 0.05, 0, 0, 0, 0, 0, 0])
    assert clock.now() == pytest.approx(0.21)
    assert arm.commands == list(range(10))


def test_a_step_that_is_slow_but_within_its_period_is_not_late():
    _, _, played = play(20, 0.0, steps=10, slow={3: 0.019})
    assert played.timing.late == 0


class Human:
    """Gives 100 in some control steps, by the number that is observed."""

    def __init__(self, steps):
        self.steps = steps

    def __call__(self, observation):
        return np.array([100.0]) if int(observation["state"][0]) in self.steps else None


def test_a_human_takes_over_and_no_chunk_from_before_is_played():
    """H = 20, 150 ms. The chunk that was asked for at step 10 is under way while the human acts in steps 12 to 14.

    It comes at step 18 and is stale; the policy is asked again then, and its chunk is there at step 26: steps 15 to 25
    hold.
    """
    arm, _, played = play(20, 0.15, steps=40, takeover=Human(range(12, 15)))
    assert arm.commands == [*range(12), *[100] * 3, *[-1] * 11, *range(26, 40)]
    timing = played.timing
    assert (timing.interventions, timing.takeovers, timing.stale_chunks, timing.held) == (3, 1, 1, 11)
    assert np.flatnonzero(played.episode.interventions).tolist() == [12, 13, 14]
    assert played.episode.actions[:, 0].tolist() == arm.commands


def test_queries_have_the_actions_to_come_and_the_largest_delay():
    """At step 10 ten actions are left; 8 steps is what 150 ms take. After a takeover there is no old chunk."""
    clock, queries = SimulatedClock(), []

    def note(query):
        queries.append(query)
        return count_ahead(20)(query)

    arm = Arm(clock, 40)
    RealTimePlayer(arm, SimulatedInference(note, clock, 0.15), clock, takeover=Human([25])).play(seed=3)
    first, second, after = queries[0], queries[1], queries[3]
    assert first.previous is None and (first.executed, first.delay) == (0, 0)
    assert second.previous[:, 0].tolist() == list(range(10, 20)) and (second.executed, second.delay) == (10, 8)
    assert (after.step, after.previous) == (28, None)
    assert len({query.seed for query in queries}) == len(queries)


@pytest.mark.parametrize("action, words", [([np.nan], "finite"), ([1.0, 2.0], r"1 finite numbers; nothing was")])
def test_an_action_that_no_robot_takes_is_not_written(action, words):
    with pytest.raises(ValueError, match=words):
        play(20, 0.0, takeover=lambda observation: np.array(action))


def test_a_chunk_of_another_robot_is_refused():
    clock = SimulatedClock()
    inference = SimulatedInference(lambda query: np.zeros((4, 7)), clock)
    with pytest.raises(ValueError, match=r"chunk is \[4, 7\], the robot takes 1 numbers"):
        RealTimePlayer(Arm(clock), inference, clock).play()


def test_an_error_of_the_policy_is_raised_in_the_loop():
    def fail(query):
        if query.step:
            raise RuntimeError("out of memory")
        return np.zeros((4, 1))

    inference = ThreadedInference(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        RealTimePlayer(Arm(), inference, SystemClock(), fps=200).play()
    inference.close()


def test_ctrl_c_ends_the_episode_and_keeps_its_rows():
    def stop(observation):
        if observation["state"][0] == 5:
            raise KeyboardInterrupt

    _, _, played = play(20, 0.0, takeover=stop)
    assert played.interrupted and len(played.episode) == 5 and played.episode.ended == "cut"


def test_the_loop_does_not_wait_for_a_thread():
    """40 control steps of 10 ms with a policy that sleeps 35 ms. A busy machine may delay commands, but not most of
    them: a loop that waited for the policy in every chunk would be late in all steps that join one."""

    def sleep(query):
        time.sleep(0.035)
        return count_ahead(20)(query)

    clock, arm = SystemClock(), Arm(steps=40)
    inference = start_inference(sleep, clock, 0.005)
    played = RealTimePlayer(arm, inference, clock, fps=100).play()
    inference.close()
    assert played.timing.steps == 40 and played.timing.late <= 20
    assert min(played.timing.inference_s) >= 0.04 and played.timing.past_steps > 0
    assert all(command in (step, -1) for step, command in enumerate(arm.commands))


def test_reports_of_episodes_are_joined():
    first, second = TimingReport(0.02), TimingReport(0.02, steps=2, late=1, inference_s=[0.1])
    assert first.note_command(0.03) and not first.note_command(0.02)
    total = join_reports([first, second])
    assert (total.steps, total.late, total.inference_s) == (4, 2, [0.1])
    assert total.format()[0].startswith("4 control steps of 20 ms: 2 late commands, 0 held")
