"""RGB, depth and segmentation of one instant, by rays and by GL."""

import numpy as np
import pytest

from sims.render import make_renderer
from sims.render.base import FAR_M
from sims.tabletop import Reach
from sims.tabletop.scene import CAMERAS
from tests.sims.render.scenes import BACKENDS, GL, SIZE, box, face

ALL = ("rgb", "depth", "segmentation")
IDS = np.arange(2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_box_is_as_far_and_as_large_as_it_is(backend):
    batch, renderer = box(backend)
    batch.bind("qpos")[1, 1] = 0.5  # the second box stands half a metre farther away
    seen = renderer.views(batch, IDS, "eye", SIZE, ALL)
    assert {kind: (image.dtype.name, image.shape) for kind, image in seen.items()} == {
        "rgb": ("uint8", (2, SIZE, SIZE, 3)),
        "depth": ("float32", (2, SIZE, SIZE)),
        "segmentation": ("int32", (2, SIZE, SIZE)),
    }
    np.testing.assert_array_equal(seen["segmentation"][0] == 1, face())
    near, far = seen["depth"][0][face()], seen["depth"][1][30:40, 30:40]
    # a depth buffer of 24 bits over [0.02, 50] * extent resolves z^2 / (near 2^24) = 2e-6 m here
    np.testing.assert_allclose(near, 1.75, atol=1e-5)  # all over the face: along the axis, not along the ray
    np.testing.assert_allclose(far, 2.25, atol=1e-5)
    wall = seen["segmentation"] == 0
    np.testing.assert_allclose(seen["depth"][wall], 3.0, atol=2e-5)
    sky = seen["segmentation"] == -1
    assert sky[:, 0].all() and (seen["depth"][sky] == FAR_M).all()
    assert (seen["rgb"][seen["segmentation"] == 1].argmax(axis=-1) == 1).all()
    renderer.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_kinds_can_be_asked_for_one_by_one(backend):
    batch, renderer = box(backend)
    together = renderer.views(batch, IDS, "eye", 16, ALL)
    for kind in ALL:
        alone = renderer.views(batch, IDS, "eye", 16, (kind,))
        assert list(alone) == [kind]
        np.testing.assert_array_equal(alone[kind], together[kind])
    np.testing.assert_array_equal(renderer.frames(batch, IDS, "eye", 16), together["rgb"])
    assert not renderer.views(batch, IDS, "eye", 16, ())
    with pytest.raises(ValueError, match=r"\['normal'\]; known are \['depth', 'rgb', 'segmentation'\]"):
        renderer.views(batch, IDS, "eye", 16, ("normal",))
    renderer.close()


@pytest.mark.skipif(GL is None, reason="no GL draws here")
def test_rays_and_gl_agree():
    """They may differ where round shapes are tessellated and along edges, nowhere else."""
    env = Reach(image_size=96).make(4)
    env.reset(seed=[0, 1, 2, 3])
    env.step(np.random.default_rng(0).uniform(-1, 1, (4, 5, 3)))
    gl = make_renderer(GL, env.physics.model, CAMERAS)
    batch, ids = env.physics.batch, np.arange(4)
    rays, drawn = (renderer.views(batch, ids, "front", 96, ALL) for renderer in (env.renderer, gl))
    same = rays["segmentation"] == drawn["segmentation"]
    assert same.mean() > 0.995
    apart = np.abs(rays["depth"] - drawn["depth"])[same]
    assert np.median(apart) < 1e-5 and np.quantile(apart, 0.999) < 0.02  # metres; 12 flat sides for a circle
    assert np.abs(rays["rgb"].astype(float) - drawn["rgb"])[same].mean() < 12  # of 255; shading differs
    gl.close()
