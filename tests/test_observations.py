"""What an environment shows arrives whole, whatever its space looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from baldwin.envs import EnvConfig, check_env
from baldwin.errors import ConfigError, EnvironmentFailure
from baldwin.networks import ObservationBuffer
from baldwin.observations import ObservationSpec, describe_observations, flat_mask

vectors = (
    st.builds(lambda n: spaces.Box(-5, 5, (n,), np.float32), st.integers(1, 4))
    | st.builds(lambda a, b: spaces.Box(-5, 5, (a, b), np.float64), st.integers(1, 3), st.integers(1, 4))
    | st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), st.integers(-3, 3))
    | st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3))
    | st.builds(spaces.MultiBinary, st.integers(1, 4))
)
images = st.builds(
    lambda c, h, w, last, dtype: spaces.Box(0, 1 if dtype != np.uint8 else 255, (h, w, c) if last else (c, h, w), dtype),
    st.integers(1, 4), st.integers(5, 9), st.integers(5, 9), st.booleans(), st.sampled_from([np.uint8, np.float32]),
)  # fmt: skip
nested = st.recursive(
    vectors | images,
    lambda inner: st.builds(spaces.Tuple, st.lists(inner, min_size=1, max_size=3)) | st.builds(spaces.Dict, st.dictionaries(st.text("abv", min_size=1, max_size=2) | st.just("vector"), inner, min_size=1, max_size=3)),
    max_leaves=6,
)  # fmt: skip


def describe(space: Any, **settings: Any) -> ObservationSpec:
    return describe_observations(space, "a test", **settings)


@settings(deadline=None, max_examples=200)
@given(nested, st.integers(0, 2**31))
def test_every_number_of_any_space_arrives_once(space: Any, seed: int) -> None:
    spec = describe(space)
    space.seed(seed)
    seen = space.sample()
    found = spec.read(seen)
    parts = [spaces.flatten(s.space, s.find(seen)).astype(np.float64).ravel() for s in spec.sensors if not s.is_image]
    if parts:
        np.testing.assert_allclose(found["vector"][0], np.concatenate(parts), rtol=1e-6)
    for sensor in spec.images:
        picture = found[sensor.key][0]
        assert picture.shape == sensor.shape
        assert picture.dtype == sensor.space.dtype
        original = np.asarray(sensor.find(seen))
        np.testing.assert_array_equal(picture, np.moveaxis(original, -1, 0) if sensor.channels_last else original)
    assert len(found) == len({s.key for s in spec.images}) + bool(parts)


def test_sensors_have_the_names_of_their_places() -> None:
    hand = spaces.Dict({"left": spaces.Box(-1, 1, (2,), np.float32), "right": spaces.Box(0, 255, (9, 9, 3), np.uint8)})
    spec = describe(spaces.Dict({"hand": hand, "pair": spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2)))}))
    assert [s.name for s in spec.sensors] == ["hand/left", "hand/right", "pair/0", "pair/1"]
    assert spec.vectors == {"hand/left": slice(0, 2), "pair/0": slice(2, 5), "pair/1": slice(5, 7)}
    assert [s.shape for s in spec.images] == [(3, 9, 9)]


@pytest.mark.parametrize(
    ("shape", "dtype", "expected", "channels"),
    [
        ((84, 84, 3), np.uint8, (3, 84, 84), "auto"),
        ((3, 84, 84), np.uint8, (3, 84, 84), "auto"),
        ((84, 84), np.uint8, (1, 84, 84), "auto"),
        ((4, 84, 84, 1), np.uint8, (4, 84, 84), "auto"),
        ((4, 84, 84, 3), np.uint8, (12, 84, 84), "auto"),
        ((10, 10, 6), np.bool_, (6, 10, 10), "auto"),
        ((8, 10, 9), np.uint8, (8, 10, 9), "first"),
        ((8, 10, 9), np.uint8, (9, 8, 10), "last"),
        ((2, 3, 3), np.uint8, (18,), "auto"),  # too small for a picture
        ((6, 6), np.float32, (36,), "auto"),  # a matrix
    ],
)
def test_pictures_are_recognised(shape: tuple[int, ...], dtype: Any, expected: tuple[int, ...], channels: Any) -> None:
    (sensor,) = describe(spaces.Box(0, 1 if dtype != np.uint8 else 255, shape, dtype), channels=channels).sensors
    assert sensor.shape == expected
    assert sensor.scale == (pytest.approx(1 / 255) if sensor.is_image and dtype == np.uint8 else 1 if sensor.is_image else sensor.scale)


def test_text_is_refused_by_name_and_can_be_left_out() -> None:
    with pytest.raises(EnvironmentFailure, match=r"sensor 'mission' is Text.*no encoder can take.*env.ignore_sensors=\[mission\]"):
        check_env(EnvConfig(id="tests.toys.sensors:Talks"))
    assert check_env(EnvConfig(id="tests.toys.sensors:Talks", ignore_sensors=["mission"])).obs.vectors == {"where": slice(0, 2)}
    with pytest.raises(ConfigError, match=r"no sensor 'mision'; there are: mission, where. Did you mean 'mission'"):
        check_env(EnvConfig(id="tests.toys.sensors:Talks", ignore_sensors=["mision"]))
    graph = spaces.Dict({"net": spaces.Graph(spaces.Box(-1, 1, (2,)), None), "list": spaces.Sequence(spaces.Discrete(2))})
    with pytest.raises(EnvironmentFailure, match="sensor 'list'"):
        describe(graph, ignore=["net"])
    with pytest.raises(EnvironmentFailure, match="sensor 'net'"):
        describe(graph, ignore=["list"])


def test_masks_of_any_form_become_flags() -> None:
    assert flat_mask(np.array([1, 0, 1], np.int8), spaces.Discrete(3)).tolist() == [True, False, True]
    assert flat_mask((np.array([1, 0]), np.array([0, 0, 1])), spaces.MultiDiscrete([2, 3])).tolist() == [True, False, False, False, True]
    space = spaces.Dict(
        {"move": spaces.Discrete(3), "aim": spaces.Tuple((spaces.Box(0, 1, (1,)), spaces.Discrete(2)))}
    )  # sorted: aim, move
    assert flat_mask({"move": [1, 1, 0], "aim": (None, [0, 1])}, space).tolist() == [False, True, True, True, False]
    assert flat_mask({"move": [1, 1, 0]}, space).tolist() == [True, True, True, True, False]
    assert flat_mask(None, spaces.Discrete(2)).tolist() == [True, True]
    with pytest.raises(ValueError, match="expected an action mask of 3 flags"):
        flat_mask([1, 0], spaces.Discrete(3))


def test_a_nested_mask_in_the_observation_is_no_sensor() -> None:
    flags = spaces.Dict({"a": spaces.MultiBinary(2), "b": spaces.MultiDiscrete([2, 2, 2])})
    actions = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)})
    spec = describe(spaces.Dict({"action_mask": flags, "x": spaces.Box(0, 1, (1,))}), action_space=actions)
    assert [s.name for s in spec.sensors] == ["x"]
    seen = spec.read({"action_mask": {"a": np.array([1, 0]), "b": np.array([0, 1, 1])}, "x": np.zeros(1)})
    assert seen["action_mask"].tolist() == [[True, False, False, True, True]]
    with pytest.raises(EnvironmentFailure, match="a mask of legal actions needs discrete choices"):
        describe(spaces.Dict({"action_mask": flags, "x": spaces.Box(0, 1, (1,))}), action_space=spaces.Box(0, 1, (1,)))


def test_names_that_collide_and_wrong_pictures_are_named() -> None:
    box = spaces.Box(0, 1, (1,), np.float32)
    with pytest.raises(EnvironmentFailure, match="two sensors are called 'a/b'"):
        describe(spaces.Dict({"a/b": box, "a": spaces.Dict({"b": box})}))
    eye = describe(spaces.Box(0, 255, (5, 5, 1), np.uint8))
    with pytest.raises(ValueError, match="expected an image of uint8"):
        eye.read(np.full((5, 5, 1), 0.9, np.float32))
    assert describe(spaces.Dict({"action": spaces.Box(0, 255, (5, 5, 1), np.uint8)})).images[0].key == "action_"


@pytest.mark.parametrize("where", ["info", "obs"])
def test_masks_are_found(where: str) -> None:
    spec = check_env(EnvConfig(id="tests.toys.sensors:OnlyLegal", kwargs={"where": where})).obs
    assert spec.mask_size == 5
    assert spec.vector_size == 1


def test_frames_are_stacked_newest_last_and_begin_with_the_first_repeated() -> None:
    spec = describe(spaces.Box(0, 255, (1, 5, 5), np.uint8), frames=3)
    seen = ObservationBuffer(spec, 2)

    def frame(*values: int) -> dict[str, np.ndarray]:
        return {"obs": np.stack([np.full((1, 5, 5), v, np.uint8) for v in values])}

    seen.begin(slice(None), frame(1, 7))
    assert seen.arrays["obs"][:, :, 0, 0].tolist() == [[1, 1, 1], [7, 7, 7]]
    seen.advance(slice(None), frame(2, 8))
    seen.advance(np.array([0]), frame(3))
    assert seen.arrays["obs"][:, :, 0, 0].tolist() == [[1, 2, 3], [7, 7, 8]]
    seen.begin(np.array([0]), frame(9))
    assert seen.tensors["obs"][:, :, 0, 0].tolist() == [[9, 9, 9], [7, 7, 8]]
    seen.keep(np.array([1]))
    assert seen.tensors["obs"][:, :, 0, 0].tolist() == [[7, 7, 8]]
