"""The game in a real browser, against a worker that trains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from baldwin.envs.pong import LEFT, RIGHT, PongGames
from examples import browser_pong
from tests.chromium import CHROMIUM, open_tab
from tests.envs.test_live_clients import NODE, free_port
from tests.patience import PATIENCE

SMALL = ["policy.hidden=[8]", "algorithm.n_envs=4", "algorithm.block=4", "algorithm.rollout_length=16", "algorithm.steps_per_epoch=64"]
CODE = Path(browser_pong.__file__).parent / "pong.js"


@pytest.fixture
def page_url(tmp_path: Path) -> Iterator[str]:
    """The example as its user starts it, with a smaller policy."""
    command = [sys.executable, "-m", "examples.browser_pong", "--port", "0", "--worker-port", str(free_port())]
    game = subprocess.Popen([*command, f"run.out={tmp_path}", *SMALL], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert game.stdout is not None
    try:
        yield game.stdout.readline().split()[1]
    finally:
        os.killpg(game.pid, signal.SIGKILL)
        game.wait()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
def test_a_policy_learns_in_the_browser_and_plays_its_user(page_url: str, tmp_path: Path) -> None:
    with open_tab(page_url + "&rounds=2") as tab:
        tab.wait_for("typeof page === 'object' && running().length >= 4")
        tab.wait_for("running().some((match) => match.isRemote(0) && match.game.bats[0] !== 72.5)")  # where only the policy moves it
        before = tab.evaluate("page.decisions")
        tab.key("keyDown", "ArrowUp")
        tab.wait_for("running()[0]?.game.bats[1] === 0")
        tab.key("keyUp", "ArrowUp")
        tab.key("keyDown", "s")
        tab.wait_for("running()[0]?.game.bats[1] === 145")
        assert tab.evaluate("document.getElementById('players').textContent") == "left: the policy  —  right: you"
        tab.key("keyUp", "s")
        assert learning_steps(tmp_path) > 0
        assert tab.evaluate("page.decisions") > before


def learning_steps(folder: Path, seconds: float = PATIENCE) -> float:
    """Updates of the policy in the run of this folder, when there are some; the deadline is for what never happens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        lines = [json.loads(line) for path in folder.glob("*/metrics.jsonl") for line in path.read_text().splitlines()]
        if updates := sum(line.get("updates", 0) for line in lines):
            return float(updates)
        time.sleep(0.1)
    return 0.0


PLAY = """
const games = JSON.parse(process.argv[1]);
console.log(JSON.stringify(games.map(({velocity, actions}) => {
  const game = new Pong(1);
  game.velocity = velocity;
  return actions.map((pair) => [game.frame(pair), game.observe(0), game.observe(1)]);
})));
"""


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
def test_the_rules_are_those_of_vector_pong() -> None:
    """The same serve and the same actions for a first round, in which the bats follow the ball most of the time."""
    rng, games, frames = np.random.default_rng(0), PongGames(8), 200
    games.begin(slice(None), np.arange(8, dtype=np.uint64))
    velocity, actions, expected = games.velocity.copy(), [], []
    for _ in range(frames):
        first_round, turned = games.round == 0, games.velocity[:, 0].copy()
        followed = np.stack([games.track(LEFT), games.track(RIGHT)], 1)
        actions.append(np.where(rng.random((8, 2)) < 0.1, rng.integers(0, 3, (8, 2)), followed))
        reward = games.step(actions[-1])
        expected.append((first_round, games.round == 0, reward, games.observe(LEFT), games.observe(RIGHT), games.velocity[:, 0] != turned))
    code = CODE.read_text()
    rules = "const ROUNDS = 20;" + code[code.index("const SIZE") : code.index("/** A game whose sides")]
    given = [{"velocity": velocity[n].tolist(), "actions": [pair[n].tolist() for pair in actions]} for n in range(8)]
    answer = subprocess.run([str(NODE), "-e", rules + PLAY, json.dumps(given)], capture_output=True, text=True, check=True)
    found, bounces = json.loads(answer.stdout), 0
    for frame, (before, after, reward, left, right, turned) in enumerate(expected):
        for n in np.flatnonzero(before).tolist():
            assert found[n][frame][0] == reward[n].tolist()
        for n in np.flatnonzero(after).tolist():
            bounces += int(turned[n])
            assert found[n][frame][1:] == [pytest.approx(left[n].tolist(), abs=1e-5), pytest.approx(right[n].tolist(), abs=1e-5)]
    assert bounces >= 8
