"""The worked examples of CONTRIBUTING.md apply to the present code, register what they say, and pass their own tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DIFFS = re.findall(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
FIND = {
    "snes": "from baldwin.config import load_config; assert load_config(algorithm='snes', env='CartPole-v1').algorithm.name == 'snes'",
    "ddpg": "from baldwin.config import load_config; assert load_config('pendulum-ddpg').algorithm.name == 'ddpg'",
    "leaky": "from baldwin.networks import MEMORIES; assert len(MEMORIES) == 5",
    "point": "from baldwin.envs import BACKENDS; assert len(BACKENDS) == 6",
    "shuffled": "from baldwin.executors import EXECUTORS; assert len(EXECUTORS) == 5",
}


def test_every_kind_of_part_has_an_example() -> None:
    assert len(DIFFS) == len(FIND)


@pytest.mark.parametrize("number", range(len(DIFFS)))
def test_an_example_applies_registers_its_part_and_passes_its_tests(number: int, tmp_path: Path) -> None:
    diff = DIFFS[number]
    (code,) = [code for word, code in FIND.items() if re.search(rf"^\+\+\+ b/baldwin/\S*{word}", diff, re.MULTILINE)]
    for name in ("baldwin", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    done = subprocess.run(["git", "apply", "-"], input=diff, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    own = re.findall(r"^--- /dev/null\n\+\+\+ b/(tests/\S+)", diff, re.MULTILINE) or ["tests/executors/test_executors.py", "-kshuffled"]
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *own], cwd=tmp_path, capture_output=True, text=True
    )
    assert tests.returncode == 0, tests.stdout
