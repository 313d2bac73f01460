"""Looks of single environments: the camera moves as predicted, and nothing leaks from one environment to another."""

import numpy as np
import pytest

from sims.render import PLAIN, Look, make_renderer
from sims.render.patterns import background, crop, photo, waves
from sims.tabletop import Reach
from sims.tabletop.appearance import Appearance
from sims.tabletop.scene import CAMERAS
from sims.tabletop.things import COLOURS
from tests.sims.render.scenes import BACKENDS, EYE, GL, SIZE, box, face

WILD = Appearance(camera_m=0.05, camera_deg=4, light_deg=40, light=0.4, surface=0.7, thing=0.1, background="waves")
ALL = ("rgb", "depth", "segmentation")


def middle(shown: np.ndarray) -> np.ndarray:
    """Mean (column, row) of a mask."""
    rows, columns = np.nonzero(shown)
    return np.array([columns.mean() + 0.5, rows.mean() + 0.5])


def test_cameras_move_and_turn_as_they_are_told():
    moved = Look(shift=(0.1, 0.2, 0.3)).camera(EYE)
    assert moved.position == (0.1, -1.8, 0.3)
    np.testing.assert_allclose(moved.axes, EYE.axes, atol=1e-15)
    left = Look(yaw=np.deg2rad(10)).camera(EYE)  # the eye looks along +y; its left is -x
    np.testing.assert_allclose(-left.axes[2], [-np.sin(np.deg2rad(10)), np.cos(np.deg2rad(10)), 0], atol=1e-12)
    up = Look(pitch=np.deg2rad(10)).camera(EYE)
    np.testing.assert_allclose(-up.axes[2], [0, np.cos(np.deg2rad(10)), np.sin(np.deg2rad(10))], atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_moved_camera_moves_the_image(backend):
    """A shift of 0.1 m is 4 pixels at the face; a turn by a is tan(a) / 0.5 * 35 pixels in the middle."""
    batch, renderer = box(backend)
    turn = np.arctan(0.5 * 7 / 35)  # 7 pixels
    looks = [None, Look(shift=(0.1, 0.0, -0.2)), Look(yaw=turn)]
    shown = renderer.views(batch, np.arange(3), "eye", SIZE, ["segmentation"], looks)["segmentation"] == 1
    np.testing.assert_array_equal(shown[0], face())
    # to the right and down: the face goes 4 pixels left and 8 up, and no other side comes in sight
    np.testing.assert_array_equal(shown[1], np.roll(face(), (-8, -4), axis=(0, 1)))
    assert abs(middle(shown[2])[0] - 42) < 1
    renderer.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_envs_do_not_share_looks(backend):
    """An environment's images are the same alone, beside others, and after others; the plain look is the model's."""
    batch, renderer = box(backend)
    looks = [
        Look(shift=(0.1, 0.1, 0.0), colours={"wall": (1.0, 0.0, 0.0)}),
        PLAIN,
        Look(lamp=(-1.0, 0.0, 0.3), bright=(0.5, 1.2), tint=0.1, seed=4),
    ]
    plain = renderer.views(batch, np.arange(3), "eye", 32, ALL)
    together = renderer.views(batch, np.arange(3), "eye", 32, ALL, looks)
    for i in range(3):
        alone = renderer.views(batch, np.array([i]), "eye", 32, ALL, [looks[i]])
        for kind in ALL:
            np.testing.assert_array_equal(alone[kind][0], together[kind][i])
    for kind in ALL:
        np.testing.assert_array_equal(together[kind][1], plain[kind][1])
        np.testing.assert_array_equal(renderer.views(batch, np.arange(3), "eye", 32, ALL)[kind], plain[kind])
    assert (together["rgb"][0][together["segmentation"][0] == 0].argmax(axis=-1) == 0).all()  # the wall is red
    assert (together["rgb"][2] != plain["rgb"][2]).any()
    np.testing.assert_array_equal(together["depth"][2], plain["depth"][2])  # light and colour move nothing
    renderer.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_background_covers_what_it_is_told_to(backend):
    batch, renderer = box(backend)
    image = np.full((8, 8, 3), (1, 2, 3), np.uint8)
    for backdrop, covered in (((), [-1]), (("wall",), [-1, 0])):
        look = Look(background=image, backdrop=backdrop)
        seen = renderer.views(batch, np.array([0]), "eye", 40, ALL, [look])
        hidden = (seen["rgb"] == (1, 2, 3)).all(axis=-1)
        np.testing.assert_array_equal(hidden, np.isin(seen["segmentation"], covered))
    renderer.close()


def test_looks_are_functions_of_the_seed():
    one, same, other = WILD.look(7), WILD.look(7), WILD.look(8)
    for name in ("shift", "yaw", "pitch", "lamp", "bright", "colours", "tint", "seed"):
        assert getattr(one, name) == getattr(same, name)
    np.testing.assert_array_equal(one.background, same.background)
    assert one.shift != other.shift and (one.background != other.background).any()
    # turning one amount up leaves the others as they were
    assert Appearance(camera_m=0.05).look(7).shift == one.shift
    assert Appearance(light=0.4).look(7).bright == one.bright
    still = Appearance().look(7)
    assert still.background is None and not still.colours and still.lamp == PLAIN.lamp
    assert (still.shift, still.yaw, still.bright) == (PLAIN.shift, 0.0, PLAIN.bright)


def test_amounts_bound_what_is_drawn():
    looks = [WILD.look(seed) for seed in range(300)]
    shifts = np.array([look.shift for look in looks])
    assert 0.045 < np.abs(shifts).max() <= 0.05
    turns = np.rad2deg([(look.yaw, look.pitch) for look in looks])
    assert 3.6 < np.abs(turns).max() <= 4
    angles = np.rad2deg(np.arccos([np.clip(look.towards_lamp @ PLAIN.towards_lamp, -1, 1) for look in looks]))
    assert 36 < angles.max() <= 40 + 1e-6
    assert 0.6 <= np.min([look.bright for look in looks]) < 0.64
    for options, word in (
        ({"camera_m": 0.3}, r"camera_m must be in \[0, 0.2\]"),
        ({"light": -0.1}, "light"),
        ({"background": "sea"}, "background"),
    ):
        with pytest.raises(ValueError, match=word):
            Appearance(**options)


def test_things_keep_their_colours_names():
    """The tinted colour of a thing is nearer to its own name's than to any other thing's in the scene."""
    env = Reach(image_size=8, colours=("red", "green", "blue")).make(1)
    names = ("red", "green", "blue")
    palette = np.array([COLOURS[name] for name in names])
    for seed in range(40):
        rgb = Appearance(thing=0.15).look(seed).rgb(env.physics.model)
        for i, name in enumerate(names):
            colour = rgb[env.physics.model.geom(f"cube_{name}").id]
            assert np.linalg.norm(palette - colour, axis=1).argmin() == i
            assert 0 < np.abs(colour - palette[i]).max() <= 0.15


def test_backgrounds():
    rng = np.random.default_rng(0)
    assert background("plain", rng) is None
    for image in (waves(rng), background("photos", rng), crop(photo("coffee"), rng)):
        assert image.shape == (128, 128, 3) and image.dtype == np.uint8 and image.std() > 10
    with pytest.raises(ValueError, match="plain, waves or photos"):
        background("sea", rng)


@pytest.mark.skipif(GL is None, reason="no GL draws here")
def test_rays_and_gl_agree_on_looks():
    env = Reach(image_size=96).make(4)
    env.reset(seed=[0, 1, 2, 3])
    gl = make_renderer(GL, env.physics.model, CAMERAS)
    batch, ids, looks = env.physics.batch, np.arange(4), [WILD.look(seed) for seed in range(4)]
    rays, drawn = (renderer.views(batch, ids, "front", 96, ALL, looks) for renderer in (env.renderer, gl))
    same = rays["segmentation"] == drawn["segmentation"]
    assert same.mean() > 0.995
    assert np.quantile(np.abs(rays["depth"] - drawn["depth"])[same], 0.999) < 0.02
    assert np.abs(rays["rgb"].astype(float) - drawn["rgb"])[same].mean() < 12
    gl.close()
