"""Populations as runs: exactness, resume, selection, lineage, commands."""

from __future__ import annotations

import importlib.util
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baldwin.config import RunConfig, load_config
from baldwin.errors import ConfigError, MissingExtra, UserError
from baldwin.ops import pareto
from baldwin.populations import POPULATIONS
from baldwin.populations.member import TrainMember, with_hyperparameters
from baldwin.runs.checkpoint import policy_hash
from baldwin.runs.history import load_policy, rebuild
from baldwin.runs.lineage import best_state, read_lineage, winning_line
from baldwin.runs.members import front, front_ends, member_config, member_policy
from baldwin.runs.resume import resume
from baldwin.runs.run import Run
from baldwin.runs.timeline import MEANING, read_timeline
from tests.patience import wait_until
from tests.runs.test_exactness import lines
from tests.runs.tools import RunsWhenAsked, in_process, shown, train_and_kill_twice, train_run, worker_killer
from tests.toys.processes import start_command

SMALL = [
    "algorithm.name=ppo",
    "env.id=CartPole-v1",
    "env.backend=gymnasium",
    "env.max_episode_steps=60",
    "policy.hidden=[8]",
    "algorithm.n_envs=4",
    "algorithm.block=4",
    "algorithm.rollout_length=16",
    "algorithm.batch_size=32",
    "algorithm.epochs=2",
    "algorithm.steps_per_epoch=64",
    "algorithm.lr={log: [1e-5, 1e-1]}",
    "algorithm.epochs={int: [1, 4]}",
    "population.members=4",
    "population.steps=128",
    "population.episodes=4",
    "run.episodes=2",
    "run.evaluate_every=2",
    "run.checkpoint_every=1",
    "stop.generations=3",
    "executor.name=inline",
]
PONG = [
    *(o for o in SMALL if "backend" not in o),
    "env.id=baldwin:VectorPong-v0",
    "population.objectives={lazy: {score: 1, lazy: 1}, busy: {score: 1, busy: 1}}",
]
KINDS: dict[str, list[str]] = {
    "pbt": [*SMALL, "population.name=pbt", "population.synchronous=true", "population.fraction=0.5"],
    "nsga2": [
        *PONG,
        "population.name=nsga2",
        "population.generational=true",
        "population.variation={crossover: units, weight_sigma: 0.05}",
    ],
    "genetic": [*SMALL, "population.name=genetic", "population.generational=true", "population.inheritance=baldwinian"],
    "evolver": [  # some of whose members fail
        *(o for o in SMALL if "lr" not in o),
        "algorithm.lr={choice: [1e-3, 1e20]}",
        "population.name=evolver",
        "population.elites=0.5",
        "population.replace_after=0.5",
    ],
    "sweep": [*SMALL, "population.name=sweep", "population.members=1", "population.trials=3", "population.seeds=2", "population.rungs=2"],
}
ASYNCHRONOUS: dict[str, list[str]] = {
    "pbt-asynchronous": [*SMALL, "population.name=pbt", "population.exploit=both", "population.fraction=0.5", "population.safe=true"],
    "pb2": [*SMALL, "population.name=pbt", "population.explore=pb2", "population.fraction=0.5"],
    "evolver-asynchronous": [
        *(o for o in SMALL if "lr" not in o),
        "algorithm.lr={choice: [1e-3, 1e20]}",
        "population.name=evolver",
        "population.asynchronous=true",
        "population.elites=0.5",
        "population.replace_after=0.5",
    ],
    "nsga2-asynchronous": [*PONG, "population.name=nsga2", "population.variation={crossover: units, weight_sigma: 0.05}"],
    "darwinian": [*SMALL, "population.name=genetic", "population.inheritance=darwinian", "population.variation={weight_sigma: 0.1}"],
    "steady-state": [*SMALL, "population.name=steady-state"],
    "map-elites": [
        *PONG,
        "population.name=map-elites",
        "population.descriptors={busy: [0, 1]}",
        "population.variation={weight_sigma: 0.1}",
    ],
    "tpe": [*SMALL, "population.name=sweep", "population.members=1", "population.trials=3", "population.seeds=1", "population.sampler=tpe"],
}
ALL = KINDS | ASYNCHRONOUS


def small(kind: str, *overrides: str) -> RunConfig:
    return load_config(None, [], [*ALL[kind], *overrides])


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> RunsWhenAsked:
    folder = tmp_path_factory.mktemp("quiet")
    return RunsWhenAsked(lambda kind: train_run(small(kind), folder / kind))


def records(path: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "seconds"} for record in read_lineage(path)]


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_workers_gives_the_same_hash_and_lineage(quiet: RunsWhenAsked, kind: str, tmp_path: Path) -> None:
    run = train_run(small(kind, "executor.name=process", "executor.workers=3"), tmp_path / "run")
    assert run.params_sha256() == quiet[kind].params_sha256()
    if kind != "sweep":  # whose trials begin and end in any order
        assert records(tmp_path / "run") == records(quiet[kind].directory.path)
        assert lines(tmp_path / "run") == lines(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", ["pbt", "nsga2", "evolver", "sweep"])
def test_kill_nine_and_resume_equals_the_unbroken_run(quiet: RunsWhenAsked, kind: str, tmp_path: Path) -> None:
    train_and_kill_twice(ALL[kind], tmp_path / "run", quiet[kind], verb="evolve")
    assert shown(tmp_path / "run")["params_sha256"] == quiet[kind].params_sha256()
    assert records(tmp_path / "run") == records(quiet[kind].directory.path)


def test_an_asynchronous_run_survives_kill_nine_with_its_whole_lineage(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    """Whatever had ended before the kills is still there, word for word; every round is there once, and every parent is known."""
    out, options = tmp_path / "run", [*ALL["nsga2-asynchronous"], "executor.name=process", "executor.workers=2"]
    whole = quiet["nsga2-asynchronous"].directory.journal.stat().st_size
    command = ["evolve", *(f"-m{o}" for o in options), "--out", str(out), "--quiet"]
    ended: list[dict[str, Any]] = []
    journal = out / "journal.bin"
    for share in (0.3, 0.6):
        process = start_command(command)
        wait_until(lambda size=share * whole: journal.exists() and journal.stat().st_size > size, process.is_alive, 0.002)  # type: ignore[misc]
        process.kill()
        process.join()
        now = records(out)
        assert now[: len(ended)] == ended
        ended, command = now, ["resume", str(out), "--quiet"]
    assert ended
    done = in_process("resume", out, "--quiet")
    assert done.returncode == 0, done.stderr
    check_lineage(out)
    found = records(out)
    assert found[: len(ended)] == ended
    assert len({record["round"] for record in found}) == len(found) == 3 * 4
    members = shown(out)["members"]
    assert {m["state_sha256"] for m in members} <= {record["state_sha256"] for record in found}
    assert all(in_process("evaluate", out, "--member", m["id"], "--episodes", 1).returncode == 0 for m in members)


@pytest.mark.usefixtures("local_ray")
def test_ray_gives_the_same_hash(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    run = train_run(small("pbt", "executor.name=ray", "executor.workers=2"), tmp_path / "run")
    assert run.params_sha256() == quiet["pbt"].params_sha256()
    assert records(tmp_path / "run") == records(quiet["pbt"].directory.path)


def test_a_killed_worker_changes_nothing(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    with worker_killer(3) as killed:
        run = train_run(small("pbt", "executor.name=process", "executor.workers=2", "executor.retries=9"), tmp_path / "run")
    assert killed
    assert run.params_sha256() == quiet["pbt"].params_sha256()


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_an_asynchronous_run_goes_on_from_its_journal(kind: str, tmp_path: Path) -> None:
    """Results in any order: what a resumed run rebuilds is what the run had when it stopped, and no round is lost or told twice."""
    run = train_run(small(kind, "executor.name=process", "executor.workers=2", "stop.generations=2"), tmp_path / "run")
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)  # only the journal is left
    before, lineage = run.params_sha256(), read_lineage(tmp_path / "run")
    again, _ = resume(tmp_path / "run")
    assert again.params_sha256() == before
    again.close()
    assert read_lineage(tmp_path / "run") == lineage
    done = in_process("resume", tmp_path / "run", "--quiet", "-m", "stop.generations=3")
    assert done.returncode == 0, done.stderr
    assert shown(tmp_path / "run")["generations"] == 3
    rounds = [r["round"] for r in records(tmp_path / "run")]
    assert len(set(rounds)) == len(rounds)
    assert read_lineage(tmp_path / "run")[: len(lineage)] == lineage
    check_lineage(tmp_path / "run")


def check_lineage(path: Path) -> None:
    """Every parent is there, and the winner's line leads to a member that began from scratch, or from weights of the elites."""
    found = read_lineage(path)
    keys = {"member", "parents", "operator", "hyperparameters", "score", "env_steps", "state_sha256"}
    states = {record["state_sha256"] for record in found}
    for record in found:
        assert keys <= set(record)
        assert record["parent_sha256"] in states | {""}
        assert (record["parent_sha256"] == "") == (record["operator"] in ("start", "replaced"))
        assert (record["parents"] == []) == (record["operator"] == "start")
    line = winning_line(found, best_state(path))
    assert line[0]["operator"] in ("start", "replaced")
    for earlier, later in pairwise(line):
        assert later["parent_sha256"] == earlier["state_sha256"]


@pytest.mark.parametrize("kind", KINDS)
def test_lineage_is_whole(quiet: RunsWhenAsked, kind: str) -> None:
    check_lineage(quiet[kind].directory.path)


@pytest.mark.parametrize("kind", [*KINDS, "map-elites"])
def test_a_population_is_shown_evaluated_and_its_members_too(quiet: RunsWhenAsked, kind: str) -> None:
    path = quiet[kind].directory.path
    found = shown(path)
    assert found["members"]
    best = found["best"]
    done = json.loads(in_process("evaluate", path, "--member", best, "--episodes", 2, "--json").stdout)
    assert done["params_sha256"] == found["params_sha256"]
    assert in_process("evaluate", path, "--member", "best", "--episodes", 1).returncode == 0
    wrong = in_process("evaluate", path, "--member", "x")
    assert (wrong.returncode, "expected best or the number of a member" in wrong.stderr) == (2, True)
    assert isinstance(front(path), list)


@pytest.mark.parametrize("kind", ["nsga2", "darwinian", "evolver", "sweep"])
def test_the_lineage_of_every_kind_of_population_is_drawn(quiet: RunsWhenAsked, kind: str, tmp_path: Path) -> None:
    done = in_process("lineage", quiet[kind].directory.path, "--plot", tmp_path / "lineage.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "lineage.png").stat().st_size > 5000


def copies(run: Run) -> list[dict[str, Any]]:
    return [r for r in read_lineage(run.directory.path) if r["operator"] == "copy"]


def test_every_step_is_counted(quiet: RunsWhenAsked) -> None:
    run = quiet["pbt"]
    assert run.algorithm.learning_steps == 3 * 4 * 128
    assert 0 < run.algorithm.env_steps - run.algorithm.learning_steps <= 3 * 4 * 4 * 60  # rounds x members x episodes x steps


def test_pbt_copies_the_better_and_changes_their_hyper_parameters(quiet: RunsWhenAsked) -> None:
    """What was changed is a factor or a new draw, within the range; what the copy was built with is what the lineage says."""
    found = copies(quiet["pbt"])
    assert found
    for record in found:
        assert record["hyperparameters"] != record["before"]
        old, new = record["before"]["algorithm.lr"], record["hyperparameters"]["algorithm.lr"]
        assert 1e-5 <= new <= 1e-1
        assert isinstance(record["hyperparameters"]["algorithm.epochs"], int)
        assert new != old or new in (1e-5, 1e-1)


def test_runs_of_populations_are_compared(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    paths = [quiet[kind].directory.path for kind in ("pbt", "genetic")]
    rows = json.loads(in_process("compare", *paths, "--plot", tmp_path / "plot.png", "--json").stdout)
    assert [row["median"] for row in rows] == [quiet[kind].score for kind in ("pbt", "genetic")]
    assert [row["learning_steps"] for row in rows] == [quiet[kind].algorithm.learning_steps for kind in ("pbt", "genetic")]
    assert (tmp_path / "plot.png").stat().st_size > 5000


def test_the_timeline_shows_who_trained_members_when(tmp_path: Path) -> None:
    options = ["executor.name=process", "executor.workers=2", "stop.generations=2"]
    train_run(small("pbt", *options), tmp_path / "run")
    done = in_process("timeline", tmp_path / "run", "--plot", tmp_path / "plot.png")
    assert (done.returncode, "member, s" in done.stdout) == (0, True)
    busy = read_timeline(tmp_path / "run").busy()
    assert set(busy) <= {0, 1}
    assert {kind for own in busy.values() for kind in own} <= set(MEANING)  # or the legend says nothing of them
    seconds = sum(own["member"] for own in busy.values() if "member" in own)
    inside = sum(record["seconds"] for record in read_lineage(tmp_path / "run"))
    assert seconds >= inside > 0
    assert (tmp_path / "plot.png").stat().st_size > 5000


def test_mating_by_behaviour_copies_the_best_member_that_is_least_like_the_others(tmp_path: Path) -> None:
    """Of the better half the one whose nearest neighbour in (lazy, busy) is farthest: after each round, it is copied by all who copy."""
    options = [*PONG, "population.name=pbt", "population.objectives={}", "population.synchronous=true", "population.fraction=0.5"]
    more = ["population.mating=behaviour", "population.behaviour=[lazy, busy]", "stop.generations=4"]
    train_run(load_config(None, [], [*options, *more]), tmp_path / "run")
    found = read_lineage(tmp_path / "run")
    rounds = [found[n : n + 4] for n in range(0, 16, 4)]
    copied = 0
    for before, after in pairwise(rounds):
        points = np.array([[record["results"][name] for name in ("lazy", "busy")] for record in before])
        distance = np.linalg.norm(points[:, None] - points, axis=2) + np.diag([np.inf] * 4)
        best = np.argsort([-record["score"] for record in before], kind="stable")[:2].tolist()
        parent = max(best, key=lambda n: distance[n].min())
        chosen = [record["parents"] for record in after if record["operator"] == "copy"]
        assert chosen == [[parent]] * len(chosen)
        copied += len(chosen)
    assert copied


def test_a_copy_may_begin_with_a_fresh_optimiser(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    """The same as with the original's until somebody copies; from there on other states."""
    train_run(small("pbt", "population.optimizer=fresh"), tmp_path / "run")
    fresh, kept = records(tmp_path / "run"), records(quiet["pbt"].directory.path)
    first = next(n for n, record in enumerate(kept) if record["operator"] == "copy")
    assert fresh[:first] == kept[:first]
    assert fresh[first]["hyperparameters"] == kept[first]["hyperparameters"]
    assert fresh[first]["state_sha256"] != kept[first]["state_sha256"]


def test_nsga2_keeps_the_front(quiet: RunsWhenAsked) -> None:
    run = quiet["nsga2"]
    found = shown(run.directory.path)
    assert found["hypervolume"] > 0
    objectives = np.array([[m["results"]["score"] + m["results"][name] for name in ("lazy", "busy")] for m in found["members"]])
    ids = [m["id"] for m in found["members"]]
    assert sorted(front(run.directory.path)) == sorted(ids[n] for n in pareto.pareto_front(objectives))
    rows = [row for row in lines(run.directory.path) if "hypervolume" in row]
    for earlier, later in pairwise(rows):
        cut = later["front"] == len(found["members"])  # a front that is larger than the population loses members by crowding
        assert cut or later["hypervolume"] >= earlier["hypervolume"] - 1e-12


def test_the_ends_of_the_front_are_filmed(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    path = quiet["nsga2"].directory.path
    members = {m["id"]: {name: m["results"]["score"] + m["results"][name] for name in ("lazy", "busy")} for m in shown(path)["members"]}
    ends = front_ends(path)
    for number, names in ends.items():
        for name in names:
            assert members[number][name] == max(m[name] for m in members.values())
    assert sorted(name for names in ends.values() for name in names) == ["busy", "lazy"]
    done = in_process("render", path, "--member", "front", "--video", tmp_path / "film.gif")
    assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {f"film-{'-'.join(names)}.gif" for names in ends.values()}
    assert all(f"member {number}" in done.stdout for number in ends)
    assert front_ends(quiet["pbt"].directory.path) == {shown(quiet["pbt"].directory.path)["best"]: ["best"]}
    wrong = in_process("render", path, "--member", "fronts", "--video", tmp_path / "film.gif")
    assert (wrong.returncode, "expected best or the number of a member" in wrong.stderr) == (2, True)


def test_baldwinian_children_inherit_what_was_not_trained(quiet: RunsWhenAsked) -> None:
    """The state that descendants go on from has made no update; the policy that was evaluated has."""
    run = quiet["genetic"]
    member = shown(run.directory.path)["members"][0]
    algorithm = run.algorithm
    state = algorithm.files.load(member["state_sha256"])  # type: ignore[attr-defined]
    assert state["algorithm"]["counters"]["version"] == 0
    assert not np.array_equal(state["params"], state["policy"]["params"])


def test_map_elites_has_one_member_per_cell(quiet: RunsWhenAsked) -> None:
    found = shown(quiet["map-elites"].directory.path)
    cells = [min(9, int(10 * m["results"]["busy"])) for m in found["members"]]
    assert len(set(cells)) == len(cells)
    assert found["coverage"] == pytest.approx(len(cells) / 10)


def test_a_share_of_the_children_of_map_elites_is_trained(tmp_path: Path) -> None:
    """The others have the steps of their parents, and other weights."""
    options = ["population.improved=0.5", "stop.generations=5", "run.evaluate_every=100"]
    train_run(small("map-elites", *options), tmp_path / "run")
    found = read_lineage(tmp_path / "run")
    steps = {record["state_sha256"]: record["env_steps"] for record in found}
    children = [record for record in found if record["operator"] == "child"]
    gained = [record["env_steps"] - steps[record["parent_sha256"]] for record in children]
    assert len(children) == 16
    assert all(gain == 0 or gain >= 128 for gain in gained)
    assert 3 <= sum(gain == 0 for gain in gained) <= 13
    assert len({record["state_sha256"] for record in children}) == 16


def test_a_sweep_is_a_table(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    path = quiet["sweep"].directory.path
    rows = json.loads(in_process("sweep", path, "--json", "--plot", tmp_path / "sweep.png").stdout)
    assert [len(row["scores"]) for row in rows] == [2, 2, 2]
    assert [row["median"] for row in rows] == sorted((np.median(row["scores"]) for row in rows), reverse=True)
    assert (tmp_path / "sweep.png").stat().st_size > 5000
    assert "algorithm.lr" in in_process("sweep", path).stdout
    assert "is not the run of a sweep" in in_process("sweep", quiet["pbt"].directory.path).stderr


def test_grid_and_pruner(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    options = [o for o in ALL["sweep"] if not o.startswith("algorithm.epochs={")]
    more = ["population.sampler=grid", "population.trials=9", "population.pruner=median", "population.seeds=1", "stop.generations=5"]
    run = train_run(load_config(None, [], [*options, *more, "population.rungs=3"]), tmp_path / "run")
    values = sorted(row["hyperparameters"]["algorithm.lr"] for row in run.algorithm.table())  # type: ignore[attr-defined]
    np.testing.assert_allclose(values, np.geomspace(1e-5, 1e-1, 5))


def test_the_winning_schedule_is_a_config_of_its_own(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    path = quiet["pbt"].directory.path
    done = in_process("lineage", path, "--plot", tmp_path / "lineage.png", "--schedule", tmp_path / "schedule.yaml")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "lineage.png").stat().st_size > 5000
    again = in_process("train", "-c", tmp_path / "schedule.yaml", "--out", tmp_path / "again", "--quiet")
    assert again.returncode == 0, again.stderr
    expected = [r["hyperparameters"] for r in winning_line(read_lineage(path), best_state(path))]
    assert [r["hyperparameters"] for r in read_lineage(tmp_path / "again")] == expected
    assert json.loads(in_process("lineage", path, "--json").stdout) == read_lineage(path)


@pytest.mark.parametrize("exploit", ["t-test", "both"])
def test_a_failed_round_does_not_end_a_t_test(exploit: str, tmp_path: Path) -> None:
    options = [o for o in ALL["pbt"] if "algorithm.lr" not in o]
    more = ["algorithm.lr={choice: [1e-3, 1e20]}", f"population.exploit={exploit}", "population.safe=true", "population.resample=0.5"]
    train_run(load_config(None, [], [*options, *more]), tmp_path / "run")
    assert any(r["score"] is None for r in read_lineage(tmp_path / "run"))


def test_a_grid_may_be_smaller_than_the_trials(tmp_path: Path) -> None:
    options = [o for o in SMALL if not o.startswith(("population", "algorithm.lr", "stop", "algorithm.epochs={"))]
    args = [*(f"-m{o}" for o in options), "-malgorithm.lr={choice: [1e-3, 1e-2]}", "--sampler", "grid", "--trials", 5, "--seeds", 1]
    done = in_process("sweep", *args, "--steps", 64, "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(row["hyperparameters"]["algorithm.lr"] for row in json.loads(done.stdout)) == [1e-3, 1e-2]


def test_a_member_that_diverges_copies_another(tmp_path: Path) -> None:
    """A step size of 1e20 makes a loss that is not finite; the run goes on, and nobody keeps that member's state."""
    options = [o for o in ALL["pbt"] if "algorithm.lr" not in o]
    run = train_run(load_config(None, [], [*options, "algorithm.lr={choice: [1e-3, 1e20]}", "population.resample=0"]), tmp_path / "run")
    found = read_lineage(tmp_path / "run")
    assert any(r["score"] is None and "diverged" in r["reason"] for r in found)
    assert np.isfinite(run.score or np.nan)


REFUSED: list[tuple[list[str], str]] = [
    (["population.name=pbtt"], "Did you mean"),
    (["population.name=pbt", "population.member=3"], "unknown key 'population.member'"),
    (["population.name=pbt", "algorithm.lr={log: [0, 1]}"], "above zero"),
    (["population.name=pbt", "algorithm.lr={log: [1]}"], "expected log: \\[low, high\\]"),
    (["population.name=pbt", "population.search={algorithm.gamma: {uniform: [2, 1]}}"], "the smaller one first"),
    (["population.name=pbt", "algorithm.n_envs={int: [2, 4]}"], "cannot change in mid-training"),
    (["population.name=pbt", "policy.hidden={choice: [[8], [8, 8]]}"], "policy.hidden cannot change in mid-training"),
    (["population.name=sweep", "population.members=1", "policy.hidden={choice: [[8], [0, 8]]}"], "policy.hidden: .* holds \\[0, 8\\]"),
    (["population.name=pbt", "population.search={algorithm.lrr: {log: [1e-4, 1e-3]}}"], "unknown key 'algorithm.lrr'. Did you mean"),
    (["population.name=pbt", "population.search={lr: {log: [1e-4, 1e-3]}}"], "expected a key of env, policy or algorithm"),
    (["population.name=pbt", "algorithm.gamma={uniform: [0.5, 2]}"], "less than or equal to 1"),
    (["population.name=pbt", "algorithm.actor_lag=1"], "actor_lag=0"),
    (["population.name=nsga2", "population.reference=[0]", "population.objectives={a: {score: 1}, b: {lazy: 1}}"], "one number for each"),
    (["population.name=nsga2", "population.steps=0"], "darwinian"),
    (
        ["population.name=sweep", "population.members=1", "population.search={}", "algorithm.lr=1e-3", "algorithm.epochs=2"],
        "a sweep needs ranges",
    ),
    (["population.name=map-elites"], "descriptors"),
    (["population.name=map-elites", "population.descriptors={busy: [0, 1]}", "population.improved=0.5"], "copies of their parents"),
    (
        [
            "population.name=map-elites",
            "population.descriptors={busy: [0, 1]}",
            "population.improved=0.5",
            "population.inheritance=darwinian",
        ],
        "no child is trained",
    ),
    (["population.name=genetic", "population.members=1"], "greater than or equal to 2"),
    (["population.name=pbt", "population.exploit=t-test", "population.episodes=1"], "episodes of at least 2"),
    (["population.name=pbt", "population.safe=true", "population.objectives={a: {return: 1}}"], "no objectives"),
    (
        ["population.name=schedule", "population.members=1", "algorithm.lr=1e-3", "algorithm.epochs=2", "population.rounds=[{lr: 0.1}]"],
        "expected a key of",
    ),
    (
        ["population.name=pbt", "population.explore=pb2", "algorithm.lr={choice: [1e-3, 1e-2]}", "algorithm.epochs=2"],
        "pb2 chooses numbers",
    ),
    (["population.name=league", "population.members=1", "env.id=baldwin:VectorPong-v0", "env.backend=auto"], "does not search"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[" ".join(o) for o, _ in REFUSED])
def test_what_cannot_work_is_refused_before_anything_starts(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, UserError), match=message):
        train_run(load_config(None, [], [*SMALL, *options]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_train_says_which_command_evolves() -> None:
    refused = in_process("train", *(f"-m{o}" for o in SMALL if not o.startswith("population")))
    assert (refused.returncode, "a range is for baldwin evolve" in refused.stderr) == (2, True)
    refused = in_process("train", "cartpole-pbt")
    assert (refused.returncode, "baldwin evolve trains it" in refused.stderr) == (2, True)
    assert "population: section" in in_process("evolve", "cartpole-ppo").stderr


def test_another_population_over_the_same_ranges() -> None:
    """Keys of the first mean nothing to the second; what is searched stays."""
    config = load_config("cartpole-pbt", [], ["population.name=sweep", "population.trials=3"])
    assert config.population is not None
    assert set(config.population.search) == {"algorithm.lr", "algorithm.entropy_coef"}
    assert config.population.steps == 100_000
    assert load_config("cartpole-pbt", [], ["population=null", "algorithm.lr=1e-3", "algorithm.entropy_coef=0"]).population is None


def test_objectives_that_nobody_tells_are_named(tmp_path: Path) -> None:
    config = load_config(None, [], [*SMALL, "population.name=nsga2", "population.objectives={a: {speed: 1}}"])
    with pytest.raises(Exception, match="does not tell; it tells: return"):
        train_run(config, tmp_path / "run")


def test_every_population_is_here() -> None:
    named = {o.partition("=")[2] for kind in ALL.values() for o in kind if o.startswith("population.name=")}
    assert named | {"schedule", "league", "groups"} == set(
        POPULATIONS
    )  # the schedule is replayed above; league and groups have files of their own


def test_the_generation_of_a_synchronous_run_is_rebuilt(quiet: RunsWhenAsked) -> None:
    directory = quiet["pbt"].directory
    assert policy_hash(rebuild(directory, 3)) == quiet["pbt"].params_sha256()
    assert member_policy(directory, "best")[1] == 3


def test_pbt_solves_cartpole_where_the_median_of_fixed_members_does_not(tmp_path: Path) -> None:
    """The same eight members, with the hyper-parameters and for the steps that they have in PBT: most step sizes are too small for this budget."""
    overrides = ["stop.learning_steps=null", "stop.score=475", "stop.generations=12", "run.episodes=20", "population.synchronous=true"]
    run = train_run(load_config("cartpole-pbt", [], [*overrides, "run.seed=1", "executor.name=inline"]), tmp_path / "pbt")
    assert run.score is not None
    assert run.score >= 475
    population: Any = run.algorithm
    firsts = [record for record in read_lineage(tmp_path / "pbt") if record["operator"] == "start"]
    assert len(firsts) == 8
    scores = []
    for record in firsts:
        sections, seed = (
            with_hyperparameters(population._context.sections, record["hyperparameters"]),
            population.member_seed(record["member"]),
        )
        fixed = TrainMember(0, 0, sections, seed, steps=population.version * 4096, evaluation_seed=1, episodes=16, files=population.files)
        scores.append(fixed.run(None)[0].scalar)  # type: ignore[arg-type]
    assert np.median(scores) < 200


@pytest.mark.skipif(importlib.util.find_spec("mo_gymnasium") is not None, reason="mo-gymnasium is installed")
def test_the_extra_of_deep_sea_treasure_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'baldwin-rl\[mo\]'"):
        train_run(load_config("deep-sea-nsga2", [], []), tmp_path / "run")


def test_nsga2_finds_deep_sea_treasures(tmp_path: Path) -> None:
    """A vector reward of mo-gymnasium: of ten treasures, which are worth more the farther they are, a front has several."""
    pytest.importorskip("mo_gymnasium")
    options = ["executor.name=inline", "stop.generations=12", "env.max_episode_steps=60"]
    run = train_run(load_config("deep-sea-nsga2", [], options), tmp_path / "run")
    known = {0.7: -1, 8.2: -3, 11.5: -5, 14.0: -7, 15.1: -8, 16.1: -9, 19.6: -13, 20.3: -14, 22.4: -17, 23.7: -19}  # Vamplew et al. 2011
    points = {(round(m.results["reward_0"], 1), m.results["reward_1"]) for m in run.algorithm.front()}  # type: ignore[attr-defined]
    assert len(points) >= 4
    assert all(time <= known.get(treasure, 0) for treasure, time in points)
    volumes = [row["hypervolume"] for row in lines(tmp_path / "run") if "hypervolume" in row]
    assert volumes[-1] > volumes[0]


TRADE_OFFS = [
    *(o for o in PONG if not o.startswith(("algorithm.", "population", "stop", "env.max"))),
    "env.max_episode_steps=300",
    "policy.normalize_obs=false",
    "algorithm.name=ppo",
    "algorithm.n_envs=16",
    "algorithm.block=16",
    "algorithm.rollout_length=16",
    "algorithm.batch_size=128",
    "algorithm.epochs=2",
    "algorithm.steps_per_epoch=256",
    "run.seed=0",
    "run.evaluate_every=1000",
    "run.checkpoint_every=1000",
    "population.members=10",
    "population.steps=256",
    "population.generational=true",
    "population.episodes=2",
    "population.variation={crossover: units, weight_sigma: 0.3, weight_probability: 0.3}",
]


@pytest.mark.slow  # on one seed: docs/populations.md
def test_nsga2_with_ppo_dominates_fixed_weights_of_its_objectives_in_pong(tmp_path: Path) -> None:
    """Six generations of NSGA-II against two of a genetic algorithm for each of three fixed weights: as many steps, updates and mutations."""
    names = ("lazy", "busy")
    both = f"population.objectives={{{', '.join(f'{name}: {{score: 1, {name}: 1}}' for name in names)}}}"
    config = load_config(None, [], [*TRADE_OFFS, "population.name=nsga2", both, "stop.generations=6"])
    nsga2: Any = train_run(config, tmp_path / "nsga2").algorithm
    best, steps = [], 0
    for weight in (0.0, 0.5, 1.0):
        fixed = f"population.objectives={{sum: {{score: 1, lazy: {weight}, busy: {1 - weight}}}}}"
        config = load_config(None, [], [*TRADE_OFFS, "population.name=genetic", fixed, "stop.generations=2"])
        genetic: Any = train_run(config, tmp_path / str(weight)).algorithm
        best.append(genetic.best)
        steps += genetic.env_steps
    front, fixed_points = (
        np.array([[m.results["score"] + m.results[name] for name in names] for m in members]) for members in (nsga2.front(), best)
    )
    assert nsga2.env_steps == steps
    assert pareto.dominates(front[:, None], fixed_points).any(0).all()
    assert pareto.hypervolume(front, [0, 0]) > 1.2 * pareto.hypervolume(fixed_points, [0, 0])


WEIGHTS_ONLY = [
    *(o for o in PONG if not o.startswith(("algorithm.lr", "algorithm.epochs={", "population", "stop", "env.max"))),
    "env.max_episode_steps=100",
    "policy.normalize_obs=false",
    "run.evaluate_every=1000",
    "run.checkpoint_every=1000",
    "population.members=12",
    "population.steps=0",
    "population.inheritance=darwinian",
    "population.generational=true",
    "population.episodes=2",
    "population.variation={crossover: units, weight_sigma: 0.3, weight_probability: 0.3}",
]


def test_nsga2_finds_a_larger_front_in_pong_than_fixed_weights_of_its_objectives(tmp_path: Path) -> None:
    """Nine generations of NSGA-II against three of a genetic algorithm for each of three fixed weights: as many steps, networks and mutations."""
    lazy_and_busy = "population.objectives={lazy: {score: 1, lazy: 1}, busy: {score: 1, busy: 1}}"
    nsga2 = train_run(
        load_config(None, [], [*WEIGHTS_ONLY, "population.name=nsga2", lazy_and_busy, "stop.generations=9"]), tmp_path / "nsga2"
    )
    fixed = [
        train_run(
            load_config(
                None,
                [],
                [
                    *WEIGHTS_ONLY,
                    "population.name=genetic",
                    f"population.objectives={{sum: {{score: 1, lazy: {weight}, busy: {1 - weight}}}}}",
                    "stop.generations=3",
                ],
            ),
            tmp_path / str(weight),
        )
        for weight in (0.0, 0.5, 1.0)
    ]

    def volume(members: list[dict[str, Any]]) -> float:
        return pareto.hypervolume([[m["results"]["score"] + m["results"][name] for name in ("lazy", "busy")] for m in members], [0, 0])

    best = [next(m for m in found["members"] if m["id"] == found["best"]) for found in (shown(run.directory.path) for run in fixed)]
    assert nsga2.algorithm.env_steps == sum(run.algorithm.env_steps for run in fixed)
    assert volume(shown(nsga2.directory.path)["members"]) > 1.05 * volume(best)


def sweep_of(*overrides: str) -> RunConfig:
    plain = [o for o in SMALL if not o.startswith(("population", "algorithm.lr", "stop", "algorithm.epochs={"))]
    return load_config(None, [], [*plain, "population.name=sweep", "population.seeds=1", "population.episodes=4", *overrides])


def test_a_sweep_keeps_the_states_of_its_best_trial(tmp_path: Path) -> None:
    options = ("algorithm.lr={log: [1e-5, 1e-1]}", "population.trials=8", "population.steps=64", "stop.generations=8", "run.keep=2")
    run = train_run(sweep_of(*options), tmp_path / "run")
    kept = {file.stem for file in (tmp_path / "run" / "members").iterdir()}
    members = {m["id"]: m["state_sha256"] for m in shown(tmp_path / "run")["members"]}
    best = shown(tmp_path / "run")["best"]
    assert members[best] in kept
    gone = [number for number, name in members.items() if name not in kept]
    assert len(gone) >= 3  # those of the last checkpoints stay, so that a resumed run finds them
    refused = in_process("evaluate", tmp_path / "run", "--member", gone[0])
    assert (refused.returncode, "population.keep_states=true" in refused.stderr) == (2, True)
    assert in_process("evaluate", tmp_path / "run", "--episodes", 1).returncode == 0
    again = train_run(sweep_of(*options, "population.keep_states=true"), tmp_path / "again")
    assert again.params_sha256() == run.params_sha256()
    assert len(list((tmp_path / "again" / "members").iterdir())) == 8


@pytest.mark.parametrize("first", ["CartPole-v1", "Pendulum-v1"])  # the first of the choices stands for the range
def test_a_sweep_over_environments_describes_each(first: str, tmp_path: Path) -> None:
    """Other observations, actions, networks and limits; the score is that of the best in its own environment."""
    ids = [first, *(name for name in ("CartPole-v1", "Acrobot-v1", "Pendulum-v1") if name != first)]
    options = [f"env.id={{choice: [{', '.join(ids)}]}}", "env.backend=auto", "env.max_episode_steps=30", "population.sampler=grid"]
    run = train_run(sweep_of(*options, "population.trials=3", "population.steps=64", "stop.generations=3"), tmp_path / "run")
    rows = {row["hyperparameters"]["env.id"]: row["median"] for row in run.algorithm.table()}  # type: ignore[attr-defined]
    assert rows["Acrobot-v1"] == -30
    assert rows["Pendulum-v1"] < -30
    assert 5 < rows["CartPole-v1"] <= 30
    assert 5 < (run.score or 0) <= 30
    found = shown(tmp_path / "run")
    members = {m["hyperparameters"]["env.id"]: m["id"] for m in found["members"]}
    assert found["best"] == members["CartPole-v1"]
    done = json.loads(in_process("evaluate", tmp_path / "run", "--episodes", 2, "--json", "--member", members["Acrobot-v1"]).stdout)
    assert done["mean"] == -30
    assert load_policy(tmp_path / "run").act(np.zeros(4, np.float32)) in (0, 1)


def test_environments_of_a_range_are_tried_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="NoSuchWorld"):
        train_run(sweep_of("env.id={choice: [CartPole-v1, NoSuchWorld-v0]}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    refused = in_process("sweep", "--env", "CartPole-v1", "-m", "env.id={choice: [CartPole-v1, Acrobot-v1]}", "--out", tmp_path / "run")
    assert (refused.returncode, "leave --env out" in refused.stderr) == (2, True)


def test_a_sweep_over_networks_evaluates_the_best_with_its_own(tmp_path: Path) -> None:
    options = ["policy.hidden={choice: [[8], [16, 4]]}", "population.sampler=grid", "population.trials=2", "population.steps=64"]
    run = train_run(sweep_of(*options, "stop.generations=2"), tmp_path / "run")
    member = next(m for m in run.algorithm.members if m.hyperparameters["policy.hidden"] == [16, 4])  # type: ignore[attr-defined]
    config = member_config(run.directory, run.config, str(member.id))
    assert (config.policy.hidden, run.config.policy.hidden) == ([16, 4], [8])
    done = json.loads(in_process("evaluate", tmp_path / "run", "--episodes", 4, "--json", "--member", member.id).stdout)
    assert len(set(done["returns"])) > 1
    assert "[16, 4]" in in_process("sweep", tmp_path / "run", "--plot", tmp_path / "sweep.png").stdout
    assert (tmp_path / "sweep.png").stat().st_size > 5000


def test_a_picture_in_a_folder_that_is_not_there_is_refused_before_anything_starts(quiet: RunsWhenAsked, tmp_path: Path) -> None:
    target = tmp_path / "typo" / "lineage.png"
    refused = in_process("lineage", quiet["pbt"].directory.path, "--plot", target)
    assert (refused.returncode, "there is no folder" in refused.stderr) == (2, True)
    refused = in_process("sweep", "cartpole-ppo", "-m", "algorithm.lr={log: [1e-5, 1e-2]}", "--plot", target, "--out", tmp_path / "run")
    assert (refused.returncode, "there is no folder" in refused.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["genetic", "pbt"])
def test_steps_are_counted_along_a_line_of_ancestors(quiet: RunsWhenAsked, kind: str) -> None:
    """Also of a baldwinian line, whose states have not been trained."""
    found = read_lineage(quiet[kind].directory.path)
    by_state = {record["state_sha256"]: record for record in found}
    children = [record for record in found if record["parents"] and record["state_sha256"]]
    assert children
    for record in children:
        assert record["env_steps"] == by_state[record["parent_sha256"]]["env_steps"] + 128
