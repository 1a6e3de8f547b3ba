"""Runs in Stable-Baselines3's own venv: TD3 or SAC with our settings. Speed, or a learning run with its scores."""

import argparse
import json
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise

parser = argparse.ArgumentParser()
parser.add_argument("algorithm", choices=["td3", "sac"])
parser.add_argument("env")
parser.add_argument("--seconds", type=float, default=0.0, help="measure speed for so long")
parser.add_argument("--steps", type=int, default=0, help="or learn for so many steps, with an evaluation every 10 k")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--threads", type=int, default=0)
args = parser.parse_args()
if args.threads:
    torch.set_num_threads(args.threads)

env = gym.make(args.env)
start = 1000 if args.seconds else {"td3": 25_000, "sac": 10_000}[args.algorithm]
common = {"learning_rate": 3e-4, "batch_size": 256, "learning_starts": start, "train_freq": 1, "gradient_steps": 1, "seed": args.seed}
if args.algorithm == "td3":
    noise = NormalActionNoise(np.zeros(env.action_space.shape), 0.1 * np.ones(env.action_space.shape))
    model = TD3("MlpPolicy", env, action_noise=noise, policy_kwargs={"net_arch": [256, 256]}, **common)
else:
    model = SAC("MlpPolicy", env, policy_kwargs={"net_arch": [256, 256]}, **common)


class Clock(BaseCallback):
    begun = cpu = 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps == start + 100:
            self.begun, self.cpu = time.perf_counter(), time.process_time()
        return not self.begun or time.perf_counter() - self.begun < args.seconds


class Scores(BaseCallback):
    def _on_step(self) -> bool:
        if self.num_timesteps % 10_000 == 0:
            print(json.dumps({"env_steps": self.num_timesteps, "score": score(), "seconds": time.perf_counter() - began}), flush=True)
        return True


def score(episodes: int = 16) -> float:
    held_out, total = gym.make(args.env), 0.0
    for n in range(episodes):
        obs, _ = held_out.reset(seed=10_000 + n)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = held_out.step(model.predict(obs, deterministic=True)[0])
            total, over = total + float(reward), terminated or truncated
    return total / episodes


began = time.perf_counter()
if args.seconds:
    clock = Clock()
    model.learn(10**9, callback=clock)
    steps, wall, cpu = model.num_timesteps - start - 100, time.perf_counter() - clock.begun, time.process_time() - clock.cpu
    print(json.dumps({"steps_per_second": steps / wall, "steps_per_cpu_second": steps / cpu}))
else:
    model.learn(args.steps, callback=Scores())
