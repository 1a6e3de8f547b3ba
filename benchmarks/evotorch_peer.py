"""Runs in EvoTorch's own venv: PGPE, 64-64 tanh, 128 individuals, two Ray actors, observation normalisation."""

import json
import os
import sys
import time

from evotorch.algorithms import PGPE
from evotorch.neuroevolution import GymNE

name, seconds = sys.argv[1], float(sys.argv[2])
net = "Linear(obs_length, 64) >> Tanh() >> Linear(64, 64) >> Tanh() >> Linear(64, act_length)"
problem = GymNE(name, net, observation_normalization=True, num_actors=len(os.sched_getaffinity(0)))
search = PGPE(
    problem,
    popsize=128,
    radius_init=2.25,
    center_learning_rate=0.1,
    stdev_learning_rate=0.1,
    optimizer="clipup",
    optimizer_config={"max_speed": 0.2},
)
search.step()
begun, before = time.perf_counter(), int(search.status["total_interaction_count"])
while time.perf_counter() - begun < seconds:
    search.step()
steps = int(search.status["total_interaction_count"]) - before
print(json.dumps({"steps_per_second": steps / (time.perf_counter() - begun)}))
os._exit(0)  # Ray's shutdown is not what is measured
