"""Worlds of several players: adapters against plain loops, and matches in which something goes wrong at every await."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

from baldwin.envs import EnvConfig, EnvSpec, check_env, make_resumable_env
from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, Step, World
from baldwin.envs.match_env import MatchEnv
from baldwin.envs.matches import Matches, Turn, process_loop
from baldwin.envs.one_player import PLAYER, GymnasiumWorld
from baldwin.envs.opponent_envs import OpponentEnvs
from baldwin.envs.pettingzoo import ParallelWorld, TurnWorld, _find_module, as_aec, as_parallel, make_world
from baldwin.envs.pong_backend import PongVectorEnv
from baldwin.envs.pong_world import PongWorld
from baldwin.envs.self_play import SelfPlayEnvs
from baldwin.errors import EnvironmentFailure
from baldwin.executors.config import DeadlinePassed
from baldwin.observations import describe_observations
from tests.toys.opponents import ByFunction

PARALLEL = ["mpe2.simple_spread_v3", "mpe2.simple_tag_v3", "mpe2.simple_push_v3"]
TURNS = ["classic.tictactoe_v3", "classic.connect_four_v3", "mpe2.simple_reference_v3"]


def equal(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("name", PARALLEL)
def test_a_parallel_game_is_its_own_loop(name: str) -> None:
    module = _find_module(name)
    plain, world = module.parallel_env(max_cycles=12), ParallelWorld(module.parallel_env(max_cycles=12))
    matches, names = Matches(), [player.name for player in world.players]
    observations, _ = plain.reset(seed=3)
    matches.begin(0, world, 3, names)
    assert set(matches.act({})) == {Turn(0, agent) for agent in names}
    rng, steps = np.random.default_rng(0), 0
    while plain.agents:
        for agent in plain.agents:
            assert equal(matches.controller(Turn(0, agent)).observation, observations[agent])
        actions = {agent: int(rng.integers(plain.action_space(agent).n)) for agent in plain.agents}
        observations, rewards, terminations, truncations, _ = plain.step(actions)
        found = matches.act({Turn(0, agent): action for agent, action in actions.items()})
        for agent in actions:
            step = found[Turn(0, agent)]
            assert step.reward[0] == pytest.approx(rewards[agent])
            assert (step.terminated, step.truncated, step.elapsed) == (terminations[agent], truncations[agent], 1)
        steps += 1
    assert steps == 12
    assert not matches.waiting
    matches.close()


@pytest.mark.parametrize("name", TURNS)
def test_a_turn_based_game_is_its_own_loop(name: str) -> None:
    """Each player's rewards, observations and masks, from turn to turn, as `last()` tells them."""
    module = _find_module(name)
    plain, world = module.env(), TurnWorld(module.env())
    plain.reset(seed=5)
    expected: dict[str, list[Any]] = {agent: [] for agent in plain.possible_agents}
    rng = np.random.default_rng(0)
    chosen: list[tuple[str, Any]] = []
    for agent in plain.agent_iter():
        observation, reward, terminated, truncated, _ = plain.last()
        over = terminated or truncated
        legal = observation["action_mask"] if isinstance(observation, dict) else None
        mask = np.ones(plain.action_space(agent).n) if legal is None else legal
        expected[agent].append((observation, None if legal is None or over else legal.tolist(), reward, over))
        action = None if over else int(rng.choice(np.flatnonzero(mask)))
        if action is not None:
            chosen.append((agent, action))
        plain.step(action)
    matches = Matches()
    matches.begin(0, world, 5, plain.possible_agents)
    found = matches.act({})
    seen: dict[str, list[Any]] = {agent: [] for agent in plain.possible_agents}

    def note(new: dict[Turn, Step]) -> None:
        for turn, step in new.items():
            controller = matches.controller(turn)
            legal = None if controller.legal is None or step.over else controller.legal.astype(int).tolist()
            seen[turn.player].append((controller.observation, legal, step))

    note(found)
    for agent, action in chosen:
        assert [turn.player for turn in matches.waiting] == [agent]
        note(matches.act({Turn(0, agent): action}))
    for agent, steps in seen.items():
        assert len(steps) == len(expected[agent])
        for (observation, legal, step), (plain_observation, mask, reward, over) in zip(steps, expected[agent], strict=True):
            inner = plain_observation["observation"] if isinstance(plain_observation, dict) else plain_observation
            assert equal(observation, inner)
            assert legal == mask
            assert (float(step.reward[0]), step.over) == (pytest.approx(reward), over)
    scores = [matches.controller(Turn(0, agent)).result()["score"] for agent in seen]
    assert scores == pytest.approx([sum(reward for *_, reward, _ in expected[agent]) for agent in seen])
    matches.close()


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "Hopper-v5"])
def test_a_gymnasium_environment_there_and_back_is_itself(name: str) -> None:
    plain, back = gym.make(name), MatchEnv(GymnasiumWorld(gym.make(name)), PLAYER)
    plain.action_space.seed(0)
    assert equal(plain.reset(seed=4)[0], back.reset(seed=4)[0])
    for _ in range(250):
        action = plain.action_space.sample()
        one, other = plain.step(action), back.step(action)
        assert equal(one[0], other[0])
        assert one[1:4] == (pytest.approx(other[1]), *other[2:4])
        if one[2] or one[3]:
            assert equal(plain.reset(seed=5)[0], back.reset(seed=5)[0])
    back.close()


class TwoRewards(gym.Env[np.ndarray, int]):
    """A reward of two components, as mo-gymnasium's environments give it."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._left = 3
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        self._left -= 1
        return np.zeros(1, np.float32), np.array([1.0, -0.5]), self._left == 0, False, {}


def test_components_of_a_reward_come_by_name() -> None:
    env = MatchEnv(GymnasiumWorld(TwoRewards(), ("treasure", "time")), PLAYER)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(0)
    assert (reward, info["reward"], info["elapsed"]) == (0.5, {"treasure": 1.0, "time": -0.5}, 1)
    env.step(0)
    *_, info = env.step(0)
    assert info["result"] == {"score": 1.5, "objectives": {"treasure": 3.0, "time": -1.5}}


def test_a_vector_reward_of_mo_gymnasium_comes_by_name() -> None:
    mo = pytest.importorskip("mo_gymnasium")
    plain, env = mo.make("deep-sea-treasure-v0"), MatchEnv(GymnasiumWorld(mo.make("deep-sea-treasure-v0"), ("treasure", "time")), PLAYER)
    assert equal(plain.reset(seed=3)[0], env.reset(seed=3)[0])
    over, total, moves = False, np.zeros(2), [3, 3, *[1] * 9]  # to the right and down to a treasure
    while not over:
        action = moves.pop(0)
        observation, reward, terminated, truncated, _ = plain.step(action)
        seen, earned, *flags, info = env.step(action)
        assert equal(observation, seen)
        assert flags == [terminated, truncated]
        assert list(info["reward"].values()) == pytest.approx(reward)
        assert earned == pytest.approx(reward.sum())
        over, total = terminated or truncated, total + reward
    assert list(info["result"]["objectives"].items()) == [("treasure", pytest.approx(total[0])), ("time", total[1])]
    assert total[0] > 1
    env.close()


def test_both_sides_are_drawn() -> None:
    """In matches as environments, against members of a pool, and in NumPy; each copy its own."""
    config = EnvConfig(id="baldwin:VectorPong-v0")
    env_spec, ids = check_env(config), np.arange(40, dtype=np.int32)
    one = MatchEnv(PongWorld())
    drawn = []
    for seed in range(40):
        one.reset(seed=seed)
        drawn.append(cast("Turn", one._own).player)
    one.close()
    pool = OpponentEnvs(PongWorld, "any", env_spec, 40, np.zeros(0, np.float32))
    arrays = PongVectorEnv(config, env_spec, 40)
    for envs in (pool, arrays):
        envs.open(np.arange(40), 0)
        envs.reset(ids)
    sides = [drawn, [turn.player for turn in pool._own], [("left", "right")[side] for side in arrays._side.tolist()]]
    assert all(10 <= own.count("left") <= 30 for own in sides)
    assert sides[1] == sides[2]
    pool.close()


class OddResult(Seat):
    """Tells nothing, or fails to, after the end."""

    def __init__(self, player: str, told: Any) -> None:
        super().__init__(player)
        self._told = told

    def result(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self._told or {}["score"])


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("won", r"expected a mapping such as \{'score': 1.0\} from result\(\) of player 'solo'; got 'won'"),
        (None, r"the match failed in result\(\): KeyError: 'score'"),
    ],
)
def test_a_result_that_is_no_mapping_is_named(told: Any, message: str) -> None:
    class Odd(World):
        players: ClassVar = [Player("solo", spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2))]

        def reset(self, seed: int, players: Sequence[str]) -> Match:
            seat = OddResult("solo", told)

            async def tick() -> None:
                seat.show(np.zeros(1, np.float32))
                await seat.action()
                seat.show(np.zeros(1, np.float32), terminated=True)

            return SimpleMatch([seat], [tick()])

    env = MatchEnv(Odd(), "solo")
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match=message):
        env.step(0)
    env.close()


def test_pettingzoos_own_tests_pass_on_the_way_back() -> None:
    from pettingzoo.test import api_test

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a pong whose observations are numbers, not pictures
        api_test(as_aec(PongWorld()), num_cycles=300)
        api_test(as_aec(PongWorld(frames=(1, 4), delay=1)), num_cycles=300)
        api_test(as_aec(ParallelWorld(_find_module(PARALLEL[2]).parallel_env(max_cycles=20))), num_cycles=100)


WORLDS: dict[str, Callable[[], World]] = {
    "pong": PongWorld,
    "two-rate-pong": lambda: PongWorld(frames=(1, 4), delay=1),
    "push": lambda: make_world(PARALLEL[2], max_cycles=20),
    "tic-tac-toe": lambda: make_world(TURNS[0]),
}


@pytest.mark.parametrize("name", WORLDS)
def test_pettingzoos_tests_of_parallel_environments_and_of_seeds_pass(name: str) -> None:
    from pettingzoo.test import parallel_api_test, parallel_seed_test, seed_test

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name != "tic-tac-toe":  # which draws any action, and an illegal one ends the game for both
            parallel_api_test(as_parallel(WORLDS[name]()), num_cycles=150)
            parallel_seed_test(lambda: as_parallel(WORLDS[name]()), num_cycles=30)
        seed_test(lambda: as_aec(WORLDS[name]()), num_cycles=60)


class Leaving(ParallelEnv):  # type: ignore[misc]
    """Player n goes after n + 2 steps: the even ones by an end, the odd ones by a limit. An observation has the step and the last action."""

    metadata: ClassVar[dict[str, Any]] = {"name": "leaving"}

    def __init__(self) -> None:
        self.possible_agents = ["a", "b", "c"]
        self._observation, self._action = spaces.Box(0, 9, (2,), np.float32), spaces.Discrete(3)

    def observation_space(self, agent: str) -> Any:
        return self._observation

    def action_space(self, agent: str) -> Any:
        return self._action

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self._now = list(self.possible_agents), 0
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert set(actions) == set(self.agents)
        self._now += 1
        playing = self.agents
        place = {agent: n for n, agent in enumerate(self.possible_agents)}
        gone = {agent: self._now == place[agent] + 2 for agent in playing}
        self.agents = [agent for agent in playing if not gone[agent]]
        return (
            {agent: np.array([self._now, actions[agent]], np.float32) for agent in playing},
            {agent: float(10 * place[agent] + actions[agent]) for agent in playing},
            {agent: gone[agent] and place[agent] % 2 == 0 for agent in playing},
            {agent: gone[agent] and place[agent] % 2 == 1 for agent in playing},
            {agent: {} for agent in playing},
        )

    def render(self) -> None:
        """Nothing to see."""

    def close(self) -> None:
        """Nothing to free."""


@pytest.mark.parametrize("asked", [["a", "b", "c"], ["b"], ["c", "a"]], ids=str)
def test_players_of_a_parallel_game_may_end_at_different_times(asked: list[str]) -> None:
    """The others go on, whether somebody plays those that are gone or the world's script did."""
    matches = Matches()
    matches.begin(0, ParallelWorld(Leaving()), 0, asked)
    found = play_out(matches)
    assert not matches.failures
    for name in asked:
        steps, n = found[Turn(0, name)][1:], "abc".index(name)
        assert [float(step.reward[0]) for step in steps] == [10.0 * n] * (n + 2)
        assert [step.over for step in steps] == [False] * (n + 1) + [True]
        assert (steps[-1].terminated, steps[-1].truncated) == (n % 2 == 0, n % 2 == 1)
        assert matches.controller(Turn(0, name)).result() == {"score": 10.0 * n * (n + 2)}
    matches.close()


def test_a_parallel_game_there_and_back_is_itself() -> None:
    plain, back = Leaving(), as_parallel(ParallelWorld(Leaving()))
    for one, other in zip(plain.reset(seed=1)[0].items(), back.reset(seed=1)[0].items(), strict=True):
        assert one[0] == other[0]
        assert equal(one[1], other[1])
    while plain.agents:
        actions = {agent: len(plain.agents) % 3 for agent in plain.agents}
        one, other = plain.step(actions), back.step(actions)
        assert plain.agents == back.agents
        assert one[1:4] == other[1:4]
        assert all(equal(one[0][agent], other[0][agent]) for agent in actions)
    back.reset()
    with pytest.raises(EnvironmentFailure, match="expected actions of a, b, c; c has none"):
        back.step({"a": 0, "b": 0})
    back.close()


def test_who_waits_in_a_parallel_environment_is_told_so() -> None:
    env = as_parallel(make_world(TURNS[0]))
    _, infos = env.reset(seed=0)
    assert [infos[agent]["decides"] for agent in env.agents] == [True, False]
    seen, rewards, _, _, infos = env.step({"player_1": 4, "player_2": 0})  # the other one's action counts for nothing
    assert [infos[agent]["decides"] for agent in env.agents] == [False, True]
    assert (rewards, seen["player_2"].sum()) == ({"player_1": 0.0, "player_2": 0.0}, 1)
    assert infos["player_2"]["action_mask"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]
    env.close()


def test_connect_four_as_a_one_player_environment_masks_full_columns() -> None:
    spec = check_env(EnvConfig(id="pettingzoo:classic.connect_four_v3"))
    assert spec.action_space == spaces.Discrete(7)
    env = MatchEnv(make_world("classic.connect_four_v3"))
    over, rng = False, np.random.default_rng(1)
    _, info = env.reset(seed=2)
    while not over:
        _, reward, over, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
    assert reward in (-1, 0, 1)
    env.close()


def test_a_game_that_is_not_there_is_named() -> None:
    with pytest.raises(
        EnvironmentFailure, match=r"there is no game pettingzoo:classic.nonsense_v1.*such as pettingzoo:classic.connect_four_v3"
    ):
        make_world("classic.nonsense_v1")
    with pytest.raises(EnvironmentFailure, match="could not be made"):
        make_world("mpe2.simple_tag_v3", speed=3)


def test_opponents_play_the_players_they_are_given() -> None:
    asked: list[Any] = []

    def stop(observation: Any, legal: Any) -> int:
        asked.append(observation)
        return 1

    env = MatchEnv(PongWorld(), "left", {"right": stop})
    observation, _ = env.reset(seed=0)
    for _ in range(10):
        observation, *_ = env.step(0)
    assert len(asked) == 10
    assert observation[1] == pytest.approx(0.5)  # the other bat stands still
    with pytest.raises(EnvironmentFailure, match="there is no player 'middle'; there are: left, right"):
        MatchEnv(PongWorld(), "left", {"middle": stop})
    env.close()


async def go_wrong(trouble: str) -> Any:
    """What may happen at any await, in a world or in a controller."""
    if trouble == "raise":
        raise RuntimeError("the market burns")
    if trouble == "cancel":
        raise asyncio.CancelledError
    if trouble == "hang":
        await asyncio.Event().wait()
    while trouble == "spin":
        await asyncio.sleep(0)
    while trouble == "hold":  # whoever cancels it, and however often
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


IDLE_AWAITS = 3


class Market(World):
    """Players who decide at paces of their own; what goes wrong, and where, is told to it.

    `trouble` is of the tick from one of its awaits on, of the other tick (`idle-raise`), of a controller before or after one of its calls
    (`before-raise`, `after-hang`), or of the match's close(). `awaits` and `calls` count them. `plain`: controllers are seats themselves, which matches ask without tasks, instead of controllers around them.
    """

    def __init__(self, count: int, trouble: str = "", at: int = 0, length: int = 12, plain: bool = False) -> None:
        self._plain = plain
        self.players = [Player(f"p{n}", spaces.Discrete(2), spaces.Discrete(2)) for n in range(count)]
        self._where, _, self._trouble = trouble.rpartition("-")
        self._at, self._length = at, length
        self.closed = self.calls = self.awaits = 0

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        seats = [Seat(name) for name in players]
        world = self

        class Closing(SimpleMatch):
            def close(self) -> None:
                world.closed += 1
                super().close()
                if world._trouble == "close":
                    raise OSError("the market does not close")

        controllers = seats if self._plain else [Troubled(seat, self) for seat in seats]
        return Closing(controllers, [self._tick(seats, np.random.default_rng(seed)), self._idle()])

    async def call(self, step: Coroutine[Any, Any, Step]) -> Step:
        """A call of one of the controllers."""
        self.calls += 1
        if self._where not in ("before", "after") or self.calls <= self._at:
            return await step
        if self._where == "after":
            await step
        step.close()
        return cast("Step", await go_wrong(self._trouble))

    async def _idle(self) -> None:
        for n in range(IDLE_AWAITS):
            if self._where == "idle" and n == self._at:
                await go_wrong(self._trouble)
            await asyncio.sleep(0)

    async def _tick(self, seats: list[Seat], rng: np.random.Generator) -> None:
        self.awaits, ignored = 0, set[Seat]()
        for seat in seats:
            seat.show(0)
        due = np.zeros(len(seats), int)
        for frame in range(self._length):
            for n, seat in enumerate(seats):
                if due[n] == frame:
                    self.awaits += 1
                    if self.awaits > self._at:
                        await self._go_wrong(seat)
                    if self._trouble == "ignore" and self.awaits > self._at:
                        ignored.add(seat)
                        continue
                    await seat.action()
                    due[n] = frame + int(rng.integers(1, 4))
            for n, seat in enumerate(seats):
                seat.add(1.0)
                if due[n] == frame + 1 and frame + 1 < self._length:
                    seat.show(frame)
        for seat in seats if self._trouble != "silence" else []:
            if seat in ignored:  # nobody has looked at its last action, and nobody tells it of the end
                continue
            seat.finish(score=1.0)
            seat.show(self._length, terminated=True)

    async def _go_wrong(self, seat: Seat) -> None:
        if self._where:
            return
        if self._trouble == "twice":
            seat._chosen.put(0)
        if self._trouble == "again":
            seat.show(0)
        await go_wrong(self._trouble)


class Troubled:
    """A seat whose calls the world may spoil."""

    def __init__(self, seat: Seat, world: Market) -> None:
        self._seat, self._world, self.player = seat, world, seat.player

    def __getattr__(self, name: str) -> Any:
        return getattr(self._seat, name)

    async def start(self) -> Step:
        return await self._world.call(self._seat.start())

    async def act(self, action: Any) -> Step:
        return await self._world.call(self._seat.act(action))


class Shuffled(asyncio.SelectorEventLoop):
    """An event loop that runs what is ready in an order drawn from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)

    def _run_once(self) -> None:
        ready = list(self._ready)  # type: ignore[attr-defined]
        self._rng.shuffle(ready)
        self._ready.clear()  # type: ignore[attr-defined]
        self._ready.extend(ready)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def play_out(matches: Matches, steps: int = 400, between: Callable[[int], None] = lambda step: None) -> dict[Turn, list[Step]]:
    found: dict[Turn, list[Step]] = {}
    new = matches.act({})
    for number in range(steps):
        between(number)
        for turn, step in new.items():
            found.setdefault(turn, []).append(step)
        if not matches.going_on:
            return found
        new = matches.act(dict.fromkeys(matches.waiting, 0))
    raise AssertionError("it does not end")


def descriptors() -> int:
    process_loop()
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_every_frame_is_counted_once_for_every_player(count: int, plain: bool) -> None:
    gc.collect()
    before = descriptors()
    matches = Matches()
    world = Market(count, plain=plain)
    matches.begin(0, world, 7, [player.name for player in world.players])
    found = play_out(matches)
    assert len(found) == count
    for steps in found.values():
        assert steps[-1].terminated
        assert sum(step.elapsed for step in steps) == 12
        assert sum(float(step.reward[0]) for step in steps) == 12
    matches.close()
    assert world.closed == 1
    assert descriptors() <= before


OF_TICKS = ["raise", "cancel", "hang", "spin", "hold", "silence", "twice", "again", "ignore"]
OF_IDLE = [f"idle-{what}" for what in ("raise", "cancel", "hang", "spin", "hold")]
OF_CALLS = [f"{where}-{what}" for where in ("before", "after") for what in ("raise", "cancel", "hang", "spin", "hold", "none")]
FRAMES = 8


def troubles(count: int, plain: bool) -> Iterator[tuple[str, int]]:
    """Each trouble at each await of an untroubled match, those of its other tick, and those of its controllers; of fifty players at every 40th."""
    calm, matches = Market(count, length=FRAMES, plain=plain), Matches()
    matches.begin(0, calm, 7, [player.name for player in calm.players])
    rounds = len(max(play_out(matches).values(), key=len))
    matches.close()
    stride = 40 if count == 50 else 1
    assert calm.awaits >= 3 * count
    assert plain or calm.calls > calm.awaits
    places = [
        (OF_TICKS, calm.awaits),
        (OF_IDLE, IDLE_AWAITS),
        ([] if plain else OF_CALLS, calm.calls),
        (["outside"], 3 * rounds),
        (["close"], 1),
    ]
    for kinds, awaits in places:
        yield from ((trouble, at) for trouble in kinds for at in range(0, awaits, 1 if awaits == IDLE_AWAITS else stride))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_trouble_in_one_match_is_a_failure_of_that_match_alone(count: int, plain: bool) -> None:
    """Wherever it comes from: the world, a controller, or someone who cancels a task. Nothing is left behind, in whatever order tasks run."""
    failed = 0
    for seed, (trouble, at) in enumerate(troubles(count, plain)):
        failed += meets_trouble(count, plain, trouble, at, seed)
    assert failed > 20


def meets_trouble(count: int, plain: bool, trouble: str, at: int, seed: int) -> bool:
    """Whether the match failed. `seed` of the order of tasks."""
    before, loop, case = descriptors(), Shuffled(seed), f"{trouble} at {at}"
    with patch("baldwin.envs.matches.process_loop", lambda: loop):
        matches = Matches(deadline=0.005)
    good, bad = Market(2, plain=plain, length=FRAMES), Market(count, trouble, at, FRAMES, plain)
    matches.begin(0, good, 7, ["p0", "p1"])
    matches.begin(1, bad, 7, [player.name for player in bad.players])

    def cancel(step: int) -> None:
        if trouble == "outside" and step == at // 3:
            tasks = [task for task in matches._running[1].tasks if not task.done()]
            if tasks:
                tasks[at % len(tasks)].cancel()

    found = play_out(matches, between=cancel)
    assert {turn for turn, steps in found.items() if steps[-1].over} >= {Turn(0, "p0"), Turn(0, "p1")}, case
    told = {turn.player for turn, steps in found.items() if turn.match == 1 and steps[-1].over}
    assert (1 in matches.failures) != (len(told) == count), case  # it fails, or everybody is told
    assert 0 not in matches.failures, case
    if trouble == "again" and len(told) < count:
        assert "has not answered the turn before" in matches.failures[1]
    held = trouble == "idle-hold" or (trouble.endswith("hold") and len(told) < count)
    with pytest.raises(EnvironmentFailure, match=r"did not end|failed in close") if held or trouble == "close" else nullcontext():
        matches.close()
    assert (good.closed, bad.closed) == (1, 1), case
    assert not asyncio.all_tasks(loop), case
    loop.close()
    assert descriptors() <= before, case
    return bool(matches.failures)


@pytest.mark.parametrize("plain", [False, True])
def test_a_turn_that_nobody_answers_stops_its_match_alone(plain: bool) -> None:
    matches, world = Matches(), Market(2, plain=plain)
    matches.begin(0, Market(2, plain=plain), 7, ["p0", "p1"])
    matches.begin(1, world, 7, ["p0", "p1"])
    matches.act({})
    ends = 0
    while turns := [turn for turn in matches.waiting if turn != Turn(1, "p0")]:
        ends += sum(step.over for step in matches.act(dict.fromkeys(turns, 0)).values())
    assert (matches.waiting, matches.failures, ends) == ([Turn(1, "p0")], {}, 2)
    matches.close()
    assert world.closed == 1
    assert not asyncio.all_tasks(process_loop())


def test_a_coroutine_that_holds_on_to_one_cancellation_may_clean_up() -> None:
    cleaned: list[str] = []

    class Tidy(Market):
        async def _idle(self) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                cleaned.append("up")

    matches = Matches()
    matches.begin(0, Tidy(1), 0, ["p0"])
    matches.act({})
    matches.close()
    assert cleaned == ["up"]


class Broken(Market):
    """A world whose matches are not as they should be."""

    def reset(self, seed: int, players: Sequence[str]) -> Any:
        whole = super().reset(seed, players)
        whole.close()
        return {
            "nothing": None,
            "no controllers": SimpleNamespace(ticks=(), close=lambda: None),
            "nobody": SimpleMatch([]),
            "no start": SimpleMatch([SimpleNamespace(player=name) for name in players]),  # type: ignore[misc]
        }[self._trouble]


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ("nothing", "the match did not begin: .*no attribute 'controllers'"),
        ("no controllers", "the match did not begin: .*no attribute 'controllers'"),
        ("nobody", "the match did not begin: expected controllers of p0; got those of nobody"),
        ("no start", "the match failed: .*no attribute 'start'"),
    ],
)
def test_a_match_that_is_none_is_one_failure(trouble: str, why: str) -> None:
    matches = Matches()
    matches.begin(1, Market(1), 0, ["p0"])
    try:
        matches.begin(0, Broken(1, trouble), 0, ["p0"])
        matches.act({}, [Turn(0, "p0")])
        reason = matches.failures[0]
    except EnvironmentFailure as error:
        reason = str(error)
    assert re.search(why, reason)
    assert len(play_out(matches)[Turn(1, "p0")]) > 1
    matches.close()
    assert not asyncio.all_tasks(process_loop())


def test_a_match_that_cannot_be_ended_costs_the_next_one_of_its_number_only() -> None:
    matches, world = Matches(deadline=0.05), Market(1, "close")
    matches.begin(1, Market(1), 0, ["p0"])
    matches.begin(0, world, 0, ["p0"])
    with pytest.raises(EnvironmentFailure, match=r"the match failed in close\(\): OSError: the market does not close"):
        matches.begin(0, Market(1), 1, ["p0"])
    matches.begin(0, Market(1), 2, ["p0"])
    assert {turn.match for turn in play_out(matches)} == {0, 1}
    matches.close()


def test_an_end_that_comes_while_a_player_decides_is_told_when_it_has_decided() -> None:
    class Early(Market):
        async def _tick(self, seats: list[Seat], rng: np.random.Generator) -> None:
            for seat in seats:
                seat.show(0)
            await seats[0].action()
            for seat in seats:
                seat.show(0, terminated=True)

    matches = Matches()
    matches.begin(0, Early(2), 0, ["p0", "p1"])
    matches.act({})
    assert list(matches.act({Turn(0, "p0"): 0})) == [Turn(0, "p0")]
    assert matches.waiting == [Turn(0, "p1")]
    assert matches.act({Turn(0, "p1"): 0})[Turn(0, "p1")].terminated
    assert not matches.failures
    matches.close()


class Bare(World):
    """A world without ticks: its controllers do everything, some of them longer than others."""

    def __init__(self, names: str = "p") -> None:
        self.players = [Player(name, spaces.Discrete(2), spaces.Discrete(2)) for name in names]

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        class Counts:
            observation, legal = 0, None

            def __init__(self, player: str, left: int) -> None:
                self.player, self.left = player, left

            async def start(self) -> Step:
                return Step()

            async def act(self, action: Any) -> Step:
                await asyncio.sleep(0.003 * self.left)
                self.left -= 1
                return Step(np.ones(1), terminated=self.left == 0)

            def result(self) -> dict[str, Any]:
                return {"score": 3.0}

        return SimpleMatch([Counts(player, 3 + n) for n, player in enumerate(players)])


def test_a_world_needs_no_ticks() -> None:
    env = MatchEnv(Bare())
    for seed in (1, 2):
        env.reset(seed=seed)
        assert [env.step(0)[2] for _ in range(3)] == [False, False, True]
    env.close()


def test_players_of_a_world_without_ticks_may_end_at_different_times() -> None:
    matches = Matches()
    matches.begin(0, Bare("pq"), 0, ["p", "q"])
    found = play_out(matches)
    assert not matches.failures
    assert {turn.player: len(steps) for turn, steps in found.items()} == {"p": 1 + 3, "q": 1 + 4}
    matches.close()


class Hangs(Market):
    """Every match after the first one hangs when its second player has acted."""

    made = 0

    def __init__(self) -> None:
        Hangs.made += 1
        super().__init__(2, "hang" if Hangs.made % 2 == 0 else "", 3)


def test_a_match_that_hangs_fails_while_others_wait_for_their_learner() -> None:
    spec = EnvSpec(describe_observations(spaces.Discrete(13), "a market"), spaces.Discrete(2), None, "gymnasium")
    envs = OpponentEnvs(Hangs, "p0", spec, 2, np.zeros(0, np.float32), 0.2)
    asked: list[int] = []

    def choose(obs: Any) -> Any:
        asked.append(1)
        return np.zeros(len(next(iter(obs.values()))), np.int64)

    envs.policies, envs.opponents[:], ids = ByFunction(choose), 1, np.arange(2, dtype=np.int32)
    envs.open(np.array([1, 2]), 0)
    envs.reset(ids)
    for _ in range(6):
        envs.step(np.zeros(2, np.int64), ids[[n not in envs.failures for n in range(2)]])
        if envs.failures:
            break
    assert list(envs.failures) == [1]
    assert "waited 0.2 s for a turn that did not come" in envs.failures[1]
    assert len(asked) < 50
    envs.close()


class NeverEnds(Market):
    """Hangs at its second await."""

    def __init__(self) -> None:
        super().__init__(2, "hang", 1)


@pytest.mark.parametrize("who", ["one", "all", "pool"])
def test_how_long_a_match_may_take_is_a_setting(who: str) -> None:
    config = EnvConfig(id="tests.envs.test_asynchronous:NeverEnds", match_deadline=0.07, self_play=who == "all")
    env_spec = check_env(config)
    width = 2 if who == "all" else 1
    envs = make_resumable_env(config, env_spec, width, opponents=who == "pool")
    ids = np.arange(width, dtype=np.int32)
    envs.open(np.ones(width, np.int64), 0)
    envs.reset(ids)
    for _ in range(12):
        if not envs.failures:
            envs.step(np.zeros(width, np.int64), ids)
    envs.close()
    assert re.search("waited 0.07 s for a turn that did not come", envs.failures[0])


def test_a_deadline_of_matches_is_refused_where_there_are_none() -> None:
    with pytest.raises(EnvironmentFailure, match=r"match_deadline is for worlds of several players, and CartPole-v1 has one"):
        check_env(EnvConfig(id="CartPole-v1", match_deadline=5))


def test_a_deadline_of_the_executor_is_not_taken_for_a_failure_of_a_match() -> None:
    class Rings(Market):
        async def _go_wrong(self, seat: Seat) -> None:
            raise DeadlinePassed("too long")

    matches = Matches()
    matches.begin(0, Rings(1), 0, ["p0"])
    with pytest.raises(DeadlinePassed):
        matches.act({})
    matches.close()


def test_acting_out_of_turn_is_refused() -> None:
    matches = Matches()
    matches.begin(0, PongWorld(), 0, ["left"])
    matches.act({})
    with pytest.raises(EnvironmentFailure, match="it is not the turn of player 'right'; to decide: left"):
        matches.act({Turn(0, "right"): 0})
    matches.close()


def test_a_seat_is_used_in_turn() -> None:
    async def misuse() -> None:
        seat = Seat("p")
        first = asyncio.ensure_future(seat.act(0))
        await asyncio.sleep(0)
        with pytest.raises(EnvironmentFailure, match="acted twice"):
            await seat.act(0)
        seat.show(0, terminated=True)
        await first
        with pytest.raises(EnvironmentFailure, match="after its match was over"):
            await seat.act(0)

    asyncio.run(misuse())


def test_one_of_several_that_wait_for_a_seat_may_be_cancelled() -> None:
    async def wait() -> None:
        seat = Seat("p")
        gone, first, second = (asyncio.ensure_future(seat.action()) for _ in range(3))
        await asyncio.sleep(0)
        gone.cancel()
        for action, others in ((7, {first, second}), (8, {second})):
            seat.choose(action)
            done, _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result() for task in done] == [action]
        assert gone.cancelled()

    asyncio.run(wait())


def test_a_seat_is_played_by_await_as_by_matches() -> None:
    """The loop of the documentation, without `Matches`."""

    async def play(seat: Seat) -> list[Step]:
        steps = [await seat.start()]
        while not steps[-1].over:
            steps.append(await seat.act(0))
        return steps

    async def run() -> list[list[Step]]:
        match = Market(3, plain=True).reset(5, ["p0", "p1", "p2"])
        ticks = [asyncio.ensure_future(tick) for tick in match.ticks]
        found = await asyncio.gather(*(play(cast("Seat", controller)) for controller in match.controllers))
        await asyncio.gather(*ticks)
        return list(found)

    matches = Matches()
    matches.begin(0, Market(3, plain=True), 5, ["p0", "p1", "p2"])
    played = play_out(matches)
    matches.close()
    for n, steps in enumerate(asyncio.run(run())):
        assert [step[1:] for step in steps] == [step[1:] for step in played[Turn(0, f"p{n}")]]


def test_wrong_actions_of_a_turn_based_game_are_refused_and_illegal_ones_lose_it() -> None:
    """Although the wrappers that check them are left out: PettingZoo's own rule for illegal moves stays."""
    env = MatchEnv(make_world("classic.tictactoe_v3"), "player_1")
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match=r"expected an action of player_1 in Discrete\(9\); got 9"):
        env.step(9)
    env.reset(seed=0)
    env.step(0)
    _, reward, terminated, _, _ = env.step(0)  # taken
    assert (reward, terminated) == (-1.0, True)
    env.close()


class Starved(Market):
    """After the first action only the second player ever has a turn."""

    def __init__(self) -> None:
        super().__init__(2)

    async def _tick(self, seats: list[Seat], rng: np.random.Generator) -> None:
        for seat in seats:
            seat.show(0)
        await seats[0].action()
        while True:
            await seats[1].action()
            seats[1].show(0)


def test_a_player_who_never_gets_a_turn_ends_the_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """With functions, members of a pool, and frozen policies as opponents."""
    for module in ("match_env", "opponent_envs", "self_play"):
        monkeypatch.setattr(f"baldwin.envs.{module}.MAX_DECISIONS", 50)
    env = MatchEnv(Starved(), "p0", {"p1": lambda obs, legal: 0})
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match="p0 got no turn while the others decided"):
        env.step(0)
    env.close()
    spec = EnvSpec(describe_observations(spaces.Discrete(2), "a market"), spaces.Discrete(2), None, "gymnasium")
    ids = np.arange(2, dtype=np.int32)
    envs = OpponentEnvs(Starved, "p0", spec, 2, np.zeros(0, np.float32))
    envs.policies, envs.opponents[:] = ByFunction(lambda obs: np.zeros(len(next(iter(obs.values()))), np.int64)), 1
    envs.open(np.array([1, 2]), 0)
    envs.reset(ids)
    envs.step(np.zeros(2, np.int64), ids)
    assert all("p0 got no turn" in envs.failures[n] for n in range(2))
    envs.close()


def test_a_starved_player_beside_frozen_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baldwin.envs.self_play.MAX_DECISIONS", 50)
    obs = describe_observations(spaces.Discrete(2), "a market")
    spec = EnvSpec(obs, spaces.Discrete(2), None, "gymnasium")
    envs = SelfPlayEnvs(Starved, ["p0"], spec, 1, np.zeros(0, np.float32))
    envs._asked = ["p0", "p1"]
    monkeypatch.setattr(envs, "_answers", lambda turns: dict.fromkeys([turn for turn in turns if turn.player == "p1"], 0))
    envs.open(np.array([1]), 0)
    envs.reset(np.arange(1, dtype=np.int32))
    envs.step(np.zeros(1, np.int64), np.arange(1, dtype=np.int32))
    assert "p0 got no turn" in envs.failures[0]
    envs.close()
