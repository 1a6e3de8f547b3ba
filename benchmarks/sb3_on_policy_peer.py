"""Runs in Stable-Baselines3's own venv: PPO, A2C or DQN with our settings. Speed, or a learning run with its scores."""

import argparse
import json
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

EPISODES, FIRST_SEED = 16, 10_000
ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "elu": torch.nn.ELU}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithm", choices=["ppo", "a2c", "dqn"])
    parser.add_argument("env")
    parser.add_argument("--seconds", type=float, default=0.0, help="measure speed for so long")
    parser.add_argument("--steps", type=int, default=0, help="or learn for so many steps, with evaluations")
    parser.add_argument("--evaluate-every", type=int, default=10_000, help="steps between evaluations")
    parser.add_argument("--n-envs", type=int, default=8)
    parser.add_argument("--n-steps", type=int, default=0, help="steps of each environment in a rollout; dqn: train_freq")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--hidden", type=int, nargs="*", default=[64, 64])
    parser.add_argument("--vec", choices=["dummy", "subproc"], default="dummy")
    parser.add_argument("--normalize", action="store_true", help="VecNormalize: observations and rewards")
    parser.add_argument("--settings", type=json.loads, default={}, help="the Zoo's keys as JSON; they win over the options")
    parser.add_argument("--warm-up", type=int, default=3, help="rollouts before the clock starts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


def schedule(value: Any) -> Any:
    """`lin_0.001` falls linearly to 0 with what is left of the run."""
    if not isinstance(value, str):
        return value
    kind, start = value.split("_")
    if kind != "lin":
        raise SystemExit(f"schedule {value}: only lin_ is known")
    return lambda left: left * float(start)


def settings(args: argparse.Namespace) -> tuple[dict[str, Any], int, bool]:
    """Arguments of the algorithm, number of environments, and whether to normalise."""
    own: dict[str, Any] = {"seed": args.seed, "device": "cpu"}
    names = {"ppo": ("n_steps", "batch_size", "n_epochs"), "a2c": ("n_steps",), "dqn": ("train_freq", "batch_size", "gradient_steps")}
    options = (args.n_steps, args.batch, args.epochs)
    own |= {name: value for name, value in zip(names[args.algorithm], options, strict=False) if value}
    zoo = dict(args.settings)
    n_envs, normalize = int(zoo.pop("n_envs", args.n_envs)), bool(zoo.pop("normalize", args.normalize))
    zoo.pop("n_timesteps", None)
    zoo.pop("policy", None)
    network = {"net_arch": args.hidden} | dict(zoo.pop("policy_kwargs", {}))
    if "activation_fn" in network:
        network["activation_fn"] = ACTIVATIONS[network["activation_fn"]]
    own |= {key: schedule(value) for key, value in zoo.items()} | {"policy_kwargs": network}
    return own, n_envs, normalize


class Clock(BaseCallback):
    """Marks the start of every rollout: between two of them lie a rollout and the learning from it."""

    def __init__(self, seconds: float, warm_up: int, start: int) -> None:
        super().__init__()
        self._seconds, self._warm_up, self._start = seconds, warm_up, start
        self.first: tuple[float, int, float] | None = None
        self.last = (0.0, 0, 0.0)

    def _on_rollout_start(self) -> None:
        if self.num_timesteps < self._start:
            return
        self._warm_up -= 1
        if self._warm_up < 0:
            self.last = (time.perf_counter(), self.num_timesteps, time.process_time())
            self.first = self.first or self.last

    def _on_step(self) -> bool:
        return self.first is None or self.last[0] - self.first[0] < self._seconds

    def speeds(self) -> dict[str, float]:
        """Also per second of CPU time of this process: with --vec dummy and --threads 1 that hardly depends on who else uses the machine."""
        if self.first is None or self.last[1] == self.first[1]:
            raise SystemExit("not one rollout within the time")
        seconds, steps, cpu = (b - a for a, b in zip(self.first, self.last, strict=True))
        return {"steps_per_second": steps / seconds, "steps_per_cpu_second": steps / cpu}


class Scores(BaseCallback):
    """Evaluates after every so many steps, when a rollout was learned from."""

    def __init__(self, env: str, every: int) -> None:
        super().__init__()
        self._envs = [gym.make(env) for _ in range(EPISODES)]
        self._every, self._next, self._began, self._evaluating = every, every, time.perf_counter(), 0.0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._next:
            self._next = (self.num_timesteps // self._every + 1) * self._every
            self._report()

    def _on_training_end(self) -> None:
        self._report()

    def _report(self) -> None:
        begun = time.perf_counter()
        score = self._score()
        now = time.perf_counter()
        self._evaluating += now - begun
        line = {"env_steps": self.num_timesteps, "score": score, "seconds": now - self._began}
        print(json.dumps(line | {"learning_seconds": now - self._began - self._evaluating}), flush=True)

    def _score(self) -> float:
        """Greedy episodes side by side; each environment plays one."""
        normaliser = self.model.get_vec_normalize_env()
        obs = np.stack([env.reset(seed=FIRST_SEED + n)[0] for n, env in enumerate(self._envs)])
        total, playing = 0.0, list(range(EPISODES))
        while playing:
            seen = normaliser.normalize_obs(obs) if normaliser else obs
            actions, _ = self.model.predict(seen, deterministic=True)
            for n in list(playing):
                obs[n], reward, terminated, truncated, _ = self._envs[n].step(actions[n])
                total += float(reward)
                if terminated or truncated:
                    playing.remove(n)
        return total / EPISODES


def main() -> None:
    args = arguments()
    if bool(args.seconds) == bool(args.steps):
        raise SystemExit("expected --seconds or --steps")
    if args.threads:
        torch.set_num_threads(args.threads)
    own, n_envs, normalize = settings(args)
    kind = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[args.vec]
    env: Any = make_vec_env(args.env, n_envs, seed=args.seed, vec_env_cls=kind)
    if normalize:
        env = VecNormalize(env, gamma=own.get("gamma", 0.99))
    model = {"ppo": PPO, "a2c": A2C, "dqn": DQN}[args.algorithm]("MlpPolicy", env, **own)
    if args.seconds:
        clock = Clock(args.seconds, args.warm_up, getattr(model, "learning_starts", 0))
        model.learn(10**9, callback=clock)
        print(json.dumps(clock.speeds()))
    else:
        model.learn(args.steps, callback=Scores(args.env, args.evaluate_every))
    env.close()


if __name__ == "__main__":  # SubprocVecEnv starts this file again in every process
    main()
