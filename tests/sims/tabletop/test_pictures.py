"""Ray-cast images, labelled scenes, demonstrations, and what is recorded about them."""

import json

import mujoco
import numpy as np
import pytest
from mujoco.batch import Batch

from mmrl.files.contract import differences
from sims.render import Camera, make_renderer, probe
from sims.render.base import resolve
from sims.tabletop import Reach
from sims.tabletop.scene import CAMERAS
from sims.tabletop.things import COLOURS

EYE = Camera(position=(0.0, -2.0, 0.0), target=(0.0, 0.0, 0.0), fovy=53.13010235415598)  # tan(fovy / 2) = 0.5


def ball(x=0.0, z=0.0):
    xml = (
        f"<mujoco><worldbody>{EYE.xml('eye')}"
        f'<body pos="{x} 0 {z}"><freejoint/><geom size=".25" rgba="0 1 0 1"/></body></worldbody></mujoco>'
    )
    model = mujoco.MjModel.from_xml_string(xml)
    return model, make_renderer("ray", model, {"eye": EYE})


def test_rays_and_projection_agree_with_the_pinhole():
    """At distance 2 the image is 2 * 2 * 0.5 = 2 m high: x = 0.5 m is a quarter of the image right of the middle."""
    np.testing.assert_allclose(EYE.project(np.array([0.5, 0.0, 0.25]), 64), [48, 24], atol=1e-9)
    rays = EYE.rays(4)  # pixel centres at -.75, -.25, .25, .75 of the half height 0.5
    np.testing.assert_allclose(rays[0] / rays[0, 1], [-0.375, 1, 0.375], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(rays, axis=1), 1)
    side = CAMERAS["side"]
    points = np.asarray(side.position) + 0.7 * side.rays(8)
    column, row = np.meshgrid(np.arange(8) + 0.5, np.arange(8) + 0.5)
    np.testing.assert_allclose(side.project(points, 8), np.stack([column.ravel(), row.ravel()], 1), atol=1e-9)


def test_a_ball_is_drawn_where_it_is():
    """Radius 0.25 m at 2 m: seen under asin(.125), that is tan(.1253) * 64 = 8.06 pixels around (48, 24)."""
    model, renderer = ball(x=0.5, z=0.25)
    batch, ids = Batch(model, 1, 1), np.array([0])
    image, shown = (column[0] for column in renderer.views(batch, ids, "eye", 64, ("rgb", "segmentation")).values())
    rows, columns = np.nonzero(shown == 0)
    np.testing.assert_allclose([columns.mean() + 0.5, rows.mean() + 0.5], [48, 24], atol=0.5)
    assert np.pi * 7.5**2 < len(rows) < np.pi * 9**2
    assert set(np.unique(shown)) == {-1, 0}
    np.testing.assert_array_equal(renderer.frames(batch, ids, "eye", 64)[0], image)
    assert (image[shown == 0].argmax(axis=1) == 1).all() and (image[shown == 0][:, [0, 2]] == 0).all()
    assert image[16, 50, 1] > image[31, 46, 1]  # the lamp stands above


def test_rays_that_are_not_cast_would_have_missed():
    """Images are the same bits as with every ray cast, cut into tiles of 8, of 4, and not at all."""
    env = Reach(image_size=16).make(6)
    env.reset(seed=list(range(6)))
    env.step(np.random.default_rng(0).uniform(-1, 1, (6, 5, 3)))
    batch, ids, renderer = env.physics.batch, np.arange(6), env.renderer
    for camera, size in (("front", 64), ("side", 64), ("front", 36), ("front", 31)):
        view = renderer._still.view(camera, size)
        _, geom = batch.ray(view.origin[0], view.rays[0])  # everything, moving or not
        shown = renderer.views(batch, ids, camera, size, ["segmentation"])["segmentation"].reshape(6, -1)
        np.testing.assert_array_equal(shown, geom)
        kept = view.tiles.worth_casting(view.origin, batch.geom_xpos[:, renderer._moving], renderer._radii)
        if size == 64:
            assert kept.shape[1] < 0.8 * len(view.tiles.pixels)


def test_the_camera_of_the_model_is_the_same_camera():
    model, _ = ball()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    # MuJoCo's camera frame has x right, y up and z backward as columns
    np.testing.assert_allclose(data.cam_xmat[0].reshape(3, 3).T, EYE.axes, atol=1e-6)
    np.testing.assert_allclose(data.cam_xpos[0], EYE.position)


def test_the_named_colour_is_at_the_projected_place():
    sim = Reach()
    scenes = sim.label_images(list(range(48)))
    env = sim.make(48)
    env.reset(seed=list(range(48)))
    assert scenes["image"].shape == (48, 64, 64, 3) and scenes["image"].dtype == np.uint8
    for i in range(48):
        colour = scenes["instruction"][i].split()[2]
        assert scenes["instruction"][i] == env.instructions[i]
        inside = scenes["image"][i][scenes["mask"][i]].astype(float)
        wanted = np.array(COLOURS[colour])
        match = (inside @ wanted) / (np.linalg.norm(inside, axis=1) * np.linalg.norm(wanted))
        assert match.min() > 0.99  # hue; brightness varies with the light
        place = CAMERAS["front"].project(env.physics.objects[i, env.table.named[i, 0]], 64)
        np.testing.assert_allclose(scenes["centroid"][i], place, atol=3)  # pixels; some are partly hidden
    visible = scenes["mask"].sum(axis=(1, 2))
    assert np.median(visible) > 30


def test_scenes_move_the_arm_but_not_the_cubes():
    sim = Reach(image_size=16)
    still, moved = sim.label_images([3, 4], joint_noise=0.0), sim.label_images([3, 4], joint_noise=0.3)
    first, _ = sim.make(2).reset(seed=[3, 4])
    np.testing.assert_array_equal(still["image"], first["image"])
    np.testing.assert_array_equal(still["proprio"], first["proprio"])
    assert (np.abs(moved["proprio"][:, 6:]).max(axis=1) > 0.1).all()


def test_equal_seeds_share_their_first_image():
    observation, _ = Reach(image_size=16).make(4).reset(seed=[5, 6, 5, 6])
    image = observation["image"]
    np.testing.assert_array_equal(image[:2], image[2:])
    assert (image[0] != image[1]).any()


def test_images_for_people():
    env = Reach(image_size=16).make(2)
    env.reset(seed=[0, 1])
    image = env.render(1, 96)
    assert image.shape == (96, 96, 3) and image.dtype == np.uint8
    assert (env.render(0, 96) != image).any() and (env.render(1, 96, "front") != image).any()
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 300  # smooth edges


def test_demonstrations_are_clean_and_arrive():
    sim = Reach(image_size=16)
    seeds = list(range(200, 230))
    demos = sim.demonstrate(seeds, noise=0.3)
    again = sim.demonstrate(seeds[::-1], noise=0.3)[::-1]  # a demo depends on its seed only
    quiet = sim.demonstrate(seeds, noise=0.0)
    assert len(demos) == 30
    for demo, other, clean in zip(demos, again, quiet):
        assert {"image", "proprio", "instruction"} == set(demo[0][0])
        assert all(chunk.shape == (5, 3) and chunk.dtype == np.float32 for _, chunk in demo)
        assert all(np.abs(chunk).max() <= 1 for _, chunk in demo)
        for (raw, chunk), (raw_other, chunk_other) in zip(demo, other, strict=True):
            np.testing.assert_array_equal(chunk, chunk_other)
            np.testing.assert_array_equal(raw["image"], raw_other["image"])
        np.testing.assert_array_equal(demo[0][1], clean[0][1])  # the first label does not know the noise
        assert (demo[1][0]["proprio"] != clean[1][0]["proprio"]).any()  # but what was executed did
    assert sim.task.radius_m > sim.task.strict().radius_m == 0.04


def test_contracts_are_compared():
    sim = Reach()
    assert not differences(json.loads(json.dumps(sim.contract())), sim.contract())
    assert sim.contract()["renderer"] == sim.renderer_name == sim.make(1).renderer_name == "ray"
    assert differences(sim.contract(), Reach(image_size=32).contract()) == ["image_size: 64 in training, 32 here"]
    other = differences({**sim.contract(), "renderer": "egl"}, sim.contract())
    assert other == ['renderer: "egl" in training, "ray" here']
    assert sim.contract()["tasks"] != Reach(colours=("red", "blue")).contract()["tasks"]
    assert "not stated in training" in differences({}, sim.contract())[0]


def test_gl_is_used_only_where_it_draws():
    assert resolve("ray") == "ray"
    works = [name for name in ("egl", "osmesa") if probe(name) is None]
    assert resolve("auto") == (works[0] if works else "ray")
    for name in {"egl", "osmesa"} - set(works):
        with pytest.raises(ValueError, match=f"renderer={name} cannot draw"):
            Reach(renderer=name).make(1)
    for name in works[:1]:  # a process can use one; both ways of drawing show the same scene
        rays, gl = (Reach(renderer=r).make(1).reset(seed=[0])[0]["image"][0].astype(float) for r in ("ray", name))
        assert np.corrcoef(rays.ravel(), gl.ravel())[0, 1] > 0.9
    with pytest.raises(ValueError, match="must be auto, ray, egl or osmesa"):
        resolve("vulkan")
