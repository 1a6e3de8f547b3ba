"""Serves the page on this machine, and starts training when somebody opens it; Ctrl-C ends both.

python -m examples.browser_pong [--port 8000] [--worker-port 8765] [further overrides, as after -m]
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def train_command(port: int, overrides: list[str]) -> list[str]:
    """PPO in 16 matches at once, always on the left, that goes on playing while it learns; an evaluation before and one after."""
    settings = ["env.kwargs={player: left}", "algorithm.actor_lag=1", "algorithm.n_envs=16", "algorithm.block=16"]
    settings += ["algorithm.rollout_length=128", "executor.workers=1", "run.evaluate_every=1000000", "run.episodes=1", *overrides]
    return [sys.executable, "-m", "baldwin", "train", "--algo", "ppo", "--env", f"live:listen://127.0.0.1:{port}", "-m", *settings]


class Page(SimpleHTTPRequestHandler):
    """Files of this folder; `opened` is set when one is asked for."""

    opened = threading.Event()

    def do_GET(self) -> None:
        """Send a file."""
        self.opened.set()
        super().do_GET()

    def log_message(self, *args: object) -> None:
        """Requests are not printed."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.browser_pong")
    parser.add_argument("--port", type=int, default=8000, help="of the page")
    parser.add_argument("--worker-port", type=int, default=8765, help="at which the page and the worker meet")
    parser.add_argument("overrides", nargs="*", help="such as stop.env_steps=100000")
    options = parser.parse_args()
    with ThreadingHTTPServer(("127.0.0.1", options.port), partial(Page, directory=Path(__file__).parent)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = train_command(options.worker_port, options.overrides)
        print(
            f"open http://127.0.0.1:{server.server_port}/?port={options.worker_port}\nwhich then starts: {shlex.join(command)}", flush=True
        )
        Page.opened.wait()
        with subprocess.Popen(command) as training, suppress(KeyboardInterrupt):  # Ctrl-C reaches it, too: it saves and ends
            training.wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
