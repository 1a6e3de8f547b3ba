"""What bonuses and representation losses share: windows, networks, and one step of several of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from baldwin.learners.auxiliary import apply, make_mlp, minimize, section_by_kind
from tests.learners.windows import CPU, random_window, seeded


def test_a_common_step_is_that_of_torch_adam() -> None:
    """Two linear layers one behind the other, two steps."""
    networks = [make_mlp(name, 3, 3, [], 0.01, 1, CPU) for name in ("first", "second")]
    layers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    for network, layer in zip(networks, layers, strict=True):
        assert isinstance(layer, nn.Linear)
        with torch.no_grad():
            layer.weight.copy_(network.params[0, :9].view(3, 3))
            layer.bias.copy_(network.params[0, 9:])
    adam = torch.optim.Adam(layers.parameters(), 0.01)
    x = torch.randn(5, 3, generator=seeded())
    for _ in range(2):
        minimize(apply(networks[1], apply(networks[0], x)).square().mean(), networks)
        adam.zero_grad()
        layers(x).square().mean().backward()
        adam.step()
    expected = torch.cat([p.detach().flatten() for p in layers.parameters()])
    torch.testing.assert_close(torch.cat([network.params.detach()[0] for network in networks]), expected)


def test_without_a_gradient_there_is_no_step() -> None:
    network = make_mlp("one", 3, 3, [], 0.01, 1, CPU)
    before = network.vectors()
    network.descend()
    assert (network.vectors() == before).all()


def test_parameters_depend_on_seed_and_name() -> None:
    first = make_mlp("one", 3, 2, [4], 0.01, 1, CPU).vectors()
    assert (make_mlp("one", 3, 2, [4], 0.5, 1, CPU).vectors() == first).all()
    assert (make_mlp("two", 3, 2, [4], 0.01, 1, CPU).vectors() != first).all()
    assert (make_mlp("one", 3, 2, [4], 0.01, 2, CPU).vectors() != first).all()


def test_inputs_stand_side_by_side() -> None:
    network = make_mlp("one", 5, 2, [4], 0.01, 1, CPU)
    left, right = torch.randn(7, 3, generator=seeded()), torch.randn(7, 2, generator=seeded(1))
    assert torch.equal(apply(network, left, right), apply(network, torch.cat((left, right), 1)))
    assert apply(network, left, right).shape == (7, 2)


def test_real_steps_of_a_window() -> None:
    valid = torch.tensor([[True, False], [True, True]])
    given = random_window(1, size=2, length=2, valid=valid)
    steps = given.steps()
    assert torch.equal(steps.features, torch.stack((given.features[0, 0], given.features[1, 0], given.features[1, 1])))
    assert torch.equal(steps.next_features, torch.stack((given.features[0, 1], given.features[1, 1], given.features[1, 2])))
    assert torch.equal(steps.next_target_features, steps.next_features)
    assert torch.equal(steps.action, torch.stack((given.action[0, 0], given.action[1, 0], given.action[1, 1])))
    assert steps.reward.tolist() == [given.reward[0, 0], given.reward[1, 0], given.reward[1, 1]]


def test_a_section_is_a_word_or_settings() -> None:
    assert section_by_kind("icm") == {"kind": "icm"}
    assert section_by_kind(None) == section_by_kind(False) == section_by_kind({}) == {}
    with pytest.raises(ValueError, match="expected a kind besides lr, hidden"):
        section_by_kind({"lr": 1.0, "hidden": []})
