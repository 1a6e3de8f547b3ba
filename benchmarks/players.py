"""Worlds of several players: frames of vector Pong, decisions of matches against a plain loop with batches of one, self-play against RLlib's,
and a live world."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from baldwin.config import load_config
from baldwin.envs.matches import Matches
from baldwin.envs.pettingzoo import make_world, without_checks
from baldwin.envs.pong import LEFT, N_ACTIONS, RIGHT, PongGames
from baldwin.envs.pong_world import SIDES, PongWorld
from baldwin.networks import GreedyPolicy
from baldwin.observations import VECTOR
from baldwin.opponents import OPPONENTS
from baldwin.rollout import RolloutWorker
from baldwin.rollout.opponent_policies import PoolPolicies
from baldwin.runs.build import Parts, build
from baldwin.runs.run import Run, start, train
from baldwin.types import Shared
from benchmarks import live
from benchmarks.on_policy import RLLIB
from benchmarks.tools import HERE, peer_python, spread, table


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
    """Both players of 32 games by one 64-64 policy: stepped side by side, and one game after the other."""
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

    def one_by_one() -> int:
        single.begin(0, world, 1, ["left", "right"])
        single.act({})
        for _ in range(50):
            single.act({turn: alone.act(single.controller(turn).observation) for turn in list(single.waiting)})
        return 50 * 2

    together, plain = ([rate(work, seconds) for _ in range(repeats)] for work in (side_by_side, one_by_one))
    ratio = spread([a / b for a, b in zip(together, plain, strict=True)], 1)
    table(
        f"Decisions per second, Pong, 64-64 policy for both players, {matches} games",
        ["side by side", "a loop with batches of one", "ratio"],
        [[spread(together), spread(plain), ratio]],
    )


def coroutine_decisions(seconds: float, repeats: int, matches: int = 32) -> None:
    """The same of worlds that are coroutines: 32 of them through `Matches` with one batch, and a plain loop over one game without any."""
    config = load_config(None, [], ["algorithm.name=ppo", "env.id=baldwin:VectorPong-v0", "policy.hidden=[64,64]"])
    parts = build(config)
    policies, spec = pool_policies(parts, 2 * matches), parts.env_spec.obs
    worlds, running = [PongWorld() for _ in range(matches)], Matches()
    for n, world in enumerate(worlds):
        running.begin(n, world, n, SIDES)
    running.act({})

    def batched() -> int:
        count = 0
        for _ in range(20):
            turns = list(running.waiting)
            seen = {VECTOR: np.stack([running.controller(turn).observation for turn in turns])}
            rows = np.array([2 * turn.match + SIDES.index(turn.player) for turn in turns])
            actions = policies.act(np.ones(len(turns), np.int64), seen, rows)
            for turn, step in running.act(dict(zip(turns, actions, strict=True))).items():
                if step.over and turn.player == SIDES[LEFT]:
                    running.begin(turn.match, worlds[turn.match], turn.match, SIDES)
            if not running.waiting:
                running.act({})
            count += len(turns)
        return count

    alone = GreedyPolicy(config.policy, spec, parts.env_spec.action_space, parts.algorithm.policy_state())
    game = PongGames(1)
    game.begin(slice(None), np.zeros(1, np.uint64))

    def plain() -> int:
        for _ in range(50):
            game.step(np.array([[alone.act(game.observe(side)[0]) for side in (LEFT, RIGHT)]]))
            if game.over[0]:
                game.begin(slice(None), np.zeros(1, np.uint64))
        return 50 * 2

    found: list[list[float]] = [[], []]
    with torch.inference_mode():
        for _ in range(repeats):  # in turn, so that whatever else the machine does meets both
            for speeds, work in zip(found, (batched, plain), strict=True):
                speeds.append(rate(work, seconds))
    together, loop = found
    running.close()
    table(
        f"Decisions per second, Pong as a coroutine, 64-64 policy for both players, {matches} matches",
        ["matches, one batch", "a plain loop, batches of one", "ratio"],
        [[spread(together), spread(loop), spread([a / b for a, b in zip(together, loop, strict=True)], 1)]],
    )


def turn_decisions(seconds: float, repeats: int, matches: int = 32) -> None:
    """The same of a turn-based game, whose simulator is PettingZoo's own: through matches with one batch, and in its own loop."""
    config = load_config(
        None, [], ["algorithm.name=ppo", "env.id=pettingzoo:classic.tictactoe_v3", "policy.hidden=[64,64]", "policy.normalize_obs=false"]
    )
    parts = build(config)
    policies = pool_policies(parts, matches)
    worlds, running = [make_world("classic.tictactoe_v3") for _ in range(matches)], Matches()
    names, spec = [p.name for p in worlds[0].players], parts.env_spec.obs

    def batched() -> int:
        count = 0
        for n, world in enumerate(worlds):
            running.begin(n, world, n, names)
        running.act({})
        while running.waiting:
            turns = list(running.waiting)
            seen = spec.empty(len(turns))
            for n, turn in enumerate(turns):
                controller = running.controller(turn)
                spec.write(seen, n, controller.observation, {"action_mask": controller.legal})
            actions = policies.act(np.ones(len(turns), np.int64), seen, np.array([turn.match for turn in turns]))
            count += len(turns)
            running.act(dict(zip(turns, actions, strict=True)))
        return count

    alone = GreedyPolicy(config.policy, spec, parts.env_spec.action_space, parts.algorithm.policy_state())
    env = worlds[0].env  # type: ignore[attr-defined]

    def plain() -> int:
        env.reset(seed=0)
        count = 0
        for _ in env.agent_iter():
            seen, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                env.step(None)
                continue
            env.step(alone.act(seen["observation"], {"action_mask": seen["action_mask"].astype(bool)}))
            count += 1
        return count

    game = without_checks(env)

    def simulator() -> int:
        game.reset(seed=0)
        count = 0
        for _ in game.agent_iter():
            seen, _, terminated, truncated, _ = game.last()
            over = terminated or truncated
            game.step(None if over else int(seen["action_mask"].argmax()))
            count += not over
        return count

    found: list[list[float]] = [[], [], []]
    with torch.inference_mode():
        for _ in range(repeats):  # in turn, so that whatever else the machine does meets all of them
            for speeds, work in zip(found, (batched, plain, simulator), strict=True):
                speeds.append(rate(work, seconds))
    together, loop, simulated = found
    table(
        f"Decisions per second, PettingZoo's tic-tac-toe, 64-64 policy for both players, {matches} games",
        ["matches, one batch", "PettingZoo's loop, batches of one", "ratio", "the simulator alone", "ratio at most"],
        [
            [
                spread(together),
                spread(loop),
                spread([a / b for a, b in zip(together, loop, strict=True)], 1),
                spread(simulated),
                spread([a / b for a, b in zip(simulated, loop, strict=True)], 1),
            ]
        ],
    )


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
    coroutine_decisions(seconds, repeats)
    turn_decisions(seconds, repeats)
    self_play(10.0, 1)
    live.compare(60.0, 1)


if __name__ == "__main__":
    main()
