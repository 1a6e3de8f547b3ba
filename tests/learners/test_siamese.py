"""Representation losses: against independent formulas, towards what they should find, and exact to continue."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from baldwin.errors import ConfigError
from baldwin.learners.auxiliary import Window, apply, minimize
from baldwin.learners.siamese import ATC, BYOL, ContrastiveQ, RepresentationLoss, SiameseConfig, augment, make_siamese, pick_times
from baldwin.networks import Obs
from baldwin.types import flatten_tree, unflatten_tree
from tests.learners.windows import CPU, assert_same_state, random_window, seeded, shorter, window, with_padding

FEATURES, ACTIONS = 5, 2


class Encoder:
    """A linear encoder of vectors and its slow copy, each with its own way to see."""

    def __init__(self, n_inputs: int = FEATURES, n_features: int = FEATURES, seed: int = 1) -> None:
        self.weight = torch.randn(n_inputs, n_features, generator=seeded(seed)).requires_grad_()
        self.slow = torch.randn(n_inputs, n_features, generator=seeded(seed + 1))
        self.seen: list[tuple[Tensor, bool]] = []

    def __call__(self, obs: Obs, target: bool) -> Tensor:
        self.seen.append((obs["vector"], target))
        return obs["vector"] @ (self.slow if target else self.weight)


class Critics:
    """Two linear critics of features and actions, and their slow copies."""

    def __init__(self) -> None:
        self.weight = torch.randn(2, FEATURES + ACTIONS, generator=seeded(5)).requires_grad_()
        self.slow = torch.randn(2, FEATURES + ACTIONS, generator=seeded(6))

    def __call__(self, features: Tensor, action: Tensor, target: bool) -> Tensor:
        return (self.slow if target else self.weight) @ torch.cat((features, action), -1).T


def make(kind: str, encode: Encoder | None = None, **settings: Any) -> RepresentationLoss:
    config = SiameseConfig(
        **({"hidden": [16], "size": 8, "noise": 0.1} | settings | ({} if kind == "q" else {"kind": kind})), contrastive_q=kind == "q"
    )
    (found,) = make_siamese(config, FEATURES, encode, Critics(), 7, CPU).values()
    return found


def linear(part: RepresentationLoss, name: str, x: Tensor, target: bool = False) -> Tensor:
    return apply(part.networks()[name], x, target=target)


def test_atc_is_cross_entropy_of_the_similarity_matrix() -> None:
    part, encode = make("atc", Encoder(), noise=0.0, weight=2.0), Encoder()
    given = random_window(1, size=4, length=1)
    now, later = given.obs["vector"][:, 0], given.obs["vector"][:, 1]
    c = linear(part, "siamese_projection", now @ encode.weight)
    p = c + linear(part, "siamese_prediction", c)
    positive = linear(part, "siamese_projection", later @ encode.slow, target=True)
    logits = torch.stack([(linear(part, "siamese_similarity", p) * positive[j]).sum(1) for j in range(4)], 1)
    torch.testing.assert_close(part.loss(given, seeded()), 2 * cross_entropy(logits, torch.arange(4)))


def test_atc_contrasts_what_is_later() -> None:
    encode = Encoder()
    part = make("atc", encode, noise=0.0, steps=2)
    given = random_window(1, size=12, length=3)
    part.loss(given, seeded())
    (anchor, slow_anchor), (positive, slow_positive) = encode.seen
    assert (slow_anchor, slow_positive) == (False, True)
    times = [next(t for t in range(4) if torch.equal(given.obs["vector"][row, t], anchor[row])) for row in range(12)]
    assert set(times) == {0, 1}
    for row, t in enumerate(times):
        assert torch.equal(positive[row], given.obs["vector"][row, t + 2])


def test_atc_leaves_out_windows_that_end_before() -> None:
    valid = torch.ones(4, 3, dtype=torch.bool)
    valid[1, 1:] = False
    encode = Encoder()
    make("atc", encode, steps=2).loss(random_window(1, size=4, length=3, valid=valid), seeded())
    assert [len(obs) for obs, _ in encode.seen] == [3, 3]


def test_atc_longer_than_the_window_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"siamese.steps=5 is more than the 4 steps of a window"):
        make("atc", Encoder(), steps=5).loss(random_window(1), seeded())


def test_atc_learns_to_tell_what_comes_next() -> None:
    """What comes next is a rotation of now; by chance, the loss is log 32 = 3.5."""
    generator = seeded()
    turn = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=generator))[0]
    encode, part = Encoder(), make("atc", noise=0.0, lr=1e-2)
    losses = []
    for _ in range(200):
        now = normalize(torch.randn(32, FEATURES, generator=generator), dim=-1)
        given = window(torch.stack((now, now @ turn), 1) @ encode.slow, torch.zeros(32, 1, 1))
        loss = part.loss(given, generator)
        minimize(loss, part.networks().values())
        for network in part.networks().values():
            network.soft_update(0.05)
        losses.append(loss.item())
    assert sum(losses[:5]) / 5 > 3.0
    assert sum(losses[-10:]) / 10 < 1.0


def test_byol_is_the_distance_of_unit_vectors_both_ways() -> None:
    encode = Encoder()
    part = make("byol", encode, noise=0.5, weight=0.5)
    found = part.loss(random_window(1, size=4), seeded())
    (one, _), (other, _), (second, _), (first, _) = encode.seen
    assert [target for _, target in encode.seen] == [False, True, False, True]
    assert torch.equal(one, first)
    assert torch.equal(other, second)
    assert not torch.equal(one, other)
    expected = torch.zeros(())
    for view, slow_view in ((one, other), (other, one)):
        predicted = linear(part, "siamese_prediction", linear(part, "siamese_projection", view @ encode.weight))
        target = linear(part, "siamese_projection", slow_view @ encode.slow, target=True)
        expected = expected + (normalize(predicted, dim=-1) - normalize(target, dim=-1)).square().sum(-1).mean()
    torch.testing.assert_close(found, 0.5 * expected)


def test_byol_comes_to_agree() -> None:
    """The right sign: with training, predictions point to where the slow projections do."""
    part, given = make("byol", lr=3e-3), random_window(1, size=32)
    generator = seeded()
    first = part.loss(given, generator).item()
    for _ in range(200):
        minimize(part.loss(given, generator), part.networks().values())
    assert part.loss(given, generator).item() < 0.1 * first


@pytest.mark.parametrize("kind", ["atc", "byol"])
def test_slow_projections_follow(kind: str) -> None:
    part = make(kind)
    projection = part.networks()["siamese_projection"]
    minimize(part.loss(random_window(1), seeded()), part.networks().values())
    before, now = projection.target.clone(), projection.params.detach().clone()
    assert not torch.equal(before, now)
    for network in part.networks().values():
        network.soft_update(0.25)
    torch.testing.assert_close(projection.target, 0.75 * before + 0.25 * now)


def test_contrastive_q_by_hand() -> None:
    encode, critics = Encoder(), Critics()
    part = make("q", encode, noise=0.3)
    given = random_window(1, size=3, length=1)
    found = part.loss(given, seeded())
    (other, _), (one, _) = encode.seen
    expected = torch.zeros(())
    for j in range(2):
        for row in range(3):
            q = torch.cat((one[row] @ encode.weight, given.action[row, 0])) @ critics.weight[j]
            slow = torch.cat((other[row] @ encode.slow, given.action[row, 0])) @ critics.slow[j]
            expected = expected + (q - slow) ** 2 / 3
    torch.testing.assert_close(found, expected)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("kind", ["atc", "byol", "q"])
def test_the_loss_trains_the_encoder_and_not_the_slow_one(kind: str) -> None:
    encode = Encoder()
    encode.slow.requires_grad_()
    part = make(kind, encode)
    part.loss(random_window(1), seeded()).backward()  # type: ignore[no-untyped-call]
    assert encode.weight.grad is not None
    assert encode.weight.grad.abs().sum() > 0
    assert encode.slow.grad is None
    assert all(network.params.grad is not None for network in part.networks().values())


@pytest.mark.parametrize("kind", ["atc", "byol", "q"])
def test_with_memory_it_is_a_function_of_the_features(kind: str) -> None:
    features = random_window(1).features.requires_grad_()
    given = random_window(1)
    own = window(features, given.action)
    loss = make(kind).loss(own, seeded())
    assert torch.equal(loss, make(kind).loss(own, seeded()))
    loss.backward()  # type: ignore[no-untyped-call]
    assert features.grad is not None
    assert (features.grad.abs().sum((1, 2)) > 0).all()


@pytest.mark.parametrize("kind", ["atc", "byol"])
def test_gradients_are_those_of_differences(kind: str) -> None:
    """Of the networks' parameters, which take part several times."""
    part, given = make(kind, hidden=[4], size=3), random_window(1)
    part.loss(given, seeded()).backward()  # type: ignore[no-untyped-call]
    for network in part.networks().values():
        grad = network.params.grad
        assert grad is not None
        for at in (0, grad.shape[1] // 2):
            values = []
            for step in (1e-2, -2e-2):
                with torch.no_grad():
                    network.params[0, at] += step
                    values.append(part.loss(given, seeded()).item())
            with torch.no_grad():
                network.params[0, at] += 1e-2
            assert grad[0, at].item() == pytest.approx((values[0] - values[1]) / 2e-2, abs=5e-3)


@pytest.mark.parametrize("kind", ["atc", "byol", "q"])
def test_padding_is_not_read(kind: str) -> None:
    whole = random_window(1)
    one, other = make(kind, Encoder()), make(kind, Encoder())
    assert torch.equal(one.loss(with_padding(whole), seeded()), other.loss(shorter(whole), seeded()))
    without = one.loss(random_window(1, valid=torch.zeros(6, 4, dtype=torch.bool)), seeded())
    assert without.item() == 0


@pytest.mark.parametrize("kind", ["atc", "byol"])
def test_a_saved_part_goes_on_exactly(kind: str) -> None:
    def train(part: RepresentationLoss, seed: int) -> None:
        minimize(part.loss(random_window(seed), seeded(seed)), part.networks().values())
        for network in part.networks().values():
            network.soft_update(0.1)

    part, copy = make(kind), make(kind)
    train(part, 1)
    train(copy, 9)
    copy.load_state_dict(unflatten_tree(flatten_tree(part.state_dict())))
    for given in (part, copy):
        train(given, 2)
    assert_same_state(part.state_dict(), copy.state_dict())


def test_times_are_uniform_among_those_allowed() -> None:
    allowed = torch.tensor([[True, False, True], [False, False, False], [False, True, False]])
    counts = torch.zeros(3, 3)
    generator = seeded()
    for _ in range(400):
        rows, times = pick_times(allowed, generator)
        assert rows.tolist() == [0, 2]
        counts[rows, times] += 1
    assert counts[2].tolist() == [0, 400, 0]
    assert 150 < counts[0, 0] < 250
    assert counts[0].sum() == 400


@pytest.mark.parametrize("images", ["shift", "crop", "none"])
def test_augmented_observations(images: str) -> None:
    pixels = torch.randint(256, (6, 1, 12, 12), generator=seeded(), dtype=torch.uint8)
    obs = {"vector": torch.zeros(6, 3), "camera": pixels, "action_mask": torch.ones(6, 2, dtype=torch.bool)}
    config = SiameseConfig(kind="byol", images=images, pixels=2, noise=0.5)
    found = augment(obs, config, seeded())
    assert found["camera"].shape == pixels.shape
    assert found["camera"].dtype == torch.uint8
    assert torch.equal(found["camera"], pixels) == (images == "none")
    assert 0.2 < found["vector"].std() < 1.0
    assert torch.equal(found["action_mask"], obs["action_mask"])
    assert all(torch.equal(x, augment(obs, config, seeded())[key]) for key, x in found.items())


def test_a_crop_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"siamese.pixels=4 cuts nothing out of 'camera', an image of 8 x 8 pixels"):
        augment({"camera": torch.zeros(1, 1, 8, 8)}, SiameseConfig(kind="byol", images="crop"), seeded())


def test_images_through_convolutions() -> None:
    """A whole pass with a real encoder of images."""
    convolution = nn.Conv2d(1, 2, 3)
    with torch.no_grad():
        convolution.weight.copy_(torch.randn(convolution.weight.shape, generator=seeded()))
    pixels = torch.randint(256, (6, 3, 1, 8, 8), generator=seeded(), dtype=torch.uint8)

    def encode(obs: Obs, target: bool) -> Tensor:
        return convolution(obs["camera"] / 255).flatten(1)

    features = encode({"camera": pixels.flatten(0, 1)}, False).detach().view(6, 3, -1)
    given = window(features, torch.zeros(6, 2, 1), obs={"camera": pixels})
    config = SiameseConfig(kind="atc", hidden=[8], size=4, pixels=1)
    part = ATC(config, features.shape[-1], encode, 1, CPU)
    part.loss(given, seeded()).backward()  # type: ignore[no-untyped-call]
    assert convolution.weight.grad is not None
    assert convolution.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("none", []),
        (None, []),
        ("atc", ["atc"]),
        ("byol", ["byol"]),
        ({"contrastive_q": True}, ["contrastive_q"]),
        ({"kind": "byol", "contrastive_q": True, "adaptive": True}, ["byol", "contrastive_q"]),
    ],
)
def test_a_word_or_settings(value: Any, names: list[str]) -> None:
    config = SiameseConfig.model_validate(value)
    found = make_siamese(config, FEATURES, None, Critics(), 1, CPU)
    assert list(found) == names
    kinds = {"atc": ATC, "byol": BYOL, "contrastive_q": ContrastiveQ}
    assert all(isinstance(part, kinds[name]) for name, part in found.items())
    assert SiameseConfig.model_validate(config.model_dump()) == config


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValidationError, match="'none', 'atc' or 'byol'"):
        SiameseConfig.model_validate("simclr")
    with pytest.raises(ValidationError, match="expected a kind besides noise"):
        SiameseConfig.model_validate({"noise": 0.5})
    with pytest.raises(ConfigError, match="contrastive_q needs critics"):
        make_siamese(SiameseConfig(contrastive_q=True), FEATURES, None, None, 1, CPU)


def test_real_observations_are_those_around_real_steps() -> None:
    valid = torch.tensor([[True, False, False], [False, True, True]])
    given: Window = random_window(1, size=2, length=3, valid=valid)
    assert given.real_obs().tolist() == [[True, True, False, False], [False, True, True, True]]
