"""The universal backend: any Gymnasium environment, one object per copy, all in this process."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from baldwin.envs import dmc, live, pybullet, unity
from baldwin.envs.asynchronous import Player, World, check_alike, find_players
from baldwin.envs.atari import ATARI_PREFIX, AtariGame, ale_id, ale_kwargs, register_games
from baldwin.envs.match_env import ANY, MatchEnv
from baldwin.envs.opponent_envs import OpponentEnvs
from baldwin.envs.pettingzoo import PREFIX, make_world
from baldwin.envs.previous_action import PreviousAction
from baldwin.envs.sampling import random_action
from baldwin.envs.self_play import SelfPlayEnvs
from baldwin.envs.vector_env import BACKENDS, Backend, EnvConfig, EnvSpec, Ids, OtherPlayers, StepResult, VectorEnv
from baldwin.errors import EnvironmentFailure, UserError, clean_text, describe_exception, missing_extra, nearest
from baldwin.imports import find_class, import_module
from baldwin.observations import ACTION_MASK, Observation, ObservationSpec, describe_observations
from baldwin.ops.seeds import mix

log = logging.getLogger("baldwin")
OLD_API = (
    "That is the interface of Gym before 0.26: wrap the environment in shimmy.GymV21CompatibilityV0(env=...) (pip install 'shimmy[gym-v21]'), "
    "or return Gymnasium's values"
)
EXTRA_OF_ID = {"mo_gymnasium": "mo"}  # of the module that an id begins with
REWARD, ELAPSED, RESULT = "reward", "elapsed", "result"  # keys of info: reward components by name; frames of a step; after the end
EXTRA_OF_MODULE = {"mujoco": "mujoco", "pygame": "classic", "ale_py": "atari", "Box2D": "box2d", "pybullet": "pybullet"}


def maker(config: EnvConfig) -> tuple[Callable[..., gym.Env[Any, Any]], int | None]:
    """How to make one environment without wrappers that only cost time, and its own time limit.

    Raises:
        EnvironmentFailure: nothing of that name can be found.
    """
    module_name, _, name = config.id.rpartition(":")
    if new_world := find_world(config):
        drawing = config.id.startswith(PREFIX)  # PettingZoo's games draw where they were made to

        def make_one(**kw: Any) -> gym.Env[Any, Any]:
            mode = {"render_mode": kw["render_mode"]} if drawing and "render_mode" in kw else {}
            given = {**config.one_player, **kw}
            own = {name: given.pop(name) for name in ("player", "opponents", "render_mode") if name in given}
            return MatchEnv(new_world(**mode, **given), deadline=config.match_deadline, **own)

        return make_one, config.max_episode_steps
    if config.is_changed("match_deadline"):
        raise EnvironmentFailure(f"env.match_deadline is for worlds of several players, and {config.id} has one. Leave it out")
    if config.id.startswith(dmc.PREFIX):
        dmc.check_name(name)
        return lambda **kw: dmc.DMControlEnv(name, **{**config.kwargs, **kw}), config.max_episode_steps
    if config.id.startswith(pybullet.PREFIX):
        pybullet.check_name(name)
    elif module_name:
        where = f"env.id {config.id!r}"
        module = import_module(module_name, where, EnvironmentFailure)
        if name not in gym.registry:
            env_class: Callable[..., gym.Env[Any, Any]] = find_class(module, name, gym.Env, where, EnvironmentFailure)
            return lambda **kw: env_class(**{**config.kwargs, **kw}), config.max_episode_steps
    if config.atari or name.startswith(ATARI_PREFIX):
        register_games()
        name = ale_id(name)
    try:
        spec = copy.deepcopy(gym.spec(name))
    except gym.error.Error as error:
        raise EnvironmentFailure(
            f"no environment {clean_text(name, 100)!r} is registered with Gymnasium.{nearest(name, gym.registry)} (baldwin list envs)"
        ) from error
    limit = config.max_episode_steps or spec.max_episode_steps
    spec.order_enforce = False
    game = ale_kwargs(config.atari) if config.atari else {}

    def make(**kwargs: Any) -> gym.Env[Any, Any]:
        env = gym.make(spec, max_episode_steps=-1, disable_env_checker=True, **{**game, **config.kwargs, **kwargs})
        return AtariGame(env, config.atari) if config.atari else env

    if config.id.startswith(pybullet.PREFIX):
        return lambda **kw: pybullet.ExactResets(partial(make, **kw), anew=name in pybullet.LEFTOVERS), limit
    return make, limit


def find_world(config: EnvConfig) -> Callable[..., World] | None:
    """How to make the world that an id names: a game of PettingZoo, a Unity scene, or a class of one's own; None if it names none."""
    module_name, _, name = config.id.rpartition(":")
    if config.id.startswith(live.PREFIX):
        return partial(live.LiveWorld, config.id.removeprefix(live.PREFIX))
    if config.id.startswith(unity.PREFIX):
        return partial(unity.UnityWorld, config.id.removeprefix(unity.PREFIX))
    if config.id.startswith(PREFIX):
        return partial(make_world, name)
    if not module_name or config.id.startswith((dmc.PREFIX, pybullet.PREFIX)):
        return None
    if module_name in EXTRA_OF_ID and find_spec(module_name) is None:
        raise missing_extra(EXTRA_OF_ID[module_name], f"environment {config.id!r}")
    found = getattr(import_module(module_name, f"env.id {config.id!r}", EnvironmentFailure), name, None)
    return found if isinstance(found, type) and issubclass(found, World) else None


def make_self_play(config: EnvConfig, env_spec: EnvSpec, width: int, others: Sequence[OtherPlayers] = ()) -> SelfPlayEnvs:
    """Every player of a world that the policy plays as a copy."""
    new_world = find_world(config)
    if new_world is None:
        raise EnvironmentFailure(f"env.self_play: environment {config.id!r} is no world of several players")
    weights = reward_weights(config, env_spec)
    return SelfPlayEnvs(partial(new_world, **config.kwargs), config.players, env_spec, width, weights, others, config.match_deadline)


def list_players(config: EnvConfig) -> list[Player]:
    """The players of a world, in its order; none if the id names something else.

    Raises:
        EnvironmentFailure: the world cannot be made.
    """
    first = config.model_copy(update={"players": []})
    new_world = find_world(first)
    if new_world is None:
        env = make_env(first)
        found = list(env.unwrapped.world.players) if isinstance(env.unwrapped, MatchEnv) else []
        close_quietly(env)
        return found
    try:
        world = new_world(**config.kwargs)
        found = list(world.players)
        world.close()
    except EnvironmentFailure:
        raise
    except Exception as error:
        raise EnvironmentFailure(f"environment {config.id!r} could not be made: {describe_exception(error)}. Check env.kwargs.") from error
    return found


def make_with_opponents(config: EnvConfig, env_spec: EnvSpec, width: int) -> OpponentEnvs:
    """One player of each match as a copy, the others from a pool."""
    new_world = find_world(config)
    if new_world is None:
        raise EnvironmentFailure(f"opponents: environment {config.id!r} is no world of several players")
    kwargs = dict(config.kwargs)
    player = kwargs.pop("player", ANY)
    return OpponentEnvs(partial(new_world, **kwargs), player, env_spec, width, reward_weights(config, env_spec), config.match_deadline)


def make_copies(config: EnvConfig, env_spec: EnvSpec, width: int) -> VectorEnv:
    """One environment object per copy, stepped one after the other. Live worlds do not wait for that: their copies are stepped together."""
    return make_with_opponents(config, env_spec, width) if env_spec.live else GymnasiumVectorEnv(config, env_spec, width)


def reward_weights(config: EnvConfig, env_spec: EnvSpec) -> NDArray[np.float32]:
    """Values of the components of the reward, in the order of their names."""
    return np.array([config.reward_weights.get(name, 1.0) for name in env_spec.rewards], np.float32)


def make_env(config: EnvConfig, **kwargs: Any) -> gym.Env[Any, Any]:
    """One environment.

    Raises:
        MissingExtra: its simulator is not installed.
        EnvironmentFailure: it cannot be made.
    """
    make, _ = maker(config)
    try:
        env = make(**kwargs)
        return PreviousAction(env) if config.previous_action else env
    except UserError:
        raise
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        text = f"{error} {error.__cause__}"
        for module, extra in EXTRA_OF_MODULE.items():
            if module.lower() in text.lower():
                raise missing_extra(extra, f"environment {config.id!r}") from error
        reason = describe_exception(error)
        raise EnvironmentFailure(f"environment {config.id!r} needs a package that is not installed: {reason}") from error
    except Exception as error:
        reason = describe_exception(error)
        raise EnvironmentFailure(f"environment {config.id!r} could not be made: {reason}. Check env.kwargs.") from error


def describe(config: EnvConfig) -> EnvSpec:
    """The spaces and the time limit of an environment.

    Raises:
        EnvironmentFailure: it cannot be made, lacks a space, or has one that no policy can take.
    """
    _, limit = maker(config)
    env = make_env(config)
    try:
        obs_space, action_space = (_space(env, name, config) for name in ("observation_space", "action_space"))
        if isinstance(env.unwrapped, dmc.DMControlEnv):
            limit = limit or env.unwrapped.max_episode_steps
        if config.previous_action and isinstance(env.unwrapped, MatchEnv):
            raise EnvironmentFailure(f"env.previous_action is for environments of one player; {config.id!r} is a world of several")
        obs_spec = describe_space(obs_space, action_space, config, _gives_masks(env))
        rewards, has_elapsed = _try_step(env, EnvSpec(obs_spec, action_space, limit, "gymnasium"))
        players, policy_players = len(env.world.players) if isinstance(env, MatchEnv) and find_world(config) else 1, 1
        if config.self_play and isinstance(env, MatchEnv):
            check_alike(env.world.players, "env.self_play")
        if config.players and isinstance(env, MatchEnv):
            played = env.world.players if config.players == "all" else find_players(env.world, config.players)
            check_alike(played, "env.players", "Leave one of them out; population.name=groups trains one policy for each group of players")
            policy_players = len(played)
        world = env.world if isinstance(env, MatchEnv) else None
        alike = world is None or len({(str(p.observation_space), str(p.action_space), p.rewards) for p in world.players}) == 1
        is_live = world is not None and world.live
        return EnvSpec(obs_spec, action_space, limit, "gymnasium", rewards, has_elapsed, players, alike, policy_players, is_live)
    finally:
        close_quietly(env)


def describe_space(space: gym.Space[Any], action_space: gym.Space[Any], config: EnvConfig, mask_in_info: bool = False) -> ObservationSpec:
    """The sensors of an observation space, as the config wants them seen."""
    return describe_observations(
        space,
        f"environment {config.id!r}",
        action_space=action_space,
        frames=config.frames,
        channels=config.channels,
        ignore=config.ignore_sensors,
        mask_in_info=mask_in_info,
    )


def _try_step(env: gym.Env[Any, Any], env_spec: EnvSpec) -> tuple[tuple[str, ...], bool]:
    """Names of reward components, and whether steps say how long they took. What goes wrong here goes wrong again where it is reported."""
    try:
        env_spec.action_space.seed(0)
        seen, info = check_reset(env.reset(seed=0))
        obs = env_spec.obs.read(seen, info)
        _, reward, _, _, info = check_step(env.step(random_action(env_spec, obs)[0]))
        found = info.get(REWARD) if isinstance(info, Mapping) else None
        if isinstance(found, Mapping):
            return tuple(map(str, found)), ELAPSED in info
        count = np.size(reward) if np.ndim(reward) else 0
        return tuple(f"reward_{n}" for n in range(count)), ELAPSED in (info or {})
    except (Exception, SystemExit):
        return (), False


def _gives_masks(env: gym.Env[Any, Any]) -> bool:
    """Whether the first info has an action mask. What goes wrong here goes wrong again where it is reported."""
    try:
        _, info = check_reset(env.reset(seed=0))
    except (Exception, SystemExit):
        return False
    return ACTION_MASK in (info or {})


def _space(env: gym.Env[Any, Any], name: str, config: EnvConfig) -> gym.Space[Any]:
    space = getattr(env, name, None)
    if not isinstance(space, gym.Space):
        raise EnvironmentFailure(
            f"environment {config.id!r} has no {name}: expected a gymnasium.Space, set in __init__; got {type(space).__name__}"
        )
    return space


def close_quietly(env: gym.Env[Any, Any]) -> None:
    """Close an environment; one that cannot be closed is reported and left: everything that was asked of it is done."""
    try:
        env.close()
    except Exception as error:
        log.warning("an environment failed in close(): %s", describe_exception(error))


def check_reset(result: Any) -> tuple[Any, Any]:
    """The observation and the info that reset() returned.

    Raises:
        ValueError: the result is not Gymnasium's (obs, info).
    """
    if isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[1], dict | None):
        return result[0], result[1]
    raise ValueError(f"expected reset() to return (obs, info); got {_kind(result)}. {OLD_API}")


def check_step(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """What step() returned.

    Raises:
        ValueError: the result is not Gymnasium's (obs, reward, terminated, truncated, info).
    """
    if isinstance(result, tuple | list) and len(result) == 5:
        return tuple(result)
    raise ValueError(f"expected step() to return (obs, reward, terminated, truncated, info); got {_kind(result)}. {OLD_API}")


def _kind(result: Any) -> str:
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__


def reward_components(names: tuple[str, ...], reward: Any, info: Any) -> NDArray[np.float32]:
    """The components of a reward in the order of their names: from info["reward"], or the reward itself is the vector.

    Raises:
        ValueError: these are others than at the first step.
    """
    named = info.get(REWARD) if isinstance(info, Mapping) else None
    if isinstance(named, Mapping):
        if set(map(str, named)) != set(names):
            raise ValueError(
                f"expected the reward components {', '.join(names)} in info['reward'] at every step; got {', '.join(map(str, named))}"
            )
        return np.array([named[name] for name in names], np.float32)
    if np.shape(reward) != (len(names),):
        raise ValueError(
            f"expected a reward of {len(names)} components ({', '.join(names)}) at every step; got {clean_text(str(reward), 100)}"
        )
    return np.asarray(reward, np.float32)


def total_reward(config: EnvConfig, names: tuple[str, ...], reward: Any, info: Any) -> float:
    """The reward as scores count it: a number, or the weighted sum of its components."""
    if not names:
        return float(reward)
    weights = np.array([config.reward_weights.get(name, 1.0) for name in names], np.float32)
    return float(reward_components(names, reward, info) @ weights)


class GymnasiumVectorEnv:
    """One environment object per copy, made when first used; every episode has a seed of its own."""

    def __init__(self, config: EnvConfig, env_spec: EnvSpec, width: int) -> None:
        self.width = width
        self.failures: dict[int, str] = {}
        self._config, self._env_spec = config, env_spec
        self._envs: list[gym.Env[Any, Any] | None] = [None] * width
        self._weights = reward_weights(config, env_spec)
        self._seeds = np.zeros(width, np.int64)
        self._episode = np.zeros(width, np.int64)
        self._results: dict[int, Mapping[str, Any]] = {}

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        self._seeds[:] = seeds
        self._episode[:] = first_episode
        self.failures.clear()

    def reset(self, ids: Ids) -> Observation:
        obs = self._env_spec.obs.empty(len(ids))
        for row, index in enumerate(ids.tolist()):
            seed = mix(int(self._seeds[index]), int(self._episode[index]))
            self._episode[index] += 1
            self._results.pop(index, None)
            try:
                self._env_spec.obs.write(obs, row, *check_reset(self._env(index).reset(seed=seed)))
            except (Exception, SystemExit) as error:
                self._discard(index, "reset", error)
        return obs

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        k = len(ids)
        obs, write = self._env_spec.obs.empty(k), self._env_spec.obs.write
        reward, terminated, truncated = np.zeros(k), np.zeros(k, np.bool_), np.zeros(k, np.bool_)
        components, elapsed = self._extras(k)
        envs = self._envs
        for row, index in enumerate(ids.tolist()):
            try:
                seen, earned, terminated[row], truncated[row], info = check_step(envs[index].step(actions[row]))
                if components is None:
                    reward[row] = earned
                else:
                    components[row] = reward_components(self._env_spec.rewards, earned, info)
                    reward[row] = components[row] @ self._weights
                if elapsed is not None:
                    elapsed[row] = info.get(ELAPSED, 1)
                write(obs, row, seen, info)
                if terminated[row] or truncated[row]:
                    told = info.get(RESULT)
                    self._results[index] = told if isinstance(told, Mapping) else {}  # others may use the same word
            except (Exception, SystemExit) as error:
                terminated[row] = True
                self._discard(index, "step", error)
        return StepResult(obs, reward, terminated, truncated, components, elapsed)

    def result(self, index: int) -> Mapping[str, Any]:
        return self._results.get(index, {})

    def _extras(self, k: int) -> tuple[NDArray[np.float32] | None, NDArray[np.int32] | None]:
        """Room for what only some environments give: reward components, and frames of a step."""
        count = len(self._env_spec.rewards)
        return np.zeros((k, count), np.float32) if count else None, np.ones(k, np.int32) if self._env_spec.has_elapsed else None

    def close(self) -> None:
        for env in self._envs:
            if env is not None:
                close_quietly(env)
        self._envs = [None] * self.width

    def _env(self, index: int) -> gym.Env[Any, Any]:
        env = self._envs[index]
        if env is None:
            env = self._envs[index] = make_env(self._config)
        return env

    def _discard(self, index: int, verb: str, error: BaseException) -> None:
        """Drop an environment that failed; its next episode gets a new one."""
        self.failures.setdefault(index, f"environment {self._config.id!r} failed in {verb}(): {describe_exception(error)}")
        self._envs[index] = None


def prefixed_ids() -> list[str]:
    """Ids of packages that are reached by a prefix, where they are installed."""
    return [dmc.PREFIX + name for name in dmc.task_names()] + [pybullet.PREFIX + name for name in pybullet.env_names()]


BACKENDS.add(
    "gymnasium",
    Backend(
        describe,
        make_copies,
        priority=0,
        serves=lambda config: True,
        list_ids=prefixed_ids,
        make_with_opponents=make_with_opponents,
        make_self_play=make_self_play,
    ),
)
