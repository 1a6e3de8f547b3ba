"""A live world at 60 frames a second in its own process: ticks that it misses and actions that come late, without players, with a policy that
does not learn, and with one that does.

The world never waits, so that it misses a tick only when it gets no core; what comes of a slow player or learner is a late action. What
learning costs is the difference between the last two cases. The world has a session of its own, as if it were started from another
terminal: Linux shares the cores among sessions first, and niceness counts only within one (`kernel.sched_autogroup_enabled`).

python -m benchmarks.live --seconds 60 --repeats 1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from baldwin.config import load_config
from baldwin.processes import lower_priority
from baldwin.runs.run import Run, start, train
from benchmarks.tools import table

MATCHES = 50
COLUMNS = [
    "50 matches, 60 ticks/s",
    "frames",
    "cores of the world",
    "missed ticks",
    "late actions",
    "latency, ms: 50 / 95 / 99 %",
    "decisions",
]


def run_options(url: str, frames: str, *more: str) -> list[str]:
    """Of a run in which one worker plays all matches; another one learns."""
    return [
        f"env.id=live:{url}",
        f"env.kwargs={{frames: {frames}}}",
        "algorithm.name=ppo",
        f"algorithm.n_envs={MATCHES}",
        f"algorithm.block={MATCHES}",
        "algorithm.rollout_length=64",
        "executor.name=process",
        "executor.workers=2",
        *more,
    ]


async def watch(url: str, seconds: float) -> None:
    """Matches that nobody plays: turns are read and not answered."""
    import msgpack
    from websockets.asyncio.client import connect

    async with connect(url, proxy=None, compression=None) as socket:
        await socket.send(json.dumps({"type": "hello", "version": 1, "token": "", "frames": "packed"}))
        await socket.recv()
        numbers, missing, end = count(), MATCHES, time.monotonic() + seconds
        while time.monotonic() < end:
            for number in islice(numbers, missing):
                await socket.send(msgpack.packb({"type": "begin", "match": number, "seed": number, "players": ["left"]}))
            missing = len(msgpack.unpackb(await socket.recv())["ends"])


def play(url: str, frames: str, seconds: float, learns: bool) -> None:
    """A run without evaluations, which play one match at a time; the policy learns, or segments are only collected and written to the journal."""
    config = load_config(None, [], run_options(url, frames, *(["algorithm.actor_lag=1"] if learns else [])))
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        run = start(config, Path(folder) / "run")
        run.due = lambda algorithm: ()  # type: ignore[method-assign]
        if learns:
            lower_priority()  # as `baldwin train` does
        else:
            run.algorithm.learner.update = lambda experience, steps: {}  # type: ignore[attr-defined]
        train(run, [partial(_stop_after, time.monotonic() + seconds)])


def _stop_after(end: float, run: Run, line: dict[str, float]) -> None:
    if time.monotonic() > end:
        print(int(line["env_steps"]))
        raise KeyboardInterrupt


def measure(case: str, frames: str, seconds: float) -> dict[str, Any]:
    """The world's report after so many seconds, and how many decisions the players took."""
    server = subprocess.Popen([sys.executable, "-m", "examples.live_pong", "0"], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    command = [sys.executable, "-m", "benchmarks.live", "--case", case, "--frames", frames, "--url", url, "--seconds", str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    server.terminate()
    report = json.loads(server.stdout.read())
    server.wait()
    return report | {"decisions": int(done.stdout or 0)}


CASES = {
    "nobody plays": ("watch", "packed"),
    "a policy that does not learn": ("play", "packed"),
    "PPO learns meanwhile": ("learn", "packed"),
    "a policy that does not learn, JSON": ("play", "json"),
    "PPO learns meanwhile, JSON": ("learn", "json"),
}


def compare(seconds: float, repeats: int, cases: Sequence[str] = tuple(CASES)) -> None:
    """All cases in turn, so that whatever else the machine does meets all of them."""
    found: dict[str, list[dict[str, Any]]] = {case: [] for case in cases}
    for _ in range(repeats):
        for case in cases:
            found[case].append(measure(*CASES[case], seconds))
    rows = []
    for case, reports in found.items():
        report = sorted(reports, key=lambda r: r["missed_ticks"] / r["ticks"])[len(reports) // 2]
        answered = report["frames"] if "latency_ms_p50" in report else 0
        ticks = report["ticks"] + report["missed_ticks"]
        rows.append(
            [
                case,
                f"{report['frames']:,}",
                f"{report['cpu_seconds'] / (ticks / 60):.2f}",
                f"{report['missed_ticks']} of {ticks:,} ({100 * report['missed_ticks'] / ticks:.2f} %)",
                f"{100 * report.get('late_actions', 0) / answered:.2f} %" if answered else "",
                " / ".join(f"{report[f'latency_ms_p{q}']:.0f}" for q in (50, 95, 99)) if answered else "",
                f"{report['decisions']:,}" if answered else "",
            ]
        )
    table(f"A live world in its own process, {seconds:.0f} s", COLUMNS, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--case", choices=["watch", "play", "learn"], help="only the players' side, at --url")
    parser.add_argument("--frames", default="packed")
    parser.add_argument("--url", default="")
    args = parser.parse_args()
    if args.case == "watch":
        asyncio.run(watch(args.url, args.seconds))
    elif args.case:
        play(args.url, args.frames, args.seconds, learns=args.case == "learn")
    else:
        compare(args.seconds, args.repeats)


if __name__ == "__main__":
    main()
