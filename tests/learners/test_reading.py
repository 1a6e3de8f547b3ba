"""One update of TD3 is followed in few files: td3.py, and what it stands on."""

from __future__ import annotations

from benchmarks.reading import functions_run, td3_updates


def test_a_td3_update_is_followed_in_three_files_below_its_own() -> None:
    files = functions_run(td3_updates())
    own = files.pop("learners/td3.py")
    assert set(files) == {"networks/batched_mlp.py", "networks/optimizers.py", "networks/stacked.py"}
    assert sum(own.values()) + sum(sum(lines.values()) for lines in files.values()) <= 300
