import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from baldwin.errors import ConfigError
from baldwin.networks import (
    ActionMap,
    GreedyPolicy,
    NetworkConfig,
    Normalizer,
    NumpyMLP,
    PolicyConfig,
    StackedNetwork,
    batched_mlp,
    make_network,
    stack_trials,
)
from baldwin.networks.batched_mlp import BatchedMLP, split_params
from baldwin.observations import describe_observations, vector_spec
from baldwin.ops.moments import Moments
from baldwin.ops.noise import Noise
from baldwin.types import Perturbation, Trial
from tests.networks.tools import outputs

FUNCTIONS = {"tanh": torch.tanh, "relu": torch.relu, "leaky-relu": nn.functional.leaky_relu, "selu": torch.selu}


def torch_mlp(flat: np.ndarray, sizes: list[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    at = 0
    for fan_in, fan_out in pairwise(sizes):
        linear = nn.Linear(fan_in, fan_out)
        linear.weight.data = torch.from_numpy(flat[at : at + fan_in * fan_out].reshape(fan_out, fan_in).copy())
        linear.bias.data = torch.from_numpy(flat[at + fan_in * fan_out : at + (fan_in + 1) * fan_out].copy())
        at += (fan_in + 1) * fan_out
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize(("name", "module"), [("tanh", nn.Tanh), ("relu", nn.ReLU), ("selu", nn.SELU)])
@pytest.mark.parametrize("hidden", [[], [8], [8, 5, 7]])
def test_stacked_networks_are_plain_ones(name: str, module: type[nn.Module], hidden: list[int]) -> None:
    policy = make_network(PolicyConfig(hidden=hidden, activation=name, init="torch"), vector_spec(3), 2)
    rows = np.stack([policy.init(seed) for seed in range(4)])
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    out = outputs(policy, rows, x)
    for n in range(4):
        assert out[n] == pytest.approx(torch_mlp(rows[n], [3, *hidden, 2], module)(x[n]).detach(), abs=1e-5)


def test_the_small_net_of_pytorch_es_has_its_parameters() -> None:
    policy = make_network(PolicyConfig(activation="selu"), vector_spec(4), 2)
    assert len(policy.init(0)) == 4610  # of pytorch-es
    assert len(make_network(PolicyConfig(), vector_spec(17), 6).init(0)) == 5702  # of es-torch


def test_normc_weights_have_the_norm_they_say() -> None:
    policy = make_network(PolicyConfig(hidden=[8], output_scale=0.01), vector_spec(3), 2)
    flat = policy.init(0)
    assert np.linalg.norm(flat[:24].reshape(8, 3), axis=1) == pytest.approx(np.ones(8))
    assert (flat[24:32] == 0).all()
    assert np.linalg.norm(flat[32:48].reshape(2, 8), axis=1) == pytest.approx(np.full(2, 0.01))


def test_xavier_and_torch_bounds() -> None:
    xavier = make_network(PolicyConfig(hidden=[100], init="xavier"), vector_spec(50), 2).init(0)[:5000]
    plain = make_network(PolicyConfig(hidden=[100], init="torch"), vector_spec(50), 2).init(0)[:5100]
    assert np.abs(xavier).max() == pytest.approx(np.sqrt(6 / 150), rel=0.01)
    assert np.abs(plain).max() == pytest.approx(1 / np.sqrt(50), rel=0.01)


def trials(noise: Noise) -> list[Trial]:
    return [Trial(n, 0, Perturbation(noise, 2, n // 2, s)) for n, s in enumerate([0.3, -0.3, 0.3, -0.3, 0.0])]


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_perturbed_members_are_centre_plus_scaled_noise(rank: int) -> None:
    policy = make_network(PolicyConfig(hidden=[6]), vector_spec(3), 2)
    center = policy.init(1)
    noise = Noise((1, 2), policy.shapes, rank)
    stack = stack_trials(policy, trials(noise), torch.from_numpy(center), width=5)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    dense = np.stack([center + t.params.scale * noise.expand(noise.draw(2, t.params.pair)[None])[0] for t in trials(noise)])  # type: ignore[union-attr]
    assert stack({"vector": x}).numpy() == pytest.approx(outputs(policy, dense, x).numpy(), abs=1e-5)


def test_rows_can_be_replaced_and_compacted() -> None:
    policy = make_network(PolicyConfig(hidden=[6]), vector_spec(3), 2)
    given = [Trial(n, 0, policy.init(n)) for n in range(4)]
    stack = stack_trials(policy, given, torch.zeros(0), width=2)
    x = torch.ones(2, 3)
    alone = outputs(policy, np.stack([policy.init(n) for n in range(4)]), torch.ones(4, 3))
    stack.load(0, 3)
    assert stack({"vector": x}).numpy() == pytest.approx(alone[[3, 1]].numpy(), abs=1e-6)
    stack.keep(torch.tensor([1]))
    assert stack({"vector": x[:1]}).numpy() == pytest.approx(alone[[1]].numpy(), abs=1e-6)


def test_a_users_module_is_evaluated_for_many_at_once() -> None:
    from tests.toys.worlds import TinyNet

    policy = make_network(PolicyConfig(kind="module", module="tests.toys.worlds:TinyNet", kwargs={"width": 4}), vector_spec(3), 2)
    rows = np.stack([policy.init(s) for s in range(3)])
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    out = outputs(policy, rows, x)
    net = TinyNet(3, 2, width=4)
    nn.utils.vector_to_parameters(torch.from_numpy(rows[1]), net.parameters())
    assert out[1].numpy() == pytest.approx(net(x[1]).detach().numpy(), abs=1e-6)
    assert (policy.init(7) == policy.init(7)).all()


def test_making_a_users_module_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    make_network(PolicyConfig(kind="module", module="tests.toys.worlds:TinyNet"), vector_spec(3), 2).init(3)
    assert (torch.random.get_rng_state() == before).all()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("no.such:Net", "cannot import"),
        ("tests.toys.worlds:TinyNe", "Did you mean 'TinyNet'"),
        ("tests.toys.worlds:Chase", "expected a class derived from torch.nn.Module"),
    ],
)
def test_a_module_that_is_not_there_is_named(module: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_network(PolicyConfig(kind="module", module=module), vector_spec(3), 2)


def test_tanh_actions_are_scaled_to_the_box() -> None:
    act = ActionMap(spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 1.0]), dtype=np.float64), "tanh")
    assert act(torch.tensor([[0.0, 0.0], [100.0, -100.0]])).tolist() == [[0, 0.5], [2, 0]]
    assert act(torch.tensor([[np.arctanh(0.5), 0.0]])).tolist()[0] == pytest.approx([1.0, 0.5])


def test_clipped_and_plain_actions() -> None:
    box = spaces.Box(-2, 2, (2,), np.float32)
    assert ActionMap(box, "clip")(torch.tensor([[0.5, 7.0]])).tolist() == [[1, 2]]
    assert ActionMap(box, "none")(torch.tensor([[0.5, 7.0]])).tolist() == [[0.5, 7]]


def test_an_unbounded_box_is_never_squashed() -> None:
    assert ActionMap(spaces.Box(-np.inf, np.inf, (1,), np.float32), "tanh")(torch.tensor([[7.0]])).tolist() == [[7]]


def test_action_noise_stays_in_the_box() -> None:
    act = ActionMap(spaces.Box(-2, 2, (1,), np.float32), "tanh")
    assert act(torch.tensor([[0.0], [9.0]]), torch.tensor([[0.25], [0.25]])).tolist() == [[0.5], [2]]


def test_discrete_actions_are_the_argmax() -> None:
    assert ActionMap(spaces.Discrete(3, start=5), "tanh")(torch.tensor([[0.0, 2.0, 1.0]])).tolist() == [6]
    both = ActionMap(spaces.MultiDiscrete([2, 3]), "tanh")
    assert both.size == 5
    assert both(torch.tensor([[1.0, 0.0, 0.0, 0.0, 3.0]])).tolist() == [[0, 2]]
    assert ActionMap(spaces.MultiBinary(3), "tanh")(torch.tensor([[1.0, -1.0, 0.5]])).tolist() == [[1, 0, 1]]


def test_an_action_space_without_a_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected Box, Discrete, MultiDiscrete, MultiBinary"):
        ActionMap(spaces.Text(3), "tanh")


def test_normaliser_by_hand() -> None:
    moments = Moments.of(np.array([[0.0, 5.0], [4.0, 5.0]]))  # mean 2 and 5, std 2 and 0 (floor 0.1)
    normalize = Normalizer(PolicyConfig(), moments)
    assert normalize({"vector": torch.tensor([[4.0, 5.2], [100.0, -9.0]])})["vector"].numpy() == pytest.approx(
        np.array([[1, 2], [5, -5]]), abs=1e-4
    )
    assert Normalizer(PolicyConfig(normalize_obs=False), moments)(torch.tensor([[4.0, 5.2]])).tolist() == [[4.0, pytest.approx(5.2)]]


def test_greedy_policy_carries_its_normaliser() -> None:
    config = PolicyConfig(hidden=[], init="torch")
    obs, act = spaces.Box(-9, 9, (2,), np.float32), spaces.Box(-1, 1, (1,), np.float32)
    params = np.array([1.0, 0.0, 0.0], np.float32)
    arrays = {"params": params, "obs_moments": Moments.of(np.array([[0.0, 0.0], [4.0, 4.0]])).pack()}
    policy = GreedyPolicy(config, describe_observations(obs, "a test"), act, arrays)
    assert policy.act(np.array([4.0, 0.0], np.float32)) == pytest.approx(np.tanh(1.0))


@pytest.mark.parametrize("in_numpy", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu", "selu", "leaky-relu"])
def test_gradients_of_batched_perceptrons_are_those_of_nn_linear(activation: str, in_numpy: bool) -> None:
    net = make_network(NetworkConfig(hidden=[70, 4], activation=activation, init="torch"), vector_spec(3), 2)
    dtype = torch.float32 if in_numpy else torch.float64
    params = torch.from_numpy(np.stack([net.init(1), net.init(2)])).to(dtype).requires_grad_()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 6, 3))).to(dtype).requires_grad_()
    slope = torch.randn(2, 6, 2, dtype=dtype)
    bound = net.bind(params)
    assert isinstance(bound, BatchedMLP)
    if in_numpy:
        bound.use_numpy()
    assert isinstance(bound.forward(x)[1][0], np.ndarray) == in_numpy
    grad_params, grad_x = torch.autograd.grad(bound({"vector": x}, torch.empty(0))[0], (params, x), slope)
    kind = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "selu": torch.nn.SELU, "leaky-relu": torch.nn.LeakyReLU}[activation]
    for n in range(2):
        linear = [torch.nn.Linear(i, o).to(dtype) for i, o in ((3, 70), (70, 4), (4, 2))]
        plain = torch.nn.Sequential(linear[0], kind(), linear[1], kind(), linear[2])
        torch.nn.utils.vector_to_parameters(params[n].detach(), plain.parameters())
        own = x[n].detach().requires_grad_()
        plain(own).backward(slope[n])
        torch.testing.assert_close(grad_x[n], own.grad)
        torch.testing.assert_close(grad_params[n], torch.cat([p.grad.ravel() for p in plain.parameters()]))


@pytest.mark.parametrize(("hidden", "dtype"), [(40_000, torch.float32), (8, torch.float64)])
def test_batches_that_are_large_or_precise_are_left_to_torch(hidden: int, dtype: torch.dtype) -> None:
    net = make_network(NetworkConfig(hidden=[hidden]), vector_spec(3), 1)
    bound = net.bind(torch.from_numpy(net.init(1)[None]).to(dtype))
    assert isinstance(bound, BatchedMLP)
    bound.use_numpy()
    assert isinstance(bound.forward(torch.zeros(1, 1, 3, dtype=dtype))[1][0], torch.Tensor)


def test_kept_buffers_never_mix_gradients() -> None:
    """Two calls in one loss, gradients that add up over two losses, and a gradient that someone holds."""
    net = make_network(NetworkConfig(hidden=[8], init="torch"), vector_spec(3), 1)
    params = torch.from_numpy(np.stack([net.init(1)])).requires_grad_()
    bound = net.bind(params)

    def forward(x: torch.Tensor) -> torch.Tensor:
        return bound({"vector": x}, torch.empty(0))[0]

    a, b = torch.randn(1, 5, 3), torch.randn(1, 5, 3)
    (first,) = torch.autograd.grad(forward(a).sum(), params)
    held = first.clone()
    (second,) = torch.autograd.grad(forward(b).sum(), params)
    torch.testing.assert_close(first, held)
    torch.testing.assert_close(torch.autograd.grad(forward(a).sum(), params)[0], held)
    (both,) = torch.autograd.grad(forward(a).sum() + forward(b).sum(), params)
    torch.testing.assert_close(both, held + torch.autograd.grad(forward(b).sum(), params)[0])
    params.grad = None
    forward(a).sum().backward()
    forward(b).sum().backward()
    torch.testing.assert_close(params.grad, both)
    params.grad = None
    forward(a).sum().backward()
    detached, row, array = params.grad.detach(), params.grad[0], params.grad.numpy()  # type: ignore[union-attr, unused-ignore]
    params.grad = None
    forward(b).sum().backward()
    for kept in (detached[0], row, torch.from_numpy(array)[0]):
        torch.testing.assert_close(kept, held[0])
    assert not torch.equal(first, second)
    with pytest.raises(RuntimeError, match="differentiable once"):
        torch.autograd.grad(forward(a).sum(), params, create_graph=True)


def test_soft_updates_by_hand() -> None:
    net = StackedNetwork(
        make_network(NetworkConfig(hidden=[]), vector_spec(1), 1), np.array([[1.0, 2.0]], np.float32), 1e-3, torch.device("cpu")
    )
    with torch.no_grad():
        net.params[:] = torch.tensor([[3.0, 2.0]])
    net.soft_update(0.25)
    assert net.target.tolist() == [[1.5, 2.0]]


def test_one_step_is_that_of_torch_adam() -> None:
    start = np.array([[1.0, -2.0, 0.5, 0.1]], np.float32)
    ours, theirs = (
        StackedNetwork(make_network(NetworkConfig(hidden=[1]), vector_spec(1), 1), start, 0.1, torch.device("cpu")),
        torch.nn.Parameter(torch.from_numpy(start.copy())),
    )
    adam = torch.optim.Adam([theirs], 0.1)
    for _ in range(3):
        ours.minimize(ours.params.square().sum())
        adam.zero_grad()
        theirs.square().sum().backward()
        adam.step()
    np.testing.assert_allclose(ours.vectors(), theirs.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("library", ["onednn", "torch"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("activation", ["tanh", "relu", "leaky-relu", "selu"])
def test_large_perceptrons_are_those_of_autograd(activation: str, count: int, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "torch":
        monkeypatch.setattr(batched_mlp, "HAS_ONEDNN", False)
    shapes = ((300, 23), (300,), (256, 300), (256,), (2, 256), (2,))
    x = torch.randn(count, 64, 23, generator=torch.Generator().manual_seed(0))
    grad = torch.randn(count, 64, 2, generator=torch.Generator().manual_seed(1))
    params = 0.1 * torch.randn(count, sum(math.prod(s) for s in shapes), generator=torch.Generator().manual_seed(2))
    rows, given = params.clone().requires_grad_(), x.clone().requires_grad_()
    mlp = BatchedMLP(rows, shapes, activation)
    assert mlp._one_by_one(given) == batched_mlp.HAS_ONEDNN
    found = mlp.outputs(given)
    found.backward(grad)  # type: ignore[no-untyped-call]
    plain, inputs = params.double().requires_grad_(), x.double().requires_grad_()
    layers = split_params(plain, shapes)
    hidden = inputs
    for weight, bias in zip(layers[0:4:2], layers[1:4:2], strict=True):
        hidden = FUNCTIONS[activation](torch.baddbmm(bias[:, None], hidden, weight.transpose(1, 2)))
    expected = torch.baddbmm(layers[5][:, None], hidden, layers[4].transpose(1, 2))
    expected.backward(grad.double())  # type: ignore[no-untyped-call]
    assert plain.grad is not None
    assert inputs.grad is not None
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rows.grad.double(), plain.grad, rtol=1e-4, atol=1e-4)  # type: ignore[union-attr]
    torch.testing.assert_close(given.grad.double(), inputs.grad, rtol=1e-4, atol=1e-4)  # type: ignore[union-attr]


@pytest.mark.parametrize("activation", ["tanh", "relu", "leaky-relu", "selu"])
def test_perceptrons_in_numpy_are_those_in_torch(activation: str) -> None:
    shapes = ((7, 3), (7,), (5, 7), (5,), (2, 5), (2,))
    rng = np.random.default_rng(0)
    params = rng.normal(size=(2, sum(int(np.prod(shape)) for shape in shapes))).astype(np.float32)
    x, grad = rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=(2, 6, 2)).astype(np.float32)
    rows = torch.from_numpy(params.copy()).requires_grad_()
    expected = BatchedMLP(rows, shapes, activation).outputs(torch.from_numpy(x).expand(2, 6, 3))
    expected.backward(torch.from_numpy(grad.copy()))
    mlp = NumpyMLP(params, shapes, activation)
    out, inputs = mlp.forward(x)
    into = np.empty_like(params)
    mlp.backward(inputs, grad, into)
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    assert rows.grad is not None
    np.testing.assert_allclose(into, rows.grad.numpy(), rtol=1e-4, atol=1e-5)
