"""The steps of a calibration, one after another, and what each of them gained."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tercet.base.model import ModelShape
from tercet.devices.contract import F32
from tercet.program.rounding import codes8, to_bfloat16
from tercet.quantization.config import CalibrationConfig
from tercet.quantization.measure import Distance, Yardstick
from tercet.quantization.observation import observe, observe_products
from tercet.quantization.rounding import compensated, inverse_factor, plain_scales
from tercet.quantization.sites import Site, sites
from tercet.quantization.smoothing import OutputError, absorb, find_scale, round8
from tercet.quantization.tensors import Tensors, exact_program, rounded_program

Advance = Callable[[str, int, int], None]
"""Called with (stage, steps done, steps in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The model after a step of the calibration."""

    name: str
    error: float
    """Root of the mean over all matrices of their outputs' squared relative errors, on the inputs
    that the calibration saw."""
    distance: Distance
    """From the model in float32, on the held-out tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A model in INT8 and how it came to be."""

    tensors: Tensors
    """Matrices of layers in INT8, the rest as bfloat16 can say it (biases in float32)."""
    steps: tuple[Step, ...]
    perplexity: float
    """Of the model in float32, on the held-out tokens."""
    errors: dict[str, tuple[float, float]]
    """For each input, before and after: root of the mean squared relative error of its readers."""
    kept: tuple[str, ...]
    """Matrices that were left in bfloat16."""


@dataclass(slots=True)
class _Place:
    """A site and what is known of it so far."""

    site: Site
    x: F32
    scale: F32
    before: float = 0.0
    errors: dict[str, float] = field(default_factory=dict)


def calibrate(
    shape: ModelShape,
    tensors: Tensors,
    tokens: Sequence[Sequence[int]],
    *,
    held_out: Sequence[Sequence[int]],
    config: CalibrationConfig,
    advance: Advance,
) -> Calibrated:
    """The model in INT8, its activations made fit for it on the tokens; `tensors` is used up."""
    run = _Run(shape, tensors, config, advance)
    run.measure_exact(held_out)
    run.observe(tokens)
    run.step("rounded")
    run.smooth()
    run.step("scales absorbed")
    run.compensate(tokens)
    run.step("errors compensated")
    kept = run.keep()
    if kept:
        run.step("mixed precision")
    return run.result(kept)


class _Run:
    def __init__(
        self, shape: ModelShape, tensors: Tensors, config: CalibrationConfig, advance: Advance
    ) -> None:
        self._shape = shape
        self._tensors = tensors
        self._config = config
        self._advance = advance
        self._places: list[_Place] = []
        self._scales: dict[str, F32] = {}
        """[N, 1] of each matrix that is rounded."""
        self._codes: dict[str, NDArray[np.int8]] = {}
        """Integers that were compensated; others follow from the scales."""
        self._steps: list[Step] = []

    def measure_exact(self, held_out: Sequence[Sequence[int]]) -> None:
        """Distributions of the exact model are at hand."""
        program, weights = exact_program(self._shape, self._tensors)
        self._yardstick = Yardstick(program, weights, held_out)

    def observe(self, tokens: Sequence[Sequence[int]]) -> None:
        """Rows of every input are at hand."""
        program, weights = exact_program(self._shape, self._tensors)
        found = sites(program)
        count = iter(range(1, len(tokens) + 1))
        inputs = observe(
            program,
            weights,
            tokens,
            wanted=[site.name for site in found],
            rows_max=self._config.rows,
            advance=lambda: self._advance("observe", next(count), len(tokens)),
        )
        ones = {site.name: np.ones(site.columns, np.float32) for site in found}
        self._places = [_Place(site, inputs[site.name], ones[site.name]) for site in found]
        self._round()
        for place in self._places:
            place.before = self._error(place)

    def smooth(self) -> None:
        """Scales of channels are absorbed, from the last input to the first: rows of a matrix may
        change for the input behind it before its columns are looked at.
        """
        for index, place in enumerate(reversed(self._places)):
            site = place.site
            # A third of the rows tells candidates apart.
            scale = find_scale(site, place.x[::3], self._matrices(site))
            self._absorb(place, scale)
            self._advance("smooth", index + 1, len(self._places))
        self._round()

    def compensate(self, tokens: Sequence[Sequence[int]]) -> None:
        """Columns take up the errors of those before them, in passes over the tokens that hold
        the products of as many inputs as fit.
        """
        program, weights = exact_program(self._shape, self._tensors)
        groups = list(_fitting(self._places, self._config.products_bytes_max))
        steps = len(groups) * len(tokens) + len(self._places)
        count = iter(range(1, steps + 1))

        def advance() -> None:
            self._advance("compensate", next(count), steps)

        for group in groups:
            wanted = [place.site.name for place in group]
            products = observe_products(program, weights, tokens, wanted=wanted, advance=advance)
            for place in group:
                factor = inverse_factor(products.pop(place.site.name))
                for name in place.site.readers:
                    matrix = self._tensors.values[name]
                    codes = compensated(matrix, self._scales[name], factor)
                    self._codes[name] = codes.astype(np.int8)
                advance()

    def keep(self) -> tuple[str, ...]:
        """Matrices whose outputs are too far off are left as they are."""
        kept: list[str] = []
        for place in self._places:
            if np.sqrt(self._error(place)) > self._config.error_max:
                kept += place.site.readers
        for name in kept:
            del self._scales[name], self._codes[name]
        return tuple(kept)

    def step(self, name: str) -> None:
        """The model as it is now is measured."""
        program, weights = rounded_program(self._shape, self._rounded(), "auto")
        count = iter(range(1, self._yardstick.num_sequences + 1))
        distance = self._yardstick.distance(
            program,
            weights,
            lambda: self._advance(f"measure: {name}", next(count), self._yardstick.num_sequences),
        )
        error = float(np.sqrt(np.mean([self._error(place) for place in self._places])))
        self._steps.append(Step(name=name, error=error, distance=distance))

    def result(self, kept: tuple[str, ...]) -> Calibrated:
        errors = {
            place.site.name: (float(np.sqrt(place.before)), float(np.sqrt(self._error(place))))
            for place in self._places
        }
        return Calibrated(
            tensors=self._rounded(),
            steps=tuple(self._steps),
            perplexity=self._yardstick.perplexity,
            errors=errors,
            kept=kept,
        )

    def _matrices(self, site: Site) -> list[F32]:
        return [self._tensors.values[name] for name in site.readers]

    def _absorb(self, place: _Place, scale: F32) -> None:
        absorber = place.site.absorber
        if absorber is None or bool((scale == 1).all()):
            return
        values = self._tensors.values
        if values[absorber.tensors[0]].ndim == 1:
            # The divided norm is rounded first, and its rounding goes into the scale.
            norm = values[absorber.tensors[0]]
            stored = to_bfloat16(norm / scale)
            usable = (stored != 0) & (norm != 0)
            scale = np.where(usable, norm / np.where(usable, stored, 1), 1).astype(np.float32)
        values |= absorb(values, place.site.readers, absorber, scale)
        place.x = place.x / scale

    def _round(self) -> None:
        """Every matrix of a site has scales that clip nothing."""
        for place in self._places:
            for name in place.site.readers:
                self._scales[name] = plain_scales(self._tensors.values[name])

    def _error(self, place: _Place) -> float:
        """Of the site's readers as they would be stored now, squared."""
        matrices = self._matrices(place.site)
        names = place.site.readers
        ours = []
        for name, matrix in zip(names, matrices, strict=True):
            rounded = self._integers(name, matrix)
            ours.append(to_bfloat16(matrix) if rounded is None else rounded * self._scales[name])
        x = round8(place.x) if names[0] in self._scales else to_bfloat16(place.x)
        return OutputError(place.x, matrices).of_rounded(x, ours)

    def _integers(self, name: str, values: F32) -> NDArray[np.int8] | None:
        """What the tensor is in INT8; None for one that is not rounded."""
        if name in self._codes:
            return self._codes[name]
        scales = self._scales.get(name)
        return None if scales is None else codes8(values, scales).astype(np.int8)

    def _rounded(self) -> Tensors:
        """The tensors as a file would hold them."""
        integers = {}
        plain = {}
        for name, values in self._tensors.values.items():
            codes = self._integers(name, values)
            if codes is not None:
                integers[name] = (codes, self._scales[name].reshape(-1))
            else:
                plain[name] = values if name.endswith(".bias") else to_bfloat16(values)
        return Tensors(plain, integers)


def _fitting(places: Sequence[_Place], bytes_max: int) -> Iterator[list[_Place]]:
    """The places in groups whose products [K, K] take so much memory at most (or one place)."""
    group: list[_Place] = []
    size = 0
    for place in places:
        needed = 4 * place.site.columns**2
        if group and size + needed > bytes_max:
            yield group
            group, size = [], 0
        group.append(place)
        size += needed
    if group:
        yield group


def cut(ids: Sequence[int], *, length: int) -> Iterator[Sequence[int]]:
    """The tokens in sequences of at most this length; one of a single token says nothing."""
    for start in range(0, len(ids), length):
        piece = ids[start : start + length]
        if len(piece) > 1:
            yield piece
