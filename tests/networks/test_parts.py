"""Every part of a network, and mixes of them, against torch's own modules; many at once equal to each alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from baldwin.config import load_config
from baldwin.errors import ConfigError
from baldwin.networks import NETWORKS, NetworkConfig, PolicyConfig, make_network, stack_trials
from baldwin.networks.encoders import CONV_STACKS, ConvEncoder, Residual
from baldwin.networks.memory import GRU, LSTM, Attention
from baldwin.networks.network import Network, initial_state
from baldwin.networks.tensors import RowTensors
from baldwin.observations import ObservationSpec, describe_observations, vector_spec
from baldwin.ops.noise import Noise
from baldwin.types import Perturbation, Trial

SPACE = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (12, 12, 3), np.uint8),
        "joints": spaces.Box(-1, 1, (4,), np.float32),
        "level": spaces.Discrete(3),
        "lidar": spaces.Box(0, 255, (1, 36, 40), np.uint8),
    }
)
RNG = torch.Generator().manual_seed(0)


def spec(frames: int = 1) -> ObservationSpec:
    return describe_observations(SPACE, "a test", frames=frames)


def inputs(of: ObservationSpec, *batch: int) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {"vector": torch.randn(*batch, of.vector_size, generator=RNG)} if of.vector_size else {}
    for s in of.images:
        found[s.key] = torch.randint(0, 256, (*batch, s.shape[0] * of.frames, *s.shape[1:]), dtype=torch.uint8, generator=RNG)
    return found


def rows_of(part: Any, count: int) -> Tensor:
    return torch.from_numpy(np.stack([np.concatenate(part.init(np.random.default_rng(n))) for n in range(count)]).astype(np.float32))


def fill(module: nn.Module, row: Tensor) -> nn.Module:
    nn.utils.vector_to_parameters(row, module.parameters())
    return module.eval()


@torch.no_grad()
def test_lstm_and_gru_are_torch_cells() -> None:
    for part, cell in ((LSTM(3, 5), nn.LSTMCell(3, 5)), (GRU(3, 5), nn.GRUCell(3, 5))):
        named = dict(cell.named_parameters())
        order = [named[n] for n in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")]
        rows = rows_of(part, 4)
        step = part.bind(RowTensors(rows, part.shapes))
        x, state = torch.randn(6, 4, 2, 3, generator=RNG), torch.zeros(4, 2, part.state_size)
        found = []
        for t in range(6):
            out, state = step(x[t], state)
            found.append(out)
        for n in range(4):
            nn.utils.vector_to_parameters(rows[n], order)
            h: Any = None
            for t in range(6):
                h = cell(x[t, n], h)
                torch.testing.assert_close(found[t][n], h[0] if isinstance(part, LSTM) else h, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_attention_is_torch_multihead_attention_over_the_last_steps() -> None:
    size, window, heads = 8, 4, 2
    part = Attention(3, size, window, heads)
    rows = rows_of(part, 3)
    step = part.bind(RowTensors(rows, part.shapes))
    x, state, found = torch.randn(7, 3, 2, 3, generator=RNG), torch.zeros(3, 2, part.state_size), []
    for t in range(7):
        out, state = step(x[t], state)
        found.append(out)
    for n in range(3):
        weight, bias, ages, qkv, qkv_bias, out_w, out_b = _split(rows[n], part.shapes)
        theirs = nn.MultiheadAttention(size, heads, batch_first=True)
        theirs.in_proj_weight.data, theirs.in_proj_bias.data = qkv, qkv_bias
        theirs.out_proj.weight.data, theirs.out_proj.bias.data = out_w, out_b
        embedded = x[:, n] @ weight.T + bias  # [T, B, E]
        for t in range(7):
            first = max(0, t - window + 1)
            seen = embedded[first : t + 1].transpose(0, 1) + ages.view(window, size)[window - (t + 1 - first) :]
            looked, _ = theirs(seen[:, -1:], seen, seen)
            torch.testing.assert_close(found[t][n], embedded[t] + looked[:, 0], rtol=1e-4, atol=1e-5)


def _split(row: Tensor, shapes: Any) -> list[Tensor]:
    tensors = RowTensors(row[None], shapes)
    return [tensors.tensor()[0] for _ in shapes]


def plain_convs(name: str, channels: int, side: tuple[int, int]) -> nn.Module:
    blocks, hidden = CONV_STACKS[name]
    layers: list[nn.Module] = []
    for block in blocks:
        if isinstance(block, Residual):
            layers.append(PlainResidual(channels, block.channels))
        else:
            layers += [nn.Conv2d(channels, block.channels, block.kernel, block.stride, block.padding), nn.ReLU()]
        channels, side = block.channels, (block.size(side[0]), block.size(side[1]))
    layers.append(nn.Flatten())
    width = channels * side[0] * side[1]
    for units in hidden:
        layers += [nn.Linear(width, units), nn.ReLU()]
        width = units
    return nn.Sequential(*layers)


class PlainResidual(nn.Module):
    """A block of IMPALA's network, as in the paper's figure; the last activation belongs to what follows."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(channels, out, 3, 1, 1), *(nn.Conv2d(out, out, 3, 1, 1) for _ in range(4))])

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.convs[0](x), 3, 2, 1)
        for first in (1, 3):
            x = x + self.convs[first + 1](torch.relu(self.convs[first](torch.relu(x))))
        return torch.relu(x)


@torch.no_grad()
@pytest.mark.parametrize("name", list(CONV_STACKS))
@pytest.mark.parametrize("batch", [1, 3])
def test_convolutions_are_torch_convolutions(name: str, batch: int) -> None:
    blocks, hidden = CONV_STACKS[name]
    part = ConvEncoder((2, 40, 37), blocks, hidden, "relu", "torch", virtual_batch_norm=False)
    rows = rows_of(part, 3)
    x = torch.rand(3, batch, 2, 40, 37, generator=RNG)
    found = part.bind(RowTensors(rows, part.shapes))(x)
    for n in range(3):
        torch.testing.assert_close(found[n], fill(plain_convs(name, 2, (40, 37)), rows[n])(x[n]), rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("activation", ["selu", "relu", "tanh"])
@pytest.mark.parametrize(("name", "channels"), [("strided", 1), ("strided", 4), ("nature", 2)])
def test_convolutions_of_one_picture_with_fixed_weights_are_the_same(name: str, channels: int, activation: str) -> None:
    blocks, hidden = CONV_STACKS[name]
    part = ConvEncoder((channels, 42, 40), blocks, hidden, activation, "torch", virtual_batch_norm=False)
    rows = 2 * rows_of(part, 3)
    fixed, free = (part.bind(RowTensors(rows, part.shapes, fixed=how)) for how in (True, False))
    for _ in range(2):  # the second time into buffers that were used
        x = torch.rand(3, 1, channels, 42, 40, generator=RNG)
        torch.testing.assert_close(fixed(x), free(x), rtol=1e-4, atol=1e-5)


def test_the_convnet_lstm_has_the_parameters_of_pytorch_es() -> None:
    screen = describe_observations(spaces.Box(0, 255, (1, 42, 42), np.uint8), "a test")
    assert len(make_network(PolicyConfig(network="convnet-lstm"), screen, 6).init(0)) == 588_710
    nature = describe_observations(spaces.Box(0, 255, (1, 84, 84), np.uint8), "a test", frames=4)
    assert len(make_network(PolicyConfig(network="nature"), nature, 6).init(0)) == 1_687_206  # DQN's for 6 actions


MIXES: dict[str, dict[str, Any]] = {
    "mlp": {"encoders": {"camera": "mlp", "lidar": {"kind": "mlp", "hidden": [5]}}},
    "conv": {},
    "encoders": {"encoders": {"joints": {"kind": "mlp", "hidden": [7, 5]}, "lidar": "strided", "level": "mlp"}},
    "impala": {"images": "impala"},
    "lstm": {"memory": "lstm", "images": {"conv": "small", "hidden": [8]}},
    "gru": {"memory": {"kind": "gru", "size": 9}, "images": {"conv": "small", "hidden": [8]}, "hidden": []},
    "attention": {"memory": {"kind": "attention", "size": 8, "window": 3, "heads": 2}, "images": "flat"},
    "virtual-batch": {"images": {"conv": "small", "norm": "virtual-batch"}},
    "own encoder": {"encoders": {"lidar": {"module": "tests.networks.modules:Patches", "size": 6}}},
    "own memory": {"memory": {"module": "tests.networks.modules:Average", "size": 5}, "images": "flat"},
    "own network": {"module": "tests.networks.modules:WholePolicy"},
}


def made(mix: str, frames: int = 1) -> Network:
    network = make_network(PolicyConfig(**({"hidden": [6]} | MIXES[mix])), spec(frames), 4)
    if mix == "virtual-batch":
        network.set_reference({key: x.numpy() for key, x in inputs(spec(frames), 16).items()})
    return network


def play(network: Network, rows: Tensor, seen: list[dict[str, Tensor]], fixed: bool = False) -> Tensor:
    """Outputs [T, N, B, out] over several steps."""
    forward, found = network.bind(rows, fixed), []
    state = initial_state(network, len(rows), next(iter(seen[0].values())).shape[1])
    for step in seen:
        out, state = forward(step, state)
        found.append(out)
    return torch.stack(found)


@torch.no_grad()
@pytest.mark.parametrize("mix", list(MIXES))
@pytest.mark.parametrize("batch", [1, 2])
def test_many_networks_are_each_network(mix: str, batch: int) -> None:
    network = made(mix, frames=2)
    rows = torch.from_numpy(np.stack([network.init(n) for n in range(3)]))
    seen = [inputs(spec(2), 3, batch) for _ in range(4)]
    together = play(network, rows, seen)
    torch.testing.assert_close(play(network, rows, seen, fixed=True), together, rtol=1e-4, atol=1e-5)
    for n in range(3):
        alone = play(network, rows[n : n + 1], [{k: x[n : n + 1] for k, x in s.items()} for s in seen])
        torch.testing.assert_close(together[:, n : n + 1], alone, rtol=1e-4, atol=1e-5)
    assert together.std() > 0


@torch.no_grad()
@pytest.mark.parametrize("mix", ["conv", "lstm", "gru", "attention", "encoders", "virtual-batch"])
def test_low_rank_perturbations_are_the_multiplied_out_ones(mix: str) -> None:
    network = made(mix)
    center = torch.from_numpy(network.init(1))
    noise = Noise((1, 2), network.shapes, rank=2)
    trials = [Trial(n, 0, Perturbation(noise, 0, n // 2, scale)) for n, scale in enumerate([0.1, -0.1, 0.1, 0.0])]
    dense = np.stack([center.numpy() + t.params.scale * noise.expand(noise.draw(0, t.params.pair)[None])[0] for t in trials])  # type: ignore[union-attr]
    stack = stack_trials(network, trials, center, width=4)
    forward, state = network.bind(torch.from_numpy(dense)), initial_state(network, 4, 1)
    for _ in range(3):
        seen = inputs(spec(), 4)
        expected, state = forward({k: x[:, None] for k, x in seen.items()}, state)
        torch.testing.assert_close(stack(seen), expected[:, 0], rtol=1e-3, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("mix", ["lstm", "attention", "virtual-batch", "own memory"])
def test_rows_are_exchanged_forgotten_and_compacted(mix: str) -> None:
    network = made(mix)
    trials = [Trial(n, 0, network.init(n)) for n in range(4)]
    stack = stack_trials(network, trials, torch.empty(0), width=2)
    steps = [inputs(spec(), 2) for _ in range(5)]
    stack(steps[0])
    stack.load(0, 3)
    stack.reset(0)
    found = [stack(s)[0] for s in steps[1:3]]
    stack.keep(torch.tensor([0]))
    found += [stack({k: x[:1] for k, x in s.items()})[0] for s in steps[3:]]
    fresh = play(network, torch.from_numpy(network.init(3))[None], [{k: x[:1, None] for k, x in s.items()} for s in steps[1:]])
    torch.testing.assert_close(torch.stack(found), fresh[:, 0, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mix", ["conv", "encoders", "impala", "lstm", "gru", "attention"])
def test_gradients_are_those_of_finite_differences(mix: str) -> None:
    network = made(mix)
    params = torch.from_numpy(np.stack([network.init(n) for n in range(2)])).double().requires_grad_()
    seen = {k: x.double() for k, x in inputs(spec(), 2, 3).items()}
    direction = torch.randn(params.shape, dtype=torch.float64, generator=RNG)
    direction /= direction.norm()

    def loss(p: Tensor) -> Tensor:
        forward, state, total = network.bind(p), initial_state(network, 2, 3).double(), torch.zeros((), dtype=torch.float64)
        for _ in range(2):
            out, state = forward(seen, state)
            total = total + out.square().sum()
        return total

    (gradient,) = torch.autograd.grad(loss(params), params)
    with torch.no_grad():
        numeric = (loss(params + 1e-6 * direction) - loss(params - 1e-6 * direction)) / 2e-6
    assert float((gradient * direction).sum()) == pytest.approx(float(numeric), rel=1e-3, abs=1e-6)
    assert (gradient[0] != 0).float().mean() > 0.3


def test_virtual_batch_norm_by_hand() -> None:
    """One filter that copies the pixel: over the reference batch 0, 1, 2, 3 it has mean 1.5 and variance 1.25."""
    from baldwin.networks.encoders import Conv

    part = ConvEncoder((1, 1, 1), (Conv(1, 1, 1),), [], "relu", "torch", virtual_batch_norm=True)
    part.reference = torch.arange(4.0).view(4, 1, 1, 1)
    row = torch.tensor([[1.0, 7.0, 2.0, 0.5]])  # weight, bias (which cancels), gain, shift
    out = part.bind(RowTensors(row, part.shapes))(torch.tensor([3.0, 0.0]).view(1, 2, 1, 1, 1))
    assert out.ravel().tolist() == pytest.approx([2 * (3 - 1.5) / np.sqrt(1.251) + 0.5, 0.0])
    assert np.concatenate(part.init(np.random.default_rng(0)))[2:].tolist() == [1.0, 0.0]


def test_what_never_moves_is_not_seen() -> None:
    """Centered, a pixel is its difference from its mean over the reference batch, here 2 and 10; only the first one moves."""
    from baldwin.networks.encoders import Conv

    part = ConvEncoder((1, 1, 2), (Conv(1, 1, 1),), [], "leaky-relu", "torch", virtual_batch_norm=True, center=True)
    part.reference = torch.tensor([[1.0, 10.0], [3.0, 10.0]]).view(2, 1, 1, 2)
    row = torch.tensor([[1.0, 0.0, 1.0, 0.0]])  # weight, bias, gain, shift
    out = part.bind(RowTensors(row, part.shapes))(torch.tensor([5.0, 10.0]).view(1, 1, 1, 1, 2))
    assert out.ravel().tolist() == pytest.approx([3 / np.sqrt(0.5 + 1e-3), 0.0])  # the four numbers -1, 0, 1, 0 have variance 1/2


def test_a_preset_of_the_network_is_merged_key_by_key() -> None:
    def policy(*options: str, algorithm: str = "es") -> PolicyConfig:
        return load_config(algorithm=algorithm, env="ALE/Breakout-v5", overrides=list(options)).policy

    changed = policy("policy.network=convnet-lstm", "policy.memory.size=128", "policy.images.norm=virtual-batch")
    assert (changed.memory.kind, changed.memory.size) == ("lstm", 128)
    assert (changed.images.conv, changed.images.activation, changed.images.norm) == ("strided", "selu", "virtual-batch")
    assert policy("policy.network=nature", algorithm="sac").hidden == []
    for options, message in (
        (["policy.module=tests.networks.modules:WholePolicy", "policy.memory=lstm"], "is the whole network"),
        (["policy.images.center=true"], "center needs the fixed batch"),
        (["policy.encoders={obs: {kind: mlp, conv: nature}}"], "conv and norm are for kind=conv"),
    ):
        with pytest.raises(ConfigError, match=message):
            policy(*options)


def test_configs_of_critics_name_no_foreign_code() -> None:
    assert load_config(algorithm="sac", env="Pendulum-v1").foreign_code() == []
    own = load_config(algorithm="sac", env="Pendulum-v1", overrides=["policy.encoders={obs: {module: a.b:C}}"])
    assert own.foreign_code() == ["policy.encoders.obs.module=a.b:C"]


@torch.no_grad()
def test_one_picture_in_and_out_of_inference_mode() -> None:
    screen = describe_observations(spaces.Box(0, 255, (1, 12, 12), np.uint8), "a test")
    network = make_network(PolicyConfig(images="small"), screen, 2)  # type: ignore[arg-type]
    forward = network.bind(torch.from_numpy(network.init(0))[None], fixed=True)
    seen = {"obs": torch.full((1, 1, 1, 12, 12), 9, dtype=torch.uint8)}
    with torch.inference_mode():
        inside, _ = forward(seen, torch.empty(0))
    torch.testing.assert_close(forward(seen, torch.empty(0))[0], inside.clone())


def test_images_are_scaled_in_one_place() -> None:
    screen = describe_observations(spaces.Box(0, 255, (1, 5, 5), np.uint8), "a test")
    network = make_network(NetworkConfig(hidden=[], images="flat"), screen, 1)  # type: ignore[arg-type]
    row = torch.cat([torch.ones(25), torch.zeros(1)])[None]
    out, _ = network.bind(row)({"obs": torch.full((1, 1, 1, 5, 5), 51, dtype=torch.uint8)}, torch.empty(0))
    assert out.item() == pytest.approx(25 * 0.2)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no sensor 'camra'; there are: camera, joints, level, lidar. Did you mean 'camera'"):
        make_network(PolicyConfig(encoders={"camra": "small"}), spec(), 2)  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="a convolution needs an image"):
        make_network(PolicyConfig(encoders={"joints": "nature"}), spec(), 2)  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="12 x 12 is too small for these convolutions"):
        make_network(PolicyConfig(encoders={"camera": "nature"}), spec(), 2)  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="size=10 cannot be shared by heads=4"):
        make_network(PolicyConfig(memory={"kind": "attention", "size": 10}), vector_spec(2), 2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no state_size"):
        make_network(PolicyConfig(memory={"module": "tests.networks.modules:Forgets", "size": 3}), vector_spec(2), 2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"an encoder has none\. Use it as policy\.memory\.module"):
        make_network(PolicyConfig(encoders={"obs": {"module": "tests.networks.modules:Remembers", "size": 3}}), vector_spec(2), 2)  # type: ignore[dict-item]
    network = make_network(PolicyConfig(images={"norm": "virtual-batch"}), spec(), 2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no reference batch"):
        network.bind(torch.from_numpy(network.init(0))[None])
    assert set(NETWORKS) >= {"mlp", "module"}
