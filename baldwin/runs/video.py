"""A film of the greedy policy, on a machine without a screen."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.config import RunConfig
from baldwin.envs import close_quietly, list_players, make_render_env, total_reward
from baldwin.errors import EnvironmentFailure, UserError, describe_exception, missing_extra
from baldwin.executors.config import DeadlinePassed, deadline
from baldwin.networks import GreedyPolicy
from baldwin.observations import ACTION_MASK
from baldwin.ops import seeds
from baldwin.runs.build import probe_env
from baldwin.runs.directory import RunDirectory
from baldwin.runs.groups import group_at_play
from baldwin.runs.history import greedy_policy, policy_arrays, trusted_config
from baldwin.runs.members import front_ends, member_config, member_policy, population_state

MAX_FPS = {".mp4": 50, ".gif": 25}  # what players show smoothly; a gif of more is only larger


def render_run(
    path: Path,
    video: Path | None,
    episodes: int = 1,
    generation: int | None = None,
    seed: int = 0,
    trust: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    member: str | None = None,
) -> tuple[Path, list[float]]:
    """Film episodes of the policy; returns the file and the episodes' returns. `progress` is told what is being done.

    `member` of a population: best, a number, or the name of a group of players.

    Raises:
        UserError: an unknown format, or an environment that cannot draw.
    """
    directory = RunDirectory.find(path)
    config = member_config(directory, trusted_config(directory, trust), member, generation)
    config, others = group_at_play(directory, config, member)
    names = [player.name for player in list_players(config.env)] if config.env.players == "all" else config.env.players
    drawing = {"backend": "gymnasium", "kwargs": config.env.one_player, "players": [], "self_play": False}  # only that backend can draw
    config = config.model_copy(update={"env": config.env.model_copy(update=drawing)})
    arrays, generation = member_policy(directory, member) if member else policy_arrays(directory, generation, trust)
    video = video or directory.path / f"generation-{generation:06d}{f'-member-{member}' if member else ''}.mp4"
    max_fps = MAX_FPS.get(video.suffix.lower())
    if max_fps is None:
        raise UserError(f"--video takes a file that ends in {' or '.join(MAX_FPS)}; got {str(video)!r}")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
    try:
        with deadline(config.executor.timeout, "filming"):
            policy = greedy_policy(config, arrays)
            cast = {name: greedy_policy(config, arrays) for name in names[1:]}
            cast |= {name: GreedyPolicy(o.policy, o.env_spec.obs, o.env_spec.action_space, o.arrays) for o in others for name in o.names}
            frames, returns, fps = _film(config, policy, cast, episodes, seed, max_fps, progress)
    except DeadlinePassed as error:
        raise EnvironmentFailure(f"{error}. Film fewer --episodes") from error
    progress(f"writing {len(frames)} frames")
    write_video(video, frames, fps)
    return video, returns


def render_front(
    path: Path,
    video: Path | None,
    episodes: int = 1,
    seed: int = 0,
    trust: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> list[tuple[int, list[str], Path, list[float]]]:
    """Film the members at the ends of a population's front; of each its number, the objectives that it is best at, the file, and the returns.

    The objectives are added to the name of the file.
    """
    found = []
    _, generation = population_state(RunDirectory.find(path))
    base = video or path / f"generation-{generation:06d}-front.mp4"
    for number, objectives in front_ends(path).items():
        name = re.sub(r"[^\w.]+", "-", "-".join([base.stem, *objectives]))
        target, returns = render_run(path, base.with_name(name + base.suffix), episodes, None, seed, trust, progress, str(number))
        found.append((number, objectives, target, returns))
    return found


def _film(
    config: RunConfig,
    policy: GreedyPolicy,
    cast: Mapping[str, GreedyPolicy],
    episodes: int,
    seed: int,
    max_fps: int,
    progress: Callable[[str], None],
) -> tuple[list[Any], list[float], float]:
    """Frames, returns, and frames per second: one frame every few steps where the environment is faster than `max_fps`.

    `cast`: who plays other players of a match, by name.
    """
    env_spec = probe_env(config)
    limit = env_spec.max_episode_steps
    env = make_render_env(config.env.for_evaluation(), {name: _as_function(other) for name, other in cast.items()})
    steps_per_second = int(env.metadata.get("render_fps", 30))
    every = -(-steps_per_second // max_fps)
    frames: list[Any] = []
    returns: list[float] = []
    try:
        for start in seeds.seeds(episodes, seed, seeds.Stream.EVALUATE, 2).tolist():
            obs, info = env.reset(seed=start)
            for each in (policy, *cast.values()):
                each.reset()
            total, steps, over = 0.0, 0, False
            frames.append(_picture(env))
            while not over:
                obs, reward, terminated, truncated, info = env.step(policy.act(obs, info))
                total, steps = total + total_reward(config.env, env_spec.rewards, reward, info), steps + 1
                if steps % every == 0:
                    frames.append(_picture(env))
                progress(f"episode {len(returns) + 1} of {episodes}, step {steps}")
                over = terminated or truncated or (limit is not None and steps >= limit)
            returns.append(total)
    finally:
        close_quietly(env)
    return frames, returns, steps_per_second / every


def _as_function(policy: GreedyPolicy) -> Callable[[Any, NDArray[np.bool_] | None], Any]:
    return lambda obs, legal: policy.act(obs, {} if legal is None else {ACTION_MASK: legal})


def _picture(env: Any) -> NDArray[np.uint8]:
    try:
        picture = env.render()
    except Exception as error:
        if "pygame" in str(error):
            raise missing_extra("classic", "drawing this environment") from error
        raise EnvironmentFailure(
            f"the environment cannot draw: {describe_exception(error)}. Expected render_mode='rgb_array' to work."
        ) from error
    if picture is None:
        raise EnvironmentFailure(
            "the environment cannot draw: render() returned None. Expected an RGB array under render_mode='rgb_array'."
        )
    return np.asarray(picture, np.uint8)


def write_video(path: Path, frames: list[Any], fps: float) -> None:
    """mp4 by ffmpeg, gif by Pillow.

    Raises:
        MissingExtra: the libraries are not installed.
        UserError: the file cannot be written.
    """
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401 - mp4 needs it
    except ModuleNotFoundError as error:
        raise missing_extra("video", "writing a video") from error
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".gif":
            _write_gif(path, frames, fps)
        else:
            imageio.mimsave(path, frames, fps=fps, macro_block_size=2)
    except OSError as error:
        raise UserError(f"cannot write the video {path}: {error.strerror or error}") from error


def _write_gif(path: Path, frames: list[Any], fps: float) -> None:
    """All frames in one palette, taken from a few of them: to find one for each frame would take most of the time."""
    from PIL import Image

    sample = np.concatenate(frames[:: max(1, len(frames) // 8)])
    palette = Image.fromarray(sample).quantize(128, method=Image.Quantize.FASTOCTREE)
    pictures = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=1000 / fps, loop=0, optimize=False)
