"""PettingZoo's games as worlds, and worlds as PettingZoo's turn-based and parallel environments."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.wrappers.utils import create_zero_array

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, Step, World, find_players
from baldwin.envs.matches import Matches, Turn
from baldwin.errors import EnvironmentFailure, clean_text, describe_exception, missing_extra
from baldwin.ops import seeds

PREFIX = "pettingzoo:"


def make_world(name: str, **kwargs: Any) -> World:
    """A world for a module such as mpe2.simple_tag_v3 or classic.connect_four_v3: its parallel environment, or else its turn-based one.

    Raises:
        MissingExtra: PettingZoo or the game's package is not installed.
        EnvironmentFailure: there is no such game, or it cannot be made.
    """
    try:
        module = _find_module(name)
    except ModuleNotFoundError as error:
        if error.name == "pettingzoo":
            raise missing_extra("pettingzoo", f"environment '{PREFIX}{name}'") from error
        raise EnvironmentFailure(
            f"there is no game {PREFIX}{name}: {error}. Expected a module of PettingZoo, such as {PREFIX}classic.connect_four_v3, "
            f"or of a package beside it, such as {PREFIX}mpe2.simple_tag_v3"
        ) from error
    try:
        return ParallelWorld(module.parallel_env(**kwargs)) if hasattr(module, "parallel_env") else TurnWorld(module.env(**kwargs))
    except Exception as error:
        raise EnvironmentFailure(f"{PREFIX}{name} could not be made: {describe_exception(error)}. Check env.kwargs.") from error


def _find_module(name: str) -> Any:
    import pettingzoo  # noqa: F401 - so that a missing one is told apart from a missing game

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the way to make games that every version has
        try:
            return importlib.import_module(f"pettingzoo.{name}")
        except ModuleNotFoundError:
            return importlib.import_module(name)


class _PettingZooWorld(World):
    """What both kinds share: players by name, and random legal actions for those that nobody plays."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.players = [_player(env, name) for name in env.possible_agents]

    def close(self) -> None:
        """Close the game and its window."""
        self.env.close()

    def render(self) -> Any:
        """A picture, if the game was made with a render_mode."""
        return self.env.render()

    def _random(self, seed: int, name: str) -> np.random.Generator:
        return seeds.generator(seed, seeds.Stream.MATCH, [p.name for p in self.players].index(name))


def _player(env: Any, name: str) -> Player:
    space = env.observation_space(name)
    inner = getattr(space, "spaces", {}).get("observation") if "action_mask" in getattr(space, "spaces", {}) else None
    return Player(name, space if inner is None else inner, env.action_space(name))


def _seen(observation: Any) -> tuple[Any, Any]:
    """Observation and mask, which PettingZoo's classic games put into one dict."""
    if isinstance(observation, dict) and "action_mask" in observation:
        return observation["observation"], np.asarray(observation["action_mask"]).astype(np.bool_)
    return observation, None


def random_legal(player: Player, legal: Any, rng: np.random.Generator) -> Any:
    """A legal action at random."""
    player.action_space.seed(int(rng.integers(2**31)))
    return player.action_space.sample() if legal is None else int(rng.choice(np.flatnonzero(legal)))


class ParallelWorld(_PettingZooWorld):
    """A parallel environment: everybody who is still there acts in every step."""

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        """Begin a game; those of its players that nobody asked for take random legal actions."""
        asked = [p.name for p in find_players(self, players)]
        observations, infos = self.env.reset(seed=seed)
        seats = {name: Seat(name) for name in asked}
        return SimpleMatch(list(seats.values()), [self._tick(seats, seed, observations, infos)])

    async def _tick(self, seats: dict[str, Seat], seed: int, observations: Any, infos: Any) -> None:
        known = {player.name: player for player in self.players}
        rngs = {name: self._random(seed, name) for name in known if name not in seats}
        totals = dict.fromkeys(seats, 0.0)
        for name, seat in seats.items():
            seat.show(*_seen_in(observations, infos, name))
        while self.env.agents:
            actions = {}
            for name in self.env.agents:
                if name in seats:
                    actions[name] = await seats[name].action()
                else:
                    actions[name] = random_legal(known[name], _seen_in(observations, infos, name)[1], rngs[name])
            observations, rewards, terminations, truncations, infos = self.env.step(actions)
            for name in actions:
                if name not in seats:
                    continue
                terminated, truncated = bool(terminations[name]), bool(truncations[name])
                totals[name] += float(rewards[name])
                seats[name].add(rewards[name])
                if terminated or truncated:
                    seats[name].finish(score=totals[name])
                info = infos.get(name, {})
                seats[name].show(*_seen_in(observations, infos, name), terminated=terminated, truncated=truncated, info=info)


def _seen_in(observations: Any, infos: Any, name: str) -> tuple[Any, Any]:
    observation, mask = _seen(observations[name])
    told = infos.get(name, {}).get("action_mask") if mask is None else mask
    return observation, None if told is None else np.asarray(told).astype(np.bool_)


def without_checks(env: Any) -> Any:
    """The game inside of wrappers that only check how it is called, each of which takes as long as a move of a simple game."""
    from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper

    while type(env) in (AssertOutOfBoundsWrapper, OrderEnforcingWrapper):
        env = env.env
    return env


class TurnWorld(_PettingZooWorld):
    """A turn-based environment (AEC). A step of a player lasts from its turn to the next; `elapsed` counts the turns of all."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._game = without_checks(env)

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        """Begin a game; those of its players that nobody asked for take random legal actions."""
        asked = [p.name for p in find_players(self, players)]
        self.env.reset(seed=seed)
        seats = {name: Seat(name) for name in asked}
        return SimpleMatch(list(seats.values()), [self._tick(seats, seed)])

    async def _tick(self, seats: dict[str, Seat], seed: int) -> None:
        known = {player.name: player for player in self.players}
        rngs = {name: self._random(seed, name) for name in known if name not in seats}
        totals = dict.fromkeys(seats, 0.0)
        for name in self._game.agent_iter():
            observation, reward, terminated, truncated, info = self._game.last()
            seen, legal = _seen(observation)
            legal = np.asarray(info["action_mask"]).astype(np.bool_) if legal is None and "action_mask" in info else legal
            over = bool(terminated or truncated)
            if name in seats:
                totals[name] += float(reward)
                seats[name].add(reward, 0)
                if over:
                    seats[name].finish(score=totals[name])
                seats[name].show(seen, legal, terminated=bool(terminated), truncated=bool(truncated and not terminated), info=info)
            if over:
                self._game.step(None)
                continue
            action = await seats[name].action() if name in seats else random_legal(known[name], legal, rngs[name])
            if not known[name].action_space.contains(action):
                raise EnvironmentFailure(f"expected an action of {name} in {known[name].action_space}; got {clean_text(str(action), 80)}")
            self._game.step(action)
            for seat in seats.values():
                seat.add(0.0)


def _observation(matches: Matches, player: Player) -> Any:
    """What a player sees; zeros before its first turn."""
    seen = matches.controller(Turn(0, player.name)).observation
    return create_zero_array(player.observation_space) if seen is None else seen


def _info(matches: Matches, turn: Turn, step: Step) -> dict[str, Any]:
    """The step's info, the frames that it took, and the mask, where there is one."""
    legal = matches.controller(turn).legal
    mask = {} if legal is None else {"action_mask": legal.astype(np.int8)}
    return dict(step.info) | mask | {"elapsed": step.elapsed}


def _metadata(world: World) -> dict[str, Any]:
    return {"render_modes": ["rgb_array"], "name": type(world).__name__}


class _WorldOfPlayers:
    """What both of PettingZoo's interfaces ask of a world: its players, their spaces, a picture, an end."""

    def __init__(self, world: World, render_mode: str | None) -> None:
        super().__init__()
        self._world, self.render_mode = world, render_mode
        self.possible_agents = [player.name for player in world.players]
        self.agents: list[str] = []
        self._players = {player.name: player for player in world.players}
        self._matches = Matches()
        self._seed = 0

    def observation_space(self, agent: str) -> Any:
        return self._players[agent].observation_space

    def action_space(self, agent: str) -> Any:
        return self._players[agent].action_space

    def render(self) -> Any:
        return self._world.render() if self.render_mode else None

    def close(self) -> None:
        self._matches.close()
        self._world.close()


def as_parallel(world: World, render_mode: str | None = None) -> Any:
    """A world as PettingZoo's parallel environment: in every step whoever has to decide does so.

    Of a player that has to wait the action counts for nothing: it sees what it saw last, its reward is 0, and `info["decides"]` is false
    where its next action will count for nothing, too.

    Raises:
        MissingExtra: PettingZoo is not installed.
    """
    try:
        from pettingzoo import ParallelEnv
    except ModuleNotFoundError as error:
        raise missing_extra("pettingzoo", "a world as a PettingZoo environment") from error

    class WorldParallel(_WorldOfPlayers, ParallelEnv):  # type: ignore[misc]
        metadata = _metadata(world)

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
            self._seed = self._seed + 1 if seed is None else seed
            self.agents = list(self.possible_agents)
            self._matches.begin(0, world, self._seed, self.agents)
            steps = self._go_on({})
            return self._seen(self.agents), self._infos(steps)

        def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
            deciding = self._deciding()
            if missing := [agent for agent in deciding if agent not in actions]:
                raise EnvironmentFailure(f"expected actions of {', '.join(deciding)}; {', '.join(missing)} has none")
            steps = self._go_on({Turn(0, agent): actions[agent] for agent in deciding})
            playing = self.agents
            self.agents = [agent for agent in playing if not steps[agent].over]
            return (
                self._seen(playing),
                {agent: float(steps[agent].reward.sum()) for agent in playing},
                {agent: steps[agent].terminated for agent in playing},
                {agent: steps[agent].truncated for agent in playing},
                self._infos(steps),
            )

        def _go_on(self, actions: dict[Turn, Any]) -> dict[str, Step]:
            """What came for each player that is still there; nothing for those that wait."""
            found = self._matches.act(actions)
            if 0 in self._matches.failures:
                raise EnvironmentFailure(self._matches.failures[0])
            return {agent: found.get(Turn(0, agent), Step(elapsed=0)) for agent in self.agents}

        def _deciding(self) -> list[str]:
            return [turn.player for turn in self._matches.waiting]

        def _seen(self, agents: list[str]) -> dict[str, Any]:
            return {agent: _observation(self._matches, self._players[agent]) for agent in agents}

        def _infos(self, steps: dict[str, Step]) -> dict[str, Any]:
            deciding = self._deciding()
            return {agent: _info(self._matches, Turn(0, agent), step) | {"decides": agent in deciding} for agent, step in steps.items()}

    return WorldParallel(world, render_mode)


def as_aec(world: World, render_mode: str | None = None) -> Any:
    """A world as PettingZoo's turn-based environment: whoever has to decide next is the selected agent.

    Raises:
        MissingExtra: PettingZoo is not installed.
    """
    try:
        from pettingzoo import AECEnv
    except ModuleNotFoundError as error:
        raise missing_extra("pettingzoo", "a world as a PettingZoo environment") from error

    class WorldAEC(_WorldOfPlayers, AECEnv):  # type: ignore[misc]
        metadata = _metadata(world) | {"is_parallelizable": False}

        def observe(self, agent: str) -> Any:
            return _observation(self._matches, self._players[agent])

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            self._seed = self._seed + 1 if seed is None else seed
            self.agents = list(self.possible_agents)
            self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
            self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
            self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
            self._matches.begin(0, world, self._seed, self.agents)
            self._go_on({})

        def step(self, action: Any) -> None:
            agent = self.agent_selection
            if self.terminations[agent] or self.truncations[agent]:
                self._was_dead_step(action)
                if self.agents:
                    self._select()
                return
            self._cumulative_rewards[agent] = 0
            self._clear_rewards()
            self._go_on({Turn(0, agent): action})
            self._accumulate_rewards()

        def _go_on(self, actions: dict[Turn, Any]) -> None:
            found = self._matches.act(actions)
            if 0 in self._matches.failures:
                raise EnvironmentFailure(self._matches.failures[0])
            for turn, step in found.items():
                self.rewards[turn.player] = float(step.reward.sum())
                self.terminations[turn.player], self.truncations[turn.player] = step.terminated, step.truncated
                self.infos[turn.player] = _info(self._matches, turn, step)
            self._select()

        def _select(self) -> None:
            """Those whose match is over come first, as everywhere in PettingZoo; then whoever has waited longest."""
            over = [agent for agent in self.agents if self.terminations[agent] or self.truncations[agent]]
            self.agent_selection = [*over, *(turn.player for turn in self._matches.waiting)][0]

    return WorldAEC(world, render_mode)
