"""Runs in cpprb's own venv: batches of 256 by priority out of 1 M transitions of HalfCheetah, priorities set anew after each."""

import json
import time

import numpy as np
from cpprb import PrioritizedReplayBuffer

ROWS, BATCH, BATCHES, REPEATS, OBS, ACTIONS = 1_000_000, 256, 50, 8, 17, 6

rng = np.random.default_rng(0)
columns = {"obs": {"shape": OBS}, "act": {"shape": ACTIONS}, "rew": {}, "next_obs": {"shape": OBS}, "done": {}}
replay = PrioritizedReplayBuffer(ROWS, columns, alpha=0.6)
part = 50_000
for _ in range(ROWS // part):
    obs = rng.standard_normal((part, OBS), dtype=np.float32)
    act = rng.uniform(-1, 1, (part, ACTIONS)).astype(np.float32)
    rew = rng.standard_normal(part, dtype=np.float32)
    replay.add(obs=obs, act=act, rew=rew, next_obs=obs, done=np.zeros(part), priorities=rng.exponential(size=part))

rates = []
for _ in range(REPEATS):
    begun = time.process_time()
    for _ in range(BATCHES):
        batch = replay.sample(BATCH, beta=0.4)
        replay.update_priorities(batch["indexes"], rng.exponential(size=BATCH))
    rates.append((time.process_time() - begun) / BATCHES * 1e3)
print(json.dumps({"milliseconds": rates[1:]}))
