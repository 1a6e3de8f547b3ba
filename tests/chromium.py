"""A headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.patience import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-port=0"]


class Tab:
    """The only tab."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._numbers = socket, count(1)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A method of the DevTools protocol, and its answer."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(60))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return dict(message["result"])

    def evaluate(self, code: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{code}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, code: str, seconds: float = PATIENCE) -> None:
        """Until an expression is true; the deadline is for what never happens, not for slow machines."""
        end = time.monotonic() + seconds
        while not self.evaluate(code):
            if time.monotonic() > end:
                raise TimeoutError(code)
            time.sleep(0.05)

    def key(self, kind: str, key: str) -> None:
        """`kind`: keyDown or keyUp."""
        self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, path: Path) -> None:
        """A picture of the page as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def open_tab(url: str) -> Iterator[Tab]:
    """A page in a new browser with a profile of its own."""
    with tempfile.TemporaryDirectory(prefix="baldwin-chromium-", ignore_cleanup_errors=True) as profile:
        command = [str(CHROMIUM), *OPTIONS, f"--user-data-dir={profile}", "--window-size=640,820", "about:blank"]
        browser = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert browser.stderr is not None
            address = next(found[1] for line in browser.stderr if (found := re.search(r"DevTools listening on ws://([^/]+)/", line)))
            with urllib.request.urlopen(f"http://{address}/json/list", timeout=PATIENCE) as answer:
                target = next(tab for tab in json.load(answer) if tab["type"] == "page")
            with connect(target["webSocketDebuggerUrl"], max_size=None, compression=None, proxy=None) as socket:
                tab = Tab(socket)
                tab.call("Page.navigate", url=url)
                yield tab
        finally:
            browser.kill()
            browser.wait()
