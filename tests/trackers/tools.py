"""Trackers that misbehave, as a plugin that is really installed; and a reader of W&B's offline files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

PLUGIN = """
import os, time
from baldwin.trackers import TrackerEntry, register_tracker

class Misbehaving:
    destination = "nowhere"

    def __init__(self, run, how):
        self.run, self.how = run, how
        if how == "refuses":
            raise RuntimeError("no such account")

    def log_config(self, config):
        pass

    def write(self, metrics, step):
        if self.how == "raises":
            raise RuntimeError("the network is gone")
        if self.how == "blocks":
            (self.run.folder / "blocked").touch()
            time.sleep(1e6)
        if self.how == "dies":
            os._exit(7)

    def close(self):
        pass

for how in ("refuses", "raises", "blocks", "dies"):
    register_tracker(TrackerEntry(how, lambda options, run, how=how: Misbehaving(run, how)))
register_tracker(TrackerEntry("needs-more", lambda options, run: None, module="a_library_that_nobody_has", extra="wandb"))
"""


def install_plugin(site: Path) -> None:
    """A package with an entry point, as pip would leave it in this folder."""
    (site / "misbehaving_trackers.py").write_text(PLUGIN)
    info = site / "misbehaving_trackers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving-trackers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[baldwin.plugins]\nmisbehaving = misbehaving_trackers\n")


def wandb_rows(run: Path) -> list[dict[str, Any]]:
    """The rows of all offline files of a W&B run, in the order in which they were written."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows = []
    for file in sorted(run.glob("wandb/offline-run-*/run-*.wandb")):
        for content in _records(file.read_bytes()):
            record = Record.FromString(content)
            if record.WhichOneof("record_type") == "history":
                rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item})
    return rows


def _records(content: bytes) -> list[bytes]:
    """The records of a file in the format of LevelDB's log: blocks of 32 KiB of parts, each with checksum, length and kind."""
    found, parts, at = [], b"", 7  # behind W&B's own header
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # the rest of a block is too small for a part
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        if kind == 0:
            break
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(parts)
            parts = b""
    return found
