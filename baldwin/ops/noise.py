"""Perturbations as a pure function of (key, generation, pair), through a counter-based generator.

Nothing is stored and nothing is sent: whoever knows the key rebuilds any perturbation, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from baldwin.ops.threads import one_thread

Shape = tuple[int, ...]


def draw(key: tuple[int, int], generation: int, pair: int, size: int) -> NDArray[np.float32]:
    """Standard normals [size] of Philox-4x64 at counter (generation, pair, 0, 0), highest word first.

    The two low words count the draws, so that streams of different (generation, pair) never meet.
    """
    bits = np.random.Philox(key=np.array(key, np.uint64), counter=np.array([0, 0, pair, generation], np.uint64))
    return np.random.Generator(bits).standard_normal(size, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a run: Gaussian over all parameters, or per matrix A B^T / sqrt(r) (arXiv 2511.16652).

    Each entry of A B^T / sqrt(r) has mean 0 and variance 1, as in the full-rank case; vectors (biases) stay full.
    """

    key: tuple[int, int]
    shapes: tuple[Shape, ...]  # of the parameter tensors, in the order of the flat vector
    rank: int = 0  # 0: full

    @property
    def dim(self) -> int:
        """How many parameters it perturbs."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """How many normals one perturbation takes."""
        return sum(self._draws(shape) for shape in self.shapes)

    def low_rank(self, shape: Shape) -> bool:
        """True where a tensor of this shape is perturbed through two thin factors."""
        return bool(self.rank) and len(shape) == 2

    def draw(self, generation: int, pair: int) -> NDArray[np.float32]:
        """The raw normals [size] of one pair."""
        return draw(self.key, generation, pair, self.size)

    def slices(self) -> Iterator[tuple[Shape, slice, slice]]:
        """For each tensor: its shape, where it lies in the parameters, where its normals lie in a draw."""
        at_param = at_draw = 0
        for shape in self.shapes:
            params, draws = math.prod(shape), self._draws(shape)
            yield shape, slice(at_param, at_param + params), slice(at_draw, at_draw + draws)
            at_param, at_draw = at_param + params, at_draw + draws

    def expand(self, draws: NDArray[np.float32]) -> NDArray[np.float32]:
        """From raw normals [N, size] to perturbations [N, D]."""
        if not self.rank:
            return draws
        out = np.empty((len(draws), self.dim), np.float32)
        for shape, params, normals in self.slices():
            if self.low_rank(shape):
                a, b = self.factors(draws[:, normals], shape)
                out[:, params] = np.einsum("nor,nir->noi", a, b).reshape(len(draws), -1) / math.sqrt(self.rank)
            else:
                out[:, params] = draws[:, normals]
        return out

    def factors(self, normals: NDArray[np.float32], shape: Shape) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """A [N, out, r] and B [N, in, r] of one matrix, as views."""
        rows, cols = shape
        cut = rows * self.rank
        a = normals[:, :cut].reshape(-1, rows, self.rank)
        b = normals[:, cut:].reshape(-1, cols, self.rank)
        return a, b

    def _draws(self, shape: Shape) -> int:
        return self.rank * sum(shape) if self.low_rank(shape) else math.prod(shape)


def split_half_gradient(noise: Noise, generation: int, weights: NDArray[np.float64], block: int = 16) -> NDArray[np.float64]:
    """Sum of weight * perturbation over the even pairs and over the odd pairs: [2, D].

    Their sum is the whole; their angle tells signal from noise. Accumulated pair by pair in float64, in order, so that
    the result has no trace of who computed what; memory is O(D + block * D). Pairs of weight zero are skipped.
    """
    halves = np.zeros((2, noise.dim))
    for parity in (0, 1):
        pairs = [int(p) for p in np.flatnonzero(weights) if p % 2 == parity]
        for start in range(0, len(pairs), block):
            chosen = pairs[start : start + block]
            if noise.rank:
                _add_low_rank(noise, generation, chosen, weights[chosen], halves[parity])
            else:
                for p in chosen:
                    halves[parity] += np.multiply(noise.draw(generation, p), weights[p], dtype=np.float64)
    return halves


def _add_low_rank(noise: Noise, generation: int, pairs: list[int], weights: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """out += sum_i w_i A_i B_i^T / sqrt(r), as one product per matrix instead of one per pair."""
    import torch  # not above: see threads.py

    draws = np.stack([noise.draw(generation, p) for p in pairs])  # [k, size]
    for shape, params, normals in noise.slices():
        part = draws[:, normals]
        if noise.low_rank(shape):
            a, b = noise.factors(part, shape)
            scaled = a * (weights / math.sqrt(noise.rank))[:, None, None]  # [k, out, r], float64
            left = torch.from_numpy(scaled.transpose(1, 0, 2).reshape(shape[0], -1))  # [out, k r]
            right = torch.from_numpy(b.astype(np.float64).transpose(0, 2, 1).reshape(-1, shape[1]))  # [k r, in]
            with one_thread():
                out[params] += (left @ right).numpy().ravel()
        else:
            out[params] += (weights[:, None] * part).sum(0)
