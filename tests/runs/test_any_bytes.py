"""Readers of journals, checkpoints and lines: what was written, or an error that names the file, whatever the bytes."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from baldwin.errors import BaldwinError, RunDirectoryError
from baldwin.runs.checkpoint import MANIFEST, POLICY, STATE, read_checkpoint, write_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.journal import DTYPES, HEAD, MAGIC, Journal, encode, read_journal, to_safetensors
from baldwin.runs.metrics import read_lines
from baldwin.runs.trust import header_of, read_header
from baldwin.tree import join, split
from baldwin.types import Outcome

examples = settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
RUN_ID = "0123456789abcdef"
ARRAYS = {"params": np.arange(4, dtype=np.float32), "obs_moments": np.ones(3)}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("journal") / "journal.bin"
    written = Journal(path, run_id=RUN_ID)
    for n in range(4):
        written.append({"kind": "ask", "n": n})
        written.append({"kind": "tell"}, [Outcome(n, 1.5, arrays={"x": np.arange(n, dtype=np.float32)})])
    written.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    return write_checkpoint(folder, 3, {"run": RUN_ID}, {"a": {"b": np.arange(3)}, "n": [1, 2]}, ARRAYS, keep=2)


@examples
@given(st.data())
def test_a_damaged_journal_gives_its_good_records_or_an_error(journal: bytes, tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / "good").write_bytes(journal)
    good = [(r.meta, [o.ticket for o in r.outcomes]) for r in read_journal(tmp_path / "good", run_id=RUN_ID)]
    content = bytearray(journal[: data.draw(st.integers(0, len(journal)))])
    for position in data.draw(st.lists(st.integers(0, max(0, len(content) - 1)), max_size=3)):
        if content:
            content[position] ^= data.draw(st.integers(1, 255))
    (tmp_path / "damaged").write_bytes(content)
    try:
        found = [(r.meta, [o.ticket for o in r.outcomes]) for r in read_journal(tmp_path / "damaged", run_id=RUN_ID)]
    except RunDirectoryError as error:
        assert "damaged" in str(error)  # the name of the file
    else:
        assert found == good[: len(found)]


@examples
@given(st.binary(max_size=200))
def test_any_bytes_as_records(tmp_path: Path, payload: bytes) -> None:
    record = HEAD.pack(len(payload), zlib.crc32(payload)) + payload  # a checksum that fits what is none
    (tmp_path / "j").write_bytes(MAGIC + RUN_ID.encode() + b"\n" + record)
    with pytest.raises(RunDirectoryError, match="a record that is none"):
        list(read_journal(tmp_path / "j"))


@examples
@given(st.floats(allow_nan=False), st.text(max_size=30), st.integers(0, 2**40))
def test_records_come_back_as_they_were(tmp_path: Path, fitness: float, reason: str, steps: int) -> None:
    outcome = Outcome(7, fitness, env_steps=steps, reason=reason, arrays={"x": np.array([1.5, 2.5])})
    (tmp_path / "j").write_bytes(MAGIC + RUN_ID.encode() + b"\n" + encode({"kind": "tell"}, [outcome]))
    (record,) = read_journal(tmp_path / "j", run_id=RUN_ID)
    (read,) = record.outcomes
    assert (read.ticket, read.fitness, read.env_steps, read.reason) == (7, fitness, steps, reason)
    assert (read.arrays["x"] == [1.5, 2.5]).all()


@examples
@given(st.sampled_from([MANIFEST, STATE, POLICY]), st.data())
def test_a_damaged_checkpoint_is_named(checkpoint: Path, tmp_path: Path, name: str, data: st.DataObject) -> None:
    copy = tmp_path / "00000003"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(checkpoint, copy)
    content = bytearray((copy / name).read_bytes())
    action = data.draw(st.sampled_from(["flip", "cut", "replace", "delete"]))
    if action == "flip":
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    elif action == "cut":
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    elif action == "replace":
        content = bytearray(data.draw(st.binary(max_size=50)))
    (copy / name).write_bytes(content)
    if action == "delete":
        (copy / name).unlink()
    try:
        read = read_checkpoint(copy, RUN_ID)
    except BaldwinError as error:
        assert str(copy) in str(error)
    else:  # white space in the manifest, say
        assert (read.policy["params"] == ARRAYS["params"]).all()
        assert (read.state["a"]["b"] == np.arange(3)).all()


@examples
@given(st.binary(max_size=300))
def test_any_bytes_as_lines(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lines").write_bytes(content)
    lines, damaged = read_lines(tmp_path / "lines")
    assert len(lines) + damaged <= content.count(b"\n") + content.count(b"\r") + 1
    assert all(isinstance(line, dict) for line in lines)


values = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5)
state_trees = st.recursive(
    values | st.builds(lambda n: np.arange(n, dtype=np.float32), st.integers(0, 4)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3),
    max_leaves=10,
)


@examples
@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), state_trees, max_size=4))
def test_state_trees_come_back(tree: dict[str, object]) -> None:
    tensors: dict[str, np.ndarray] = {}
    text = json.dumps(split(tree, tensors))
    np.testing.assert_equal(join(json.loads(text), tensors), tree)


@examples
@given(st.text(max_size=100))
def test_any_text_as_a_header(tmp_path: Path, text: str) -> None:
    run_id, own = read_header(text)
    assert run_id is None
    assert not own
    signed = header_of(RUN_ID, text) + text
    assert read_header(signed) == (RUN_ID, True)
    assert read_header(signed + "x") == (RUN_ID, False)
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    with pytest.raises(RunDirectoryError):
        _ = RunDirectory(tmp_path).id


@pytest.mark.parametrize("kind", sorted(DTYPES))
def test_arrays_of_a_record_are_those_of_safetensors(kind: str) -> None:
    arrays = {"x": np.arange(6).reshape(2, 3).T.astype(kind), "none": np.empty((0, 4), kind), "one": np.array(1, kind)}
    found = load(to_safetensors(arrays))
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
