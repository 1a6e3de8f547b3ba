"""Augmentations: seeded, in range, and made of the image's own pixels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from baldwin.ops.augment import add_noise, random_crop, random_shift


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(count: int, height: int, width: int, channels: int = 2) -> Tensor:
    """Every pixel of an image has a number of its own; all images are alike."""
    image = torch.arange(channels * height * width, dtype=torch.int32).view(channels, height, width)
    return image.expand(count, -1, -1, -1).contiguous()


def test_a_shift_is_a_window_of_the_padded_image_and_every_offset_comes() -> None:
    images, pixels = numbered(500, 5, 6), 2
    padded = pad(images[:1].double(), (pixels,) * 4, mode="replicate")[0].to(images.dtype)
    windows = {(y, x): padded[:, y : y + 5, x : x + 6] for y in range(2 * pixels + 1) for x in range(2 * pixels + 1)}
    found = random_shift(images, pixels, seeded())
    assert found.shape == images.shape
    assert found.dtype == images.dtype
    where = [next(at for at, window in windows.items() if torch.equal(window, image)) for image in found]
    assert set(where) == set(windows)


def test_a_crop_is_a_window_and_every_place_comes() -> None:
    images = numbered(300, 5, 6)
    windows = {(y, x): images[0, :, y : y + 3, x : x + 4] for y in range(3) for x in range(3)}
    found = random_crop(images, 3, 4, seeded())
    assert found.shape == (300, 2, 3, 4)
    where = [next(at for at, window in windows.items() if torch.equal(window, image)) for image in found]
    assert set(where) == set(windows)


def test_an_enlarged_crop_repeats_pixels_of_its_window() -> None:
    """4 pixels out of the window's 2: each comes twice."""
    found = random_crop(numbered(50, 4, 4, 1), 2, 2, seeded(), enlarge=True)
    assert found.shape == (50, 1, 4, 4)
    small = found[:, :, ::2, ::2]
    assert torch.equal(found, small.repeat_interleave(2, 2).repeat_interleave(2, 3))
    assert (small[:, 0, 0, 1] - small[:, 0, 0, 0] == 1).all()
    assert (small[:, 0, 1, 0] - small[:, 0, 0, 0] == 4).all()


def test_nothing_to_move_is_the_image_itself() -> None:
    images = numbered(4, 5, 5)
    assert torch.equal(random_shift(images, 0, seeded()), images)
    assert torch.equal(random_crop(images, 5, 5, seeded()), images)


@pytest.mark.parametrize(("height", "width"), [(6, 5), (5, 0)])
def test_a_window_that_does_not_fit_is_refused(height: int, width: int) -> None:
    with pytest.raises(ValueError, match=f"images of 5 x 5 pixels; got {height} x {width}"):
        random_crop(numbered(4, 5, 5), height, width, seeded())


def test_noise_has_its_standard_deviation_and_none_is_the_identity() -> None:
    vectors = torch.full((20_000, 2), 3.0)
    assert torch.equal(add_noise(vectors, 0.0, seeded()), vectors)
    found = add_noise(vectors, 0.5, seeded()) - vectors
    assert found.mean().item() == pytest.approx(0.0, abs=0.01)
    assert found.std().item() == pytest.approx(0.5, abs=0.01)
    assert torch.equal(vectors, torch.full((20_000, 2), 3.0))


@pytest.mark.parametrize(
    "change",
    [
        lambda g: random_shift(numbered(9, 8, 8), 4, g),
        lambda g: random_crop(numbered(9, 8, 8), 4, 4, g),
        lambda g: add_noise(torch.ones(9, 3), 1, g),
    ],
)
def test_the_generator_decides(change: Callable[[torch.Generator], Tensor]) -> None:
    before = torch.random.get_rng_state()
    assert torch.equal(change(seeded(1)), change(seeded(1)))
    assert not torch.equal(change(seeded(1)), change(seeded(2)))
    assert torch.equal(before, torch.random.get_rng_state())
