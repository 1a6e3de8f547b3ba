"""Random changes of observations that leave their meaning as it is: shifted or cropped images, noise on vectors.

Images are [N, C, height, width] of any type, which they keep. Every image has an offset of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHIFT_PIXELS = 4  # of images with 84 pixels: Kostrikov et al. 2020 (DrQ, arXiv 2004.13649)


def random_shift(images: Tensor, pixels: int, generator: torch.Generator) -> Tensor:
    """Images moved by up to `pixels` along both axes, uniformly (DrQ): padded with the pixels of their border, then cropped to their size."""
    count, _, height, width = images.shape
    rows, cols = (_offsets(count, 2 * pixels, generator, images) - pixels for _ in range(2))
    across = [
        (offset + torch.arange(side, device=images.device)).clamp(0, side - 1) for offset, side in ((rows, height), (cols, width))
    ]  # beyond the border is the border: padding that need not be made
    return _gather(images, *across)


def random_crop(images: Tensor, height: int, width: int, generator: torch.Generator, enlarge: bool = False) -> Tensor:
    """Windows of that size out of the images, at uniform places; `enlarge`: scaled back to the size of the images, by nearest pixels.

    Raises:
        ValueError: the window does not fit into the images.
    """
    count, _, full_height, full_width = images.shape
    if not (0 < height <= full_height and 0 < width <= full_width):
        raise ValueError(f"expected a window within images of {full_height} x {full_width} pixels; got {height} x {width}")
    chosen = []
    for side, full in ((height, full_height), (width, full_width)):
        within = torch.arange(full, device=images.device) * side // full if enlarge else torch.arange(side, device=images.device)
        chosen.append(_offsets(count, full - side, generator, images) + within)
    return _gather(images, *chosen)


def add_noise(vectors: Tensor, std: float, generator: torch.Generator) -> Tensor:
    """Vectors plus independent Gaussian noise."""
    if not std:
        return vectors
    noise = torch.randn(vectors.shape, generator=generator, device=generator.device, dtype=vectors.dtype)
    return vectors + std * noise.to(vectors.device)


def _offsets(count: int, largest: int, generator: torch.Generator, images: Tensor) -> Tensor:
    """Uniform whole numbers [N, 1] from 0 to the largest."""
    return torch.randint(largest + 1, (count, 1), generator=generator, device=generator.device).to(images.device)


def _gather(images: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """Rows [N, h] and columns [N, w] of the images, [N, C, h, w]."""
    number = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[number, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2).contiguous()
