"""What an observation is made of: named sensors, each a vector or an image, and perhaps a mask of legal actions.

From the environment to the network an observation is a dict of arrays. All vector sensors lie side by side under
`vector`, in float; each image has a key of its own and stays as small as it came (uint8), channels first, newest
frame only; `action_mask` has a flag for each choice. So a plain Box is one array, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.errors import ConfigError, EnvironmentFailure, clean_text, nearest

VECTOR = "vector"
ACTION_MASK = "action_mask"
PREVIOUS_ACTION = "previous_action"  # the sensor that env.previous_action adds
RESERVED = (VECTOR, ACTION_MASK, "action")  # keys of an observation, and of what critics are given besides
ONLY_SENSOR = "obs"  # the name of a space that has no parts
MIN_IMAGE_SIDE = 5  # pixels; a smaller grid is a vector
SEPARATOR = "/"

Observation = dict[str, NDArray[Any]]
"""Key -> array [..., *shape]; the leading axes are those of a batch."""
Channels = Literal["auto", "first", "last"]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Sensor:
    """One part of an observation space."""

    name: str  # its place in the space: "camera", "hand/left"
    path: tuple[Any, ...]  # the same as keys and numbers
    space: gym.Space[Any]
    shape: tuple[int, ...]  # as it travels: (n,), or (channels, height, width)
    channels_last: bool = False  # in the environment

    @property
    def is_image(self) -> bool:
        """Whether it travels as an image."""
        return len(self.shape) == 3

    @property
    def key(self) -> str:
        """Where an image is in an observation."""
        return self.name + "_" if self.name in RESERVED else self.name

    @property
    def dtype(self) -> type[np.generic]:
        """Of an image: uint8, unless it has fractions."""
        low, high = _bounds(self.space)
        return (
            np.uint8
            if (np.issubdtype(self.space.dtype or float, np.integer) and low >= 0 and high <= 255) or self.space.dtype == bool
            else np.float32
        )

    @property
    def scale(self) -> float:
        """What an image is multiplied by, for numbers up to 1."""
        _, high = _bounds(self.space)
        return 1.0 / high if self.dtype == np.uint8 and high > 1 else 1.0

    def find(self, observation: Any) -> Any:
        """This sensor's part of an observation of the environment."""
        for step in self.path:
            observation = observation[step]
        return observation

    def read(self, observation: Any) -> NDArray[Any]:
        """This sensor's part as it travels.

        Raises:
            ValueError: its shape is not what the space says.
        """
        seen = self.find(observation)
        if isinstance(self.space, spaces.Box | spaces.MultiBinary):
            seen = np.asarray(seen)
            if seen.shape != self.space.shape:
                raise ValueError(
                    shape_message(self.space.shape or (), seen.shape, "" if self.name == ONLY_SENSOR else f" for {self.name!r}")
                )
            if self.is_image:
                if seen.dtype.kind == "f" and self.dtype == np.uint8:
                    raise ValueError(f"expected an image of {self.space.dtype}, as observation_space says; got {seen.dtype}")
                return _channels_first(seen, self.channels_last)
            return seen.reshape(-1)
        return np.asarray(spaces.flatten(self.space, seen))


@dataclass(frozen=True)
class ObservationSpec:
    """The sensors of an environment, in the order of its space."""

    space: gym.Space[Any]
    sensors: tuple[Sensor, ...]
    frames: int = 1  # of each image that a policy sees, the newest last
    mask: Literal["", "obs", "info"] = ""  # where the environment says which actions are legal
    action_space: gym.Space[Any] | None = None  # whose choices a mask has flags for

    @cached_property
    def images(self) -> tuple[Sensor, ...]:
        """The sensors that are images, in the order of `sensors`."""
        return tuple(s for s in self.sensors if s.is_image)

    @cached_property
    def vectors(self) -> dict[str, slice]:
        """Where each vector sensor lies in `vector`."""
        found, at = {}, 0
        for sensor in self.sensors:
            if not sensor.is_image:
                found[sensor.name] = slice(at, at + sensor.shape[0])
                at += sensor.shape[0]
        return found

    @cached_property
    def vector_size(self) -> int:
        """Numbers of all vector sensors together."""
        return sum(s.shape[0] for s in self.sensors if not s.is_image)

    @cached_property
    def mask_size(self) -> int:
        """Flags of the action mask; 0 if there is none."""
        return count_choices(self.action_space) if self.mask and self.action_space is not None else 0

    @cached_property
    def columns(self) -> dict[str, tuple[type[np.generic], tuple[int, ...]]]:
        """Type and shape of every array of one observation, newest frames only."""
        found: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {}
        if self.vector_size:
            found[VECTOR] = (np.float32, (self.vector_size,))
        found |= {s.key: (s.dtype, s.shape) for s in self.images}
        if self.mask_size:
            found[ACTION_MASK] = (np.bool_, (self.mask_size,))
        return found

    @cached_property
    def _plain(self) -> bool:
        """One vector, which is the whole observation, already flat: the common case, which must not cost anything."""
        only = self.sensors[0]
        flat_box = isinstance(only.space, spaces.Box) and only.space.shape == only.shape
        return len(self.sensors) == 1 and not only.path and not self.mask_size and flat_box and not only.is_image

    def empty(self, count: int) -> Observation:
        """Arrays for so many observations: vectors are not numbers, images black, every action legal."""
        found: Observation = {}
        for key, (dtype, shape) in self.columns.items():
            fill, kind = (np.nan, np.float64) if key == VECTOR else (key == ACTION_MASK, dtype)
            found[key] = np.full((count, *shape), fill, kind)
        return found

    def write(self, into: Observation, row: int, observation: Any, info: Mapping[str, Any] | None = None) -> None:
        """Write an observation of the environment into this row.

        Raises:
            ValueError: it is not what the space says.
        """
        if self._plain:
            shape = np.shape(observation)
            if shape != self.sensors[0].shape:
                raise ValueError(shape_message(self.sensors[0].shape, shape))
            into[VECTOR][row] = observation
            return
        for sensor in self.sensors:
            target = into[sensor.key] if sensor.is_image else into[VECTOR][:, self.vectors[sensor.name]]
            target[row] = sensor.read(observation)
        if self.mask and self.action_space is not None:
            found = observation[ACTION_MASK] if self.mask == "obs" else (info or {}).get(ACTION_MASK)
            plain = isinstance(found, np.ndarray) and found.shape == (self.mask_size,)
            into[ACTION_MASK][row] = found if plain else flat_mask(found, self.action_space)

    def read(self, observation: Any, info: Mapping[str, Any] | None = None) -> Observation:
        """One observation of the environment, as a batch of one."""
        found = self.empty(1)
        self.write(found, 0, observation, info)
        return found


def describe_observations(
    space: gym.Space[Any],
    where: str,
    *,
    action_space: gym.Space[Any] | None = None,
    frames: int = 1,
    channels: Channels = "auto",
    ignore: Sequence[str] = (),
    mask_in_info: bool = False,
) -> ObservationSpec:
    """The sensors of a space, without those to `ignore`. The part named action_mask is a mask of the choices of the action space.

    Raises:
        EnvironmentFailure: there are no numbers, or a sensor is not made of numbers; names it.
        ConfigError: a sensor to be ignored does not exist.
    """
    leaves: dict[str, tuple[tuple[Any, ...], gym.Space[Any]]] = {}
    mask: Literal["", "obs", "info"] = "info" if mask_in_info else ""
    for path, part in _leaves(space, ()):
        name = SEPARATOR.join(map(str, path)) or ONLY_SENSOR
        if action_space is not None and path[:1] == (ACTION_MASK,):
            mask = "obs"
            continue
        if name in leaves:
            raise EnvironmentFailure(f"{where}: two sensors are called {name!r}. Rename one, or wrap the environment")
        leaves[name] = (path, part)
    if mask and not count_choices(action_space):
        raise EnvironmentFailure(f"{where}: a mask of legal actions needs discrete choices; the action space is {action_space}")
    for name in ignore:
        if name not in leaves:
            raise ConfigError(f"env.ignore_sensors: {where} has no sensor {name!r}; there are: {', '.join(leaves)}.{nearest(name, leaves)}")
    sensors = []
    for name, (path, part) in leaves.items():
        if name in ignore:
            continue
        if not isinstance(part, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise EnvironmentFailure(
                f"{where}: sensor {name!r} is {clean_text(str(part), 200)}, which no encoder can take. Expected numbers: Box, Discrete, "
                f"MultiDiscrete, MultiBinary, or a Dict or Tuple of them. Leave it out with env.ignore_sensors=[{name}], or wrap the environment"
            )
        sensors.append(_sensor(name, path, part, channels))
    if not sum(int(np.prod(s.shape)) for s in sensors):
        raise EnvironmentFailure(f"{where}: observation_space {space} has no numbers: expected at least one")
    return ObservationSpec(space, tuple(sensors), frames, mask, action_space)


def _sensor(name: str, path: tuple[Any, ...], space: gym.Space[Any], channels: Channels) -> Sensor:
    shape = space.shape or ()
    if isinstance(space, spaces.Box) and _is_image(space):
        last = _channels_are_last(shape) if channels == "auto" else channels == "last"
        return Sensor(name, path, space, np.shape(_channels_first(np.empty(shape, np.uint8), last)), last)
    return Sensor(name, path, space, (int(np.prod(spaces.flatten_space(space).shape or ())),))


def _is_image(space: spaces.Box) -> bool:
    """A grid with channels; or one without, of bytes; or several frames of such."""
    shape = space.shape
    if len(shape) == 2:
        return space.dtype == np.uint8 and min(shape) >= MIN_IMAGE_SIDE
    return len(shape) in (3, 4) and sorted(shape)[-2] >= MIN_IMAGE_SIDE


def _channels_are_last(shape: tuple[int, ...]) -> bool:
    """Channels are the shorter one of the outer axes; of several frames [frames, height, width(, channels)], the last."""
    if len(shape) == 4:
        return shape[-1] <= shape[1]
    return len(shape) == 3 and shape[-1] <= shape[0]


def _channels_first(image: NDArray[Any], channels_last: bool) -> NDArray[Any]:
    """[channels, height, width]; the frames of a stack are channels too."""
    if image.ndim == 2:
        return image[None]
    if image.ndim == 4:
        image = np.moveaxis(image, -1, 1) if channels_last else image
        return image.reshape(-1, *image.shape[2:])
    return np.moveaxis(image, -1, 0) if channels_last else image


def count_choices(space: gym.Space[Any] | None) -> int:
    """Flags of a mask: one for each discrete choice of an action space."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return sum(count_choices(part) for _, part in _parts(space))
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else 0


def flat_mask(mask: Any, space: gym.Space[Any]) -> NDArray[np.bool_]:
    """The flags of a mask for an action space, in its order; None allows everything, also for a part.

    Raises:
        ValueError: it has another number of flags.
    """
    size = count_choices(space)
    if mask is None or not size:
        return np.ones(size, np.bool_)
    if isinstance(space, spaces.Dict | spaces.Tuple) and isinstance(mask, Mapping | tuple | list):
        parts = [
            (mask.get(name) if isinstance(mask, Mapping) else mask[name] if name < len(mask) else None, part)
            for name, part in _parts(space)
        ]
        return np.concatenate([flat_mask(own, part) for own, part in parts])
    pieces = mask if isinstance(mask, tuple | list) else [mask]
    flags = np.concatenate([np.asarray(piece).reshape(-1) for piece in pieces]).astype(np.bool_)
    if flags.size != size:
        raise ValueError(f"expected an action mask of {size} flags, one for each choice of {space}; got {flags.size}")
    return flags


def _parts(space: Any) -> list[tuple[Any, gym.Space[Any]]]:
    return list(space.spaces.items()) if isinstance(space, spaces.Dict) else list(enumerate(space.spaces))


def shape_message(expected: tuple[int, ...], got: tuple[int, ...], sensor: str = "") -> str:
    """The error for an observation that its space forbids."""
    return (
        f"expected an observation of shape {expected}{sensor}, as observation_space says; got {got}. Make the two agree in the environment."
    )


def map_arrays(function: Callable[[Value], Value], observation: Mapping[str, Value]) -> dict[str, Value]:
    """The function on every array."""
    return {key: function(array) for key, array in observation.items()}


def take(observation: Observation, rows: Any) -> Observation:
    """These rows of every array."""
    return {key: array[rows] for key, array in observation.items()}


def stack_observations(observations: Sequence[Observation], axis: int = 0) -> Observation:
    """Observations one beside the other along a new axis."""
    return {key: np.stack([o[key] for o in observations], axis) for key in observations[0]}


def _leaves(space: gym.Space[Any], path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], gym.Space[Any]]]:
    """The parts of nested spaces, with where they are."""
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _leaves(part, (*path, name))
    elif isinstance(space, spaces.Tuple):
        for number, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, number))
    else:
        yield path, space


def _bounds(space: gym.Space[Any]) -> tuple[float, float]:
    return (float(np.min(space.low)), float(np.max(space.high))) if isinstance(space, spaces.Box) else (0.0, 1.0)


def no_action(space: gym.Space[Any]) -> NDArray[Any]:
    """What `previous_action` shows before the first action: zeros."""
    flat = spaces.flatten_space(space)
    return np.zeros(flat.shape or (), flat.dtype)


def flat_action(space: gym.Space[Any], action: Any) -> NDArray[Any]:
    """What `previous_action` shows of an action: choices as one-hot vectors, numbers as they are."""
    return np.asarray(spaces.flatten(space, action))


def with_previous_action_space(space: gym.Space[Any], action_space: gym.Space[Any]) -> spaces.Dict:
    """An observation space with the sensor `previous_action`."""
    shape = spaces.flatten_space(action_space).shape or ()
    own = space.spaces if isinstance(space, spaces.Dict) else {ONLY_SENSOR: space}
    return spaces.Dict({**own, PREVIOUS_ACTION: spaces.Box(-np.inf, np.inf, shape, np.float32)})


def with_previous_action(observation: Any, flat_action: NDArray[Any]) -> dict[str, Any]:
    """An observation of such a space."""
    own = observation if isinstance(observation, Mapping) else {ONLY_SENSOR: observation}
    return {**own, PREVIOUS_ACTION: flat_action}


def vector_spec(size: int) -> ObservationSpec:
    """Observations that are plain vectors, for learners and networks without an environment."""
    return describe_observations(spaces.Box(-np.inf, np.inf, (size,), np.float32), f"a vector of {size}")
