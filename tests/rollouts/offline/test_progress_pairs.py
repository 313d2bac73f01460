import pytest

from mmrl.core.types import Context, Sampling
from mmrl.rollouts.offline.progress_pairs import ProgressPairs
from tasks.arithmetic.task import Arithmetic


def test_demonstrations_without_images_are_refused():
    task = Arithmetic()
    ctx = Context(task, None, None, Sampling(), seed=0, iteration=0)
    with pytest.raises(ValueError, match=r"task 'arithmetic' show \['images', 'messages'\]"):
        ProgressPairs().collect([(0, task[0])], ctx)
