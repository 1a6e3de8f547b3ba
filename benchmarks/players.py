"""Worlds of several players: frames of vector Pong, decisions of matches against a plain loop with batches of one, self-play against RLlib's,
and a live world."""

from __future__ import annotations

import gc
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from baldwin.config import load_config
from baldwin.envs import EnvConfig, check_env
from baldwin.envs.asynchronous import World
from baldwin.envs.matches import Matches
from baldwin.envs.pettingzoo import PREFIX, make_world
from baldwin.envs.pong import LEFT, N_ACTIONS, RIGHT, PongGames
from baldwin.envs.pong_world import PongWorld
from baldwin.networks import GreedyPolicy
from baldwin.observations import ACTION_MASK, VECTOR, Observation, ObservationSpec
from baldwin.opponents import OPPONENTS
from baldwin.rollout import RolloutWorker
from baldwin.rollout.opponent_policies import PoolPolicies
from baldwin.runs.build import Parts, build
from baldwin.runs.run import Run, start, train
from baldwin.types import Shared
from benchmarks import live
from benchmarks.on_policy import RLLIB
from benchmarks.tools import HERE, peer_python, spread, table
from examples.nim import MOST, PILE, Nim, see

MATCHES = (32, 256)  # side by side, on one event loop


def rate(work: Callable[[], int], seconds: float) -> float:
    """What `work` counts, per second of this process's CPU time: it is alone on its thread, and other work does not count."""
    work()
    began, count = time.process_time(), 0
    while time.process_time() - began < seconds:
        count += work()
    return count / (time.process_time() - began)


def frames(seconds: float, repeats: int) -> None:
    rows = []
    for games in (1, 16, 256, 4096):
        pong, rng = PongGames(games), np.random.default_rng(0)
        pong.begin(slice(None), np.arange(games, dtype=np.uint64))
        actions = rng.integers(0, N_ACTIONS, (64, games, 2))

        def play(pong: PongGames = pong, actions: np.ndarray = actions) -> int:
            for chosen in actions:
                pong.step(chosen)
                pong.observe(LEFT)
                pong.observe(RIGHT)
            return len(actions) * len(pong.seed)

        rows.append([str(games), spread([rate(play, seconds) for _ in range(repeats)])])
    table("Vector Pong with both players' observations, one process", ["games", "frames/s"], rows)


def pool_policies(parts: Parts, rows: int) -> PoolPolicies:
    """The policy of a new run as member 1 of a pool, for so many players side by side."""
    worker, spec = parts.worker_spec(), parts.env_spec
    assert isinstance(worker, RolloutWorker)
    worker.receive(Shared(OPPONENTS, 1, parts.algorithm.policy_state(), 1))
    return PoolPolicies(worker._member, spec.obs, worker._act, worker._network.state_size, rows)


def pong_decisions(seconds: float, repeats: int, matches: int = 32) -> None:
    """Both players of 32 games by one 64-64 policy: stepped side by side; one game in a plain loop; and one game as controllers and ticks."""
    config = load_config(None, [], ["algorithm.name=ppo", "env.id=baldwin:VectorPong-v0", "policy.hidden=[64,64]"])
    parts = build(config)
    policy = parts.algorithm.policy_state()
    policies = {side: pool_policies(parts, matches) for side in (LEFT, RIGHT)}
    games, members, rows = PongGames(matches), np.ones(matches, np.int64), np.arange(matches)
    games.begin(slice(None), np.arange(matches, dtype=np.uint64))

    def side_by_side() -> int:
        for _ in range(50):
            actions = [policies[side].act(members, {VECTOR: games.observe(side)}, rows) for side in (LEFT, RIGHT)]
            games.step(np.stack(actions, 1))
        return 50 * 2 * matches

    alone = GreedyPolicy(config.policy, parts.env_spec.obs, parts.env_spec.action_space, policy)
    world, single = PongWorld(), Matches()

    def controllers() -> int:
        single.begin(0, world, 1, ["left", "right"])
        single.act({})
        for _ in range(50):
            single.act({turn: alone.act(single.controller(turn).observation) for turn in list(single.waiting)})
        return 50 * 2

    decide = [lambda seen, legal: alone.act(seen)] * 2
    together, plain, coroutines = in_turn([side_by_side, partial(pong_loop, decide), controllers], seconds, repeats)
    ratios = [spread([a / b for a, b in zip(together, own, strict=True)], 1) for own in (plain, coroutines)]
    table(
        f"Decisions per CPU second, Pong, 64-64 policy for both players, {matches} games",
        ["side by side, one batch", "a plain loop, batches of one", "ratio", "controllers and ticks, batches of one", "ratio"],
        [[spread(together), spread(plain), ratios[0], spread(coroutines), ratios[1]]],
    )


class Policy(NamedTuple):
    """How one policy decides for both players of a game, by the same forward code: in batches of all that wait, or one at a time."""

    name: str
    spec: ObservationSpec
    batched: Callable[[int, Observation, np.ndarray], np.ndarray]  # (matches, what those in these rows see, the rows) -> their actions
    alone: Sequence[Callable[[Any, Any], int]]  # of each player: (observation, legal) -> action


class ActorCritic(nn.Module):
    """What algorithms on the policy need of a decision, as CleanRL writes it: a drawn action, its log-probability, and the value."""

    def __init__(self, inputs: int, actions: int, hidden: int, recurrent: bool) -> None:
        super().__init__()
        layers = [nn.Linear(inputs, hidden), nn.Tanh(), *([] if recurrent else [nn.Linear(hidden, hidden), nn.Tanh()])]
        self._body = nn.Sequential(*layers)
        self._memory = nn.LSTMCell(hidden, hidden) if recurrent else None
        self._actor, self._critic = nn.Linear(hidden, actions), nn.Linear(hidden, 1)

    def forward(self, obs: torch.Tensor, legal: torch.Tensor | None, state: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """`state`: of the LSTM, which is empty without one. Actions, log-probabilities, values, and the state afterwards."""
        hidden = self._body(obs)
        after = self._memory(hidden, state) if self._memory else ()
        hidden = after[0] if after else hidden
        logits = self._actor(hidden)
        drawn = torch.distributions.Categorical(logits=logits if legal is None else logits.masked_fill(~legal, -1e8))
        action = drawn.sample()
        return action, drawn.log_prob(action), self._critic(hidden), *after


def greedy(name: str, env_id: str, options: Sequence[str]) -> Policy:
    """The greedy policy of a new run with these options."""
    config = load_config(None, [], ["algorithm.name=ppo", f"env.id={env_id}", "policy.normalize_obs=false", *options])
    parts = build(config)
    pools, spec = {count: pool_policies(parts, 2 * count) for count in MATCHES}, parts.env_spec.obs

    def alone() -> Callable[[Any, Any], int]:
        policy = GreedyPolicy(config.policy, spec, parts.env_spec.action_space, parts.algorithm.policy_state())
        return lambda seen, legal: policy.act(seen, None if legal is None else {ACTION_MASK: legal})

    return Policy(name, spec, lambda count, obs, rows: pools[count].act(np.ones(len(rows), np.int64), obs, rows), [alone(), alone()])


def sampled(name: str, env_id: str, hidden: int, recurrent: bool = False) -> Policy:
    """An actor and a critic on a common body of so many units."""
    env_spec = check_env(EnvConfig(id=env_id))
    net = ActorCritic(env_spec.obs.vector_size, int(env_spec.action_space.n), hidden, recurrent)  # type: ignore[attr-defined]

    def decider(count: int) -> Callable[[np.ndarray, np.ndarray | None, np.ndarray], np.ndarray]:
        states = [torch.zeros(count, hidden) for _ in range(2 * recurrent)]

        def decide(obs: np.ndarray, legal: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
            own, mask = torch.from_numpy(rows), None if legal is None else torch.from_numpy(legal)
            action, _, _, *after = net(torch.from_numpy(obs.astype(np.float32)), mask, [state[own] for state in states])
            for state, new in zip(states, after, strict=True):
                state[own] = new
            return np.asarray(action.numpy())

        return decide

    many, one, first = {count: decider(2 * count) for count in MATCHES}, [decider(1), decider(1)], np.zeros(1, np.int64)

    def alone(decide: Callable[..., np.ndarray], seen: Any, legal: Any) -> int:
        return int(decide(np.reshape(seen, (1, -1)), None if legal is None else legal[None], first)[0])

    return Policy(
        name,
        env_spec.obs,
        lambda count, obs, rows: many[count](obs[VECTOR], obs.get(ACTION_MASK), rows),
        [partial(alone, decide) for decide in one],
    )


def through_matches(worlds: Sequence[World], policy: Policy) -> Callable[[], int]:
    """Twenty rounds of decisions of these matches, all that wait in one batch; a match that is over begins again."""
    names, running = [player.name for player in worlds[0].players], Matches()
    for n, world in enumerate(worlds):
        running.begin(n, world, n, names)
    running.act({})

    def work() -> int:
        count = 0
        for _ in range(20):
            turns = list(running.waiting)
            obs = policy.spec.empty(len(turns))
            for row, turn in enumerate(turns):
                controller = running.controller(turn)
                policy.spec.write(obs, row, controller.observation, {ACTION_MASK: controller.legal})
            rows = np.array([2 * turn.match + names.index(turn.player) for turn in turns])
            found = running.act(dict(zip(turns, policy.batched(len(worlds), obs, rows).tolist(), strict=True)))
            for match in {turn.match for turn, step in found.items() if step.over}:
                running.begin(match, worlds[match], match, names)
            if not running.waiting:
                running.act({})
            count += len(turns)
        return count

    return work


def pong_loop(choose: Sequence[Callable[[Any, Any], int]]) -> int:
    """Fifty frames of one game of Pong without controllers."""
    game = PongGames(1)
    game.begin(slice(None), np.zeros(1, np.uint64))
    for _ in range(50):
        game.step(np.array([[choose[side](game.observe(side)[0], None) for side in (LEFT, RIGHT)]]))
    return 50 * 2


def nim_loop(choose: Sequence[Callable[[Any, Any], int]]) -> int:
    """Ten games of Nim without controllers."""
    count = 0
    for _ in range(10):
        pile, turn = PILE, 0
        while pile:
            pile -= 1 + choose[turn](see(pile), np.arange(1, MOST + 1) <= pile)
            turn = 1 - turn
            count += 1
    return count


def turn_loop(game: Any, choose: Sequence[Callable[[Any, Any], int]]) -> int:
    """One game of PettingZoo in its own loop."""
    game.reset(seed=0)
    count = 0
    for name in game.agent_iter():
        seen, _, terminated, truncated, _ = game.last()
        over = terminated or truncated
        choice = None if over else choose[game.possible_agents.index(name)](seen["observation"], seen["action_mask"].astype(bool))
        game.step(choice)
        count += not over
    return count


def first_legal(seen: Any, legal: Any) -> int:
    """A policy that costs nothing."""
    return 0 if legal is None else int(legal.argmax())


NETWORKS = {
    "64-64": ["policy.hidden=[64,64]"],
    "256-256": ["policy.hidden=[256,256]"],
    "64, GRU 128": ["policy.hidden=[64]", "policy.memory={kind: gru, size: 128}"],
    "256, LSTM 256": ["policy.hidden=[256]", "policy.memory={kind: lstm, size: 256}"],
}
PICTURES = {"conv, 128": ["policy.hidden=[128]"]}


def match_decisions(seconds: float, repeats: int) -> None:
    """Games whose worlds are coroutines, many of them through `Matches`, against one game in a plain loop, which decides one at a time.

    "Drawn" is a decision as learners on the policy collect it, with log-probability and value; the other policies are greedy.
    """
    tictactoe, connect_four = ("pettingzoo:classic.tictactoe_v3", "pettingzoo:classic.connect_four_v3")
    games: list[tuple[str, str, Callable[[], World], Callable[..., int], dict[str, list[str]]]] = [
        ("Pong", "baldwin:VectorPong-v0", PongWorld, pong_loop, NETWORKS),
        ("Nim", "examples.nim:Nim", Nim, nim_loop, NETWORKS),
    ]
    for name, env_id, networks in (("tic-tac-toe", tictactoe, NETWORKS), ("connect four", connect_four, PICTURES)):
        make = partial(make_world, env_id.removeprefix(PREFIX))
        games.append((name, env_id, make, partial(turn_loop, make().env), networks))  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()  # as in worker processes: torch's modules are no garbage, and looking through them takes longer than a batch
    rows = []
    for name, env_id, make, loop, networks in games:
        policies = [greedy(label, env_id, options) for label, options in networks.items()]
        if networks is NETWORKS:
            policies += [sampled("64-64, drawn", env_id, 64), sampled("256, LSTM 256, drawn", env_id, 256, True)]
        for policy in policies:
            works = [through_matches([make() for _ in range(count)], policy) for count in MATCHES]
            works += [partial(loop, policy.alone), partial(loop, [first_legal] * 2)]
            *speeds, plain, simulator = in_turn(works, seconds, repeats)
            ratios = [spread([a / b for a, b in zip(own, plain, strict=True)], 1) for own in speeds]
            cells = [cell for own, ratio in zip(speeds, ratios, strict=True) for cell in (spread(own), ratio)]
            rows.append([name, policy.name, spread(plain), *cells, spread(simulator)])
    counts = [title for count in MATCHES for title in (f"{count} matches, one batch", "ratio")]
    table(
        "Decisions per CPU second, worlds as coroutines, one policy for both players",
        ["game", "policy", "a plain loop over one game, batches of one", *counts, "the plain loop without a policy"],
        rows,
    )


def in_turn(works: Sequence[Callable[[], int]], seconds: float, repeats: int) -> list[list[float]]:
    """The speeds of each, measured in turn, so that whatever else the machine does meets all of them."""
    with torch.inference_mode():
        found = [[rate(work, seconds) for work in works] for _ in range(repeats)]
    return [list(speeds) for speeds in zip(*found, strict=True)]


GAME, PLAYERS, GAMES, STEPS, BATCH, EPOCHS, CYCLES = "mpe2.simple_spread_v3", 2, 16, 100, 400, 10, 25


def self_play(seconds: float, repeats: int) -> None:
    """Whole runs of PPO in which one policy plays all players, ours and RLlib's, in turn: the same game, network, rollouts and minibatches."""
    found: dict[str, list[tuple[float, float]]] = {"baldwin": [], "RLlib": []}
    for _ in range(repeats):
        found["baldwin"].append(our_self_play(seconds))
        found["RLlib"].append(rllib_self_play(seconds))
    rows = []
    for n, unit in enumerate(("clock", "CPU, one process")):
        ours, theirs = ([speeds[n] for speeds in found[name]] for name in ("baldwin", "RLlib"))
        rows.append([unit, spread(ours), spread(theirs), spread([a / b for a, b in zip(ours, theirs, strict=True)], 1)])
    table(
        f"Decisions trained per second, PPO against itself, {GAME} with {PLAYERS} players, {GAMES} games x {STEPS} steps, 64-64 networks, "
        f"minibatches of {BATCH}, {EPOCHS} epochs",
        ["per second of", "baldwin, inline", "RLlib, new API stack", "ratio"],
        rows,
    )


def our_self_play(seconds: float) -> tuple[float, float]:
    """Decisions per second of the clock and of CPU, of a whole run in one process from the second line of metrics on."""
    options = [
        "algorithm.name=ppo",
        f"env.id=pettingzoo:{GAME}",
        f"env.kwargs={{N: {PLAYERS}, max_cycles: {CYCLES}}}",
        "env.self_play=true",
        "policy.hidden=[64,64]",
        "policy.normalize_obs=false",
        "algorithm.normalize_reward=false",
        f"algorithm.n_envs={GAMES * PLAYERS}",
        f"algorithm.block={GAMES * PLAYERS}",
        f"algorithm.rollout_length={STEPS}",
        f"algorithm.batch_size={BATCH}",
        f"algorithm.epochs={EPOCHS}",
        f"algorithm.steps_per_epoch={GAMES * PLAYERS * STEPS}",
        "run.evaluate_every=1000000",
        "run.episodes=1",
        "executor.name=inline",
        f"stop.wall_seconds={seconds + 4}",
    ]
    marks: list[tuple[float, float, int]] = []

    def watch(run: Run, line: dict[str, float]) -> None:
        if "return_mean" in line:
            marks.append((time.perf_counter(), time.process_time(), int(line["env_steps"])))

    with tempfile.TemporaryDirectory() as folder:
        train(start(load_config(None, [], options), Path(folder) / "run"), [watch])
    (clock, cpu, steps), (last_clock, last_cpu, last_steps) = marks[0], marks[-1]
    return (last_steps - steps) / (last_clock - clock), (last_steps - steps) / (last_cpu - cpu)


def rllib_self_play(seconds: float) -> tuple[float, float]:
    command = [str(peer_python("rllib", RLLIB)), str(HERE / "rllib_peer.py"), GAME, "--seconds", str(seconds), "--warm-up", "1"]
    command += ["--players", str(PLAYERS), "--n-envs", str(GAMES), "--n-steps", str(STEPS), "--cycles", str(CYCLES)]
    command += ["--batch", str(BATCH), "--epochs", str(EPOCHS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    speeds = json.loads(done.stdout.splitlines()[-1])
    return float(speeds["steps_per_second"]), float(speeds["steps_per_cpu_second"])


def main(repeats: int = 3, seconds: float = 2.0) -> None:
    torch.set_num_threads(1)
    frames(seconds, repeats)
    pong_decisions(seconds, repeats)
    match_decisions(seconds, repeats)
    self_play(10.0, 1)
    live.compare(60.0, 1)


if __name__ == "__main__":
    main()
