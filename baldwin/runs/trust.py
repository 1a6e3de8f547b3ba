"""Whose run directory is this? A config carries the id of its run and a keyed hash; the key is in the user's config folder.

A directory whose hash does not verify was written by someone else, or edited. It is read as data; classes that its config
names are imported only when the user says so.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
from pathlib import Path

log = logging.getLogger("baldwin")
HEADER = re.compile(r"# baldwin run ([0-9a-f]{16}) signature ([0-9a-f]{64}|none)\n")
KEY_BYTES = 32


def new_run_id() -> str:
    """A random id for a new run: 16 hexadecimal digits."""
    return secrets.token_hex(8)


def key_path() -> Path:
    """Where this user's key lies."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "baldwin" / "key"


def user_key(create: bool = False) -> bytes | None:
    """This user's secret key, made on first use if `create`; None if there is none or it cannot be read."""
    try:
        path = key_path()
        if create and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"key.{os.getpid()}")
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            try:
                os.link(temporary, path)  # unlike a rename, it never replaces a key that another process has just made
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
        key = path.read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: no home
        return None
    return key if len(key) == KEY_BYTES else None


def header_of(run_id: str, body: str, sign: bool = True) -> str:
    """The first line of a run's config: its id, and the signature of id and body if it is to be signed."""
    key = user_key(create=True) if sign else None
    if sign and key is None:
        log.warning("no key can be kept at %s, so that this run will count as somebody else's: see docs/reliability.md", key_path())
    return f"# baldwin run {run_id} signature {_signature(run_id, body, key)}\n"


def read_header(text: str) -> tuple[str | None, bool]:
    """The run's id (None: it has none), and whether this user wrote this config."""
    found = HEADER.match(text)
    if not found:
        return None, False
    run_id, signature = found.groups()
    own = _signature(run_id, text[found.end() :], user_key())
    return run_id, own != "none" and hmac.compare_digest(own, signature)


def _signature(run_id: str, body: str, key: bytes | None) -> str:
    return hmac.new(key, f"{run_id}\n{body}".encode(), hashlib.sha256).hexdigest() if key else "none"
