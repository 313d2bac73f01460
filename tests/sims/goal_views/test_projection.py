"""Projection and drawing: numbers by hand, another camera's projection, and MuJoCo's rays."""

from math import radians

import mujoco
import numpy as np
import pytest

from sims.goal_views.drawing import NOTHING, draw_view
from sims.goal_views.layout import draw_layout
from sims.goal_views.projection import Viewpoint, project_point
from sims.goal_views.tasks import EYE_M, FOVY, PITCH
from sims.render.camera import Camera

WIDE = {"width": 640, "height": 360, "fovy": radians(70)}


def test_pixels_by_hand():
    """tan(35 deg) = 0.700208, times 640/360 = 1.244813: n_x = 1 / (4 * 1.244813) = 0.200834, u = 1.200834 * 320.

    One metre up instead of to the right: n_y = 1 / (4 * 0.700208) = 0.357037, v = 0.642963 * 180.
    """
    origin = Viewpoint((0.0, 0.0, 0.0))
    assert project_point((1, 0, 4), origin, **WIDE) == pytest.approx((384.267, 180.0), abs=1e-3)
    assert project_point((0, 0, 7), origin, **WIDE) == pytest.approx((320.0, 180.0))
    assert project_point((0, 1, 4), origin, **WIDE) == pytest.approx((320.0, 115.733), abs=1e-3)


def test_a_point_that_is_not_before_the_camera_has_no_pixel():
    for point in ((1, 0, 0), (0, 0, -4), (1, 2, -1e-9)):
        assert project_point(point, Viewpoint((0.0, 0.0, 0.0)), **WIDE) is None


def test_turns_to_the_right_and_tilts_up():
    """What lies to the right is straight ahead after a quarter turn; what lies at 45 degrees up after such a tilt."""
    assert project_point((5, 1, 1), Viewpoint((1, 1, 1), yaw=np.pi / 2), **WIDE) == pytest.approx((320, 180))
    assert project_point((0, 3, 3), Viewpoint((0, 0, 0), pitch=np.pi / 4), **WIDE) == pytest.approx((320, 180))
    assert project_point((0, 3, 3), Viewpoint((0, 0, 0), yaw=0.1, pitch=np.pi / 4), **WIDE)[0] < 320


def test_it_is_the_projection_of_a_camera_that_looks_at_a_point():
    """`Camera` has z upright and looks at a target; (x, y, z) here is (x, z, y) there."""
    rng = np.random.default_rng(0)
    compared = 0
    for _ in range(200):
        eye, point = rng.uniform(-3, 3, (2, 3))
        yaw, pitch, fovy = rng.uniform(-np.pi, np.pi), rng.uniform(-1.2, 1.2), rng.uniform(0.5, 2)
        view = Viewpoint(tuple(eye), yaw, pitch)
        target = eye + view.axes[2]
        camera = Camera(tuple(eye[[0, 2, 1]]), tuple(target[[0, 2, 1]]), np.rad2deg(fovy))
        pixel = project_point(tuple(point), view, 50, 50, fovy)
        if pixel is not None:
            assert pixel == pytest.approx(camera.project(point[[0, 2, 1]], 50), rel=1e-6, abs=1e-6)
            compared += 1
    assert 60 < compared < 140


def build_room(boxes) -> mujoco.MjModel:
    """The boxes as geoms of MuJoCo, in their order."""
    geoms = "".join(
        f'<geom type="box" pos="{x} {y} {z}" size="{a} {b} {c}"/>'
        for (x, y, z), (a, b, c) in zip((boxes.low + boxes.high) / 2, (boxes.high - boxes.low) / 2)
    )
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")


@pytest.mark.parametrize("seed", range(4))
def test_every_pixel_shows_the_box_that_a_ray_of_mujoco_hits(seed):
    rng = np.random.default_rng(seed)
    layout = draw_layout(rng, 6, 5, 3)
    boxes = layout.boxes()
    model = build_room(boxes)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    free = [(x, z) for x in range(6) for z in range(6) if layout.is_free((x, z))]
    x, z = free[int(rng.integers(len(free)))]
    view = Viewpoint((x + 0.5, EYE_M, z + 0.5), float(rng.uniform(0, 6)), PITCH)
    image, segments = draw_view(boxes, view, 15, FOVY)
    half, hit = np.tan(FOVY / 2), np.zeros(1, np.int32)
    for row in range(15):
        for column in range(15):
            local = np.array([((column + 0.5) / 15 * 2 - 1) * half, -((row + 0.5) / 15 * 2 - 1) * half, 1.0])
            mujoco.mj_ray(model, data, np.array(view.eye), local @ view.axes, None, 1, -1, hit)
            assert segments[row, column] == (hit[0] if hit[0] >= 0 else NOTHING)
    assert len(np.unique(segments)) > 1 and image.dtype == np.uint8


def test_the_pixels_of_a_small_box_lie_where_its_centre_is_projected():
    rng = np.random.default_rng(1)
    layout = draw_layout(rng, 6, 0, 1)
    boxes = layout.boxes()
    centre = np.array([2.2, 0.7, 4.1])
    boxes.low[0], boxes.high[0] = centre - 0.04, centre + 0.04
    view = Viewpoint((1.6, EYE_M, 1.5), 0.3, PITCH)
    rows, columns = np.nonzero(draw_view(boxes, view, 200, FOVY)[1] == 0)
    u, v = project_point(tuple(centre), view, 200, 200, FOVY)
    assert (columns.mean() + 0.5, rows.mean() + 0.5) == pytest.approx((u, v), abs=0.5)
