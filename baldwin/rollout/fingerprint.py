"""What a result depends on besides its job. A worker that computes differently must be noticed, not averaged in."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from baldwin.envs import EnvConfig, EnvSpec, make_vector_env
from baldwin.errors import EnvironmentFailure
from baldwin.networks import Network, ObservationBuffer, as_numpy
from baldwin.networks.network import initial_state
from baldwin.observations import VECTOR, ObservationSpec
from baldwin.ops.threads import one_numpy_thread, one_thread
from baldwin.types import Fingerprint

PACKAGES = ("baldwin-rl", "torch", "numpy", "gymnasium", "envpool", "mujoco", "ale-py", "Box2D")
"""Whose versions decide what an episode returns."""


def digest(*arrays: NDArray[Any]) -> str:
    """A short hash of the arrays' bytes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()[:16]


@cache
def versions(packages: tuple[str, ...] = PACKAGES) -> Fingerprint:
    """Versions of those of the packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def arithmetic_fingerprint(network: Network, spec: ObservationSpec) -> Fingerprint:
    """Versions, and a hash of what this processor makes of a small forward pass and of some functions: not all round alike."""
    with torch.inference_mode(), one_thread(), one_numpy_thread():
        rows = torch.from_numpy(np.stack([network.init(0), network.init(1)]))
        sizes = {key: array.shape for key, array in ObservationBuffer(spec, 2).arrays.items()}
        seen = {key: torch.linspace(-2, 2, math.prod(shape)).reshape(2, 1, *shape[1:]) for key, shape in sizes.items()}
        out = network.bind(rows)(seen, initial_state(network, 2, 1))[0].numpy()
        small = as_numpy(network, network.init(0)[None])
        acting = small.forward(seen[VECTOR][:, 0].numpy())[0] if small else out
    x = np.linspace(-3, 3, 97)
    return versions() | {"arithmetic": digest(out, acting, np.sin(x), np.exp(x), np.tanh(x), np.array([math.sin(v) for v in x.tolist()]))}


def env_fingerprint(config: EnvConfig, env_spec: EnvSpec) -> str:
    """A hash of the first observation under a fixed seed, or that it varies.

    Raises:
        EnvironmentFailure: the environment cannot be made or begun here.
    """
    env = make_vector_env(config, env_spec, 2)
    try:
        env.open(np.zeros(2, np.int64), 0)
        seen = env.reset(np.arange(2, dtype=np.int32))
        if env.failures:
            raise EnvironmentFailure(next(iter(env.failures.values())))
        same = all(np.array_equal(array[0], array[1]) for array in seen.values())
        return digest(*(seen[key][0] for key in sorted(seen))) if same else "varies"
    finally:
        env.close()
