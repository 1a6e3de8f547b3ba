from pathlib import Path

import pytest

from baldwin.algorithm import ALGORITHMS
from baldwin.cli.options import repeat_options
from baldwin.config import RunConfig, config_schema, dump_config, list_presets, load_config, read_config
from baldwin.config.load import parse_override
from baldwin.config.merge import merge
from baldwin.config_base import ConfigModel
from baldwin.errors import ConfigError
from baldwin.hybrids.config import LEARNERS
from baldwin.learners import ActorCriticConfig


@pytest.mark.parametrize("name", list(list_presets()))
def test_every_preset_is_valid_and_says_what_it_is(name: str) -> None:
    config = load_config(name)
    assert config.run.name == name
    preset = list_presets()[name]
    assert (config.algorithm.name, config.env.id) == (preset.algorithm, preset.env)
    assert len(preset.summary) > 5
    assert preset.source
    assert preset.measured
    assert has_an_end(config)


@pytest.mark.parametrize("name", [n for n, entry in ALGORITHMS.items() if entry.config.__module__.startswith("baldwin.")])
def test_every_algorithm_ends_in_an_environment_without_tuned_settings(name: str) -> None:
    assert has_an_end(load_config(algorithm=name, env="Pusher-v5"))


def has_an_end(config: RunConfig) -> bool:
    stop = config.stop
    return any(limit is not None for limit in (stop.env_steps, stop.learning_steps, stop.generations, stop.wall_seconds))


def test_later_layers_win_and_lists_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("algorithm: {lr: 0.3, sigma: 0.2}\npolicy: {hidden: [8]}")
    config = load_config("cartpole", [tmp_path / "a.yaml"], ["algorithm.lr=1e-3", "stop.env_steps=5e6", "policy.hidden=[4, 4, 4]"])
    assert config.algorithm.lr == 0.001
    assert config.algorithm.sigma == 0.2
    assert config.stop.env_steps == 5_000_000
    assert config.policy.hidden == [4, 4, 4]


def test_zero_and_false_are_values() -> None:
    config = load_config("cartpole", [], ["run.seed=0", "algorithm.weight_decay=0", "policy.normalize_obs=false"])
    assert (config.run.seed, config.algorithm.weight_decay, config.policy.normalize_obs) == (0, 0, False)


def test_a_saved_config_is_the_same_config(tmp_path: Path) -> None:
    config = load_config("cartpole", [], ["algorithm.sigma={kind: cosine, start: 0.1, end: 0.01, generations: 50}"])
    (tmp_path / "c.yaml").write_text(dump_config(config))
    assert read_config(tmp_path / "c.yaml") == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.lrr=1", "unknown key 'algorithm.lrr'. Did you mean 'lr'?"),
        ("algoritm.lr=1", "unknown key 'algoritm'. Did you mean 'algorithm'?"),
        ("algorithm.cap.fractio=1", "unknown key 'algorithm.cap.fractio'. Did you mean 'fraction'?"),
        ("algorithm.name=ess", "Did you mean 'es'?"),
        ("algorithm.population=41", "'algorithm.population': should be a multiple of 2; got 41"),
        ("algorithm.sigma=-1", "'algorithm.sigma"),
        ("algorithm.optimizer=adamm", "Did you mean 'adam'?"),
        ("executor.workers=0", "'executor.workers"),
        ("executor.name=inlin", "Did you mean 'inline'?"),
        ("run.seed=abc", "'run.seed': should be a valid integer"),
        ("policy.hidden=[0]", "'policy.hidden.0'"),
        ("policy.kind=module", "go together"),
        ("nonsense", "-m takes KEY=VALUE"),
        ("run.seed=[1", "is not YAML"),
    ],
)
def test_a_bad_choice_is_refused_with_the_nearest_good_one(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config("cartpole", [], [override])
    assert message in str(error.value)


def test_an_unknown_preset_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'cartpole'"):
        load_config("cartpol")
    with pytest.raises(ConfigError, match="No such file"):
        load_config(None, [tmp_path / "none.yaml"])
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="expected a map"):
        load_config(None, [tmp_path / "list.yaml"])


def test_an_environment_is_required() -> None:
    with pytest.raises(ConfigError, match="'env' is required"):
        load_config(None, [], ["run.seed=1"])


def test_merge_and_override() -> None:
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}
    assert parse_override("a.b=x=y") == {"a": {"b": "x=y"}}


def test_another_algorithm_on_a_preset_begins_its_section_anew() -> None:
    config = load_config("cartpole", [], ["algorithm.population=12", "algorithm.name=cem"])
    assert config.algorithm.name == "cem"
    assert config.algorithm.population == 12
    assert config.env.id == "CartPole-v1"
    assert load_config("cartpole", [], ["algorithm.name=es"]) == load_config("cartpole")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("algorithm.learner.alpha_lrr=1", "unknown key 'algorithm.learner.alpha_lrr'. Did you mean 'alpha_lr'?"),
        ("algorithm.learner.policy_delay=2", "'algorithm.learner.policy_delay': hybrids never update critics and actor together"),
        ("algorithm.strategy.population=3", "'algorithm.strategy.population'"),
        ("algorithm.learner.name=td4", "td3"),
        ("algorithm.rl_individuals=11", "expected rl_individuals <= strategy.population=10; got 11"),
        ("algorithm={behaviour: faithful, strategy: {importance_mixing: true}}", "set warmup_updates_distribution=false"),
    ],
)
def test_what_is_wrong_in_a_hybrid_is_said_by_its_own_keys(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config("halfcheetah-cem-rl", [], ["algorithm.learner.name=sac", override])
    assert said in str(error.value)


def test_part_of_a_hybrids_strategy_leaves_the_rest_as_it_was() -> None:
    config = load_config(None, [], ["env.id=Hopper-v5", "algorithm.name=cem-rl", "algorithm.strategy.population=20"])
    assert (config.algorithm.strategy.divide_variance_by_k, config.algorithm.strategy.noise_tau) == (True, 0.9)  # type: ignore[union-attr]
    assert load_config(None, [], ["env.id=Hopper-v5", "algorithm.name=aes-rl", "algorithm.learner=sac"]).policy.head == "gaussian"


@pytest.mark.parametrize(
    ("preset", "override", "message"),
    [
        ("pendulum-td3", "algorithm.collect=5", "key 'algorithm.collect' is now called 'rollout_length': use algorithm.rollout_length"),
        ("pendulum-td3", "algorithm.batch=5", "use algorithm.batch_size"),
        ("pendulum-sac", "algorithm.overlap=1", "use algorithm.actor_lag"),
        ("cartpole", "algorithm.probe=true", "use algorithm.evaluate_center"),
        ("cartpole", "algorithm.cap.share=0.5", "use algorithm.cap.fraction"),
        ("pendulum-aes-rl", "algorithm.window=5", "use algorithm.actor_steps_window"),
        ("pendulum-aes-rl", "algorithm.learner.batch=5", "use algorithm.learner.batch_size"),
        ("pendulum-cem-rl", "algorithm.strategy.divide=true", "use algorithm.strategy.divide_variance_by_k"),
        ("pendulum-p-cem-rl", "algorithm.critic=parallel", "use algorithm.critic_schedule"),
    ],
)
def test_a_key_of_an_earlier_version_is_refused_with_its_new_name(preset: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(preset, [], [override])
    assert message in str(error.value)


def test_every_new_name_of_an_old_key_exists() -> None:
    for entry in ALGORITHMS.values():
        for model in (m for m in entry.config.__mro__ if issubclass(m, ConfigModel)):
            assert set(model.renamed.values()) <= set(model.model_fields), model


def test_an_algorithm_takes_its_tuned_section_or_its_defaults() -> None:
    assert load_config(algorithm="td3", env="HalfCheetah-v5") == load_config("halfcheetah-td3")
    assert load_config(algorithm="sac", env="Swimmer-v5").algorithm.gamma == 0.9999  # type: ignore[attr-defined]
    other = load_config(algorithm="cem-rl", env="my_package.worlds:Robot")
    assert other.env.id == "my_package.worlds:Robot"
    assert other.algorithm.learner.batch_size == 100  # type: ignore[attr-defined]
    assert other.stop.learning_steps == 1_000_000
    assert other.run.name == "my_package.worlds-Robot-cem-rl"
    assert load_config(env="CartPole-v1") == load_config("cartpole")
    with pytest.raises(ConfigError, match="Did you mean 'td3'"):
        load_config(algorithm="td4", env="HalfCheetah-v5")
    with pytest.raises(ConfigError, match="a PRESET or --algo and --env, not both"):
        load_config("cartpole", algorithm="td3")


def test_problems_of_every_section_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        load_config("cartpole", [], ["algorithm.lrr=1", "run.sed=3"])
    assert "algorithm.lrr" in str(error.value)
    assert "run.sed" in str(error.value)
    with pytest.raises(ConfigError) as error:
        load_config("cartpole", [], ["executor.name=procss", "algorithm.lrr=1", "env.backend=envpol"])
    assert "'executor.name': no executor 'procss'" in str(error.value)
    assert "Did you mean 'envpool'?" in str(error.value)
    assert "algorithm.lrr" in str(error.value)


def test_the_defaults_of_an_algorithm_hold_however_it_is_chosen() -> None:
    chosen = load_config(None, [], ["env.id=Hopper-v5", "algorithm.name=cem-rl"])
    assert chosen.algorithm.learner.batch_size == 100  # type: ignore[attr-defined]
    assert chosen.stop.learning_steps == 1_000_000
    assert load_config(None, [], ["env.id=Hopper-v5", "algorithm.name=td3"]).stop.env_steps == 1_000_000


def test_the_schema_knows_every_algorithm() -> None:
    text = str(config_schema())
    assert all(entry.config.__name__ in text for entry in ALGORITHMS.values())


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("train cartpole -m a=1 b=2", "train cartpole -m a=1 -m b=2"),
        ("train -c x.yaml y.yml -m a=1 cartpole", "train -c x.yaml -c y.yml -m a=1 cartpole"),
        ("train -m a=1 --out d -c x.yaml", "train -m a=1 --out d -c x.yaml"),
        ("train cartpole --out a=b", "train cartpole --out a=b"),
        ("train -m a=1 --quiet b=2", "train -m a=1 --quiet b=2"),
    ],
)
def test_options_that_take_several_values(args: str, expected: str) -> None:
    assert repeat_options(args.split()) == expected.split()


@pytest.mark.parametrize(("algorithm", "key"), [("acem", "mean_trials"), ("acem-rl", "mean_episodes"), ("acem-rl", "count_evaluations")])
def test_a_removed_key_says_why(algorithm: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"key 'algorithm.{key}' was removed: .*the mean is not played. Leave it out"):
        load_config(None, [], ["env.id=Pendulum-v1", f"algorithm.name={algorithm}", f"algorithm.{key}=1"])


@pytest.mark.parametrize("page", ["README.md", "docs/algorithms.md"])
def test_the_docs_know_every_algorithm(page: str) -> None:
    text = (Path(__file__).parents[2] / page).read_text()
    own = [name for name, entry in ALGORITHMS.items() if entry.config.__module__.startswith("baldwin.")]
    assert len(own) >= 13
    assert not [name for name in own if f"`{name}`" not in text]


def test_keys_of_a_part_that_was_named_in_one_word_are_not_lost() -> None:
    with pytest.raises(ConfigError, match=r"memory is 'lstm' and cannot get size besides: write memory\.kind=lstm"):
        load_config(None, [], ["env.id=CartPole-v1", "policy.memory=lstm", "policy.memory.size=8"])
    assert merge({"images": "nature"}, {"images": {"conv": "small"}}) == {"images": {"conv": "small"}}
    assert merge({"kwargs": {"reward": "sparse"}}, {"kwargs": {"reward": {"a": 1}}}) == {"kwargs": {"reward": {"a": 1}}}
    config = load_config(None, [], ["env.id=CartPole-v1", "policy.memory.kind=lstm", "policy.memory.size=8"])
    assert (config.policy.memory.kind, config.policy.memory.size) == ("lstm", 8)


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_hybrids_say_which_learners_they_take(name: str) -> None:
    with pytest.raises(ConfigError, match=f"expected td3 or sac, whose critics learn from the hybrid's replay buffer; {name}"):
        load_config(None, [], ["env.id=Pendulum-v1", "algorithm.name=cem-rl", f"algorithm.learner.name={name}"])


def test_hybrids_take_every_learner_with_an_actor_and_a_replay_buffer() -> None:
    own = {name: entry.config for name, entry in ALGORITHMS.items() if entry.config.__module__.startswith("baldwin.")}
    assert set(LEARNERS) == {name for name, config in own.items() if issubclass(config, ActorCriticConfig)}
