"""Each operation of the reference device against its formula in float64."""

import numpy as np
import pytest
from single_operations import operation, run, table

from tercet.devices.reference.kernels import rotary_frequencies
from tercet.program.operations import Add, Angles, Glu, Linear, Norm, Rope

ROWS = (1, 2, 3, 4, 5, 37, 2051)
each_number_of_rows = pytest.mark.parametrize("rows", ROWS)


def close(ours: np.ndarray, exact: np.ndarray, error: float = 2e-6) -> None:
    assert ours.shape == exact.shape
    np.testing.assert_allclose(ours, exact, rtol=error, atol=error * max(1.0, np.abs(exact).max()))


@each_number_of_rows
def test_embed(rows: int) -> None:
    ours, values, _ = run([], tables={"x": table("x", 5, 3)}, weights={}, shown="x", rows=rows)
    np.testing.assert_array_equal(ours, values["x"])


@each_number_of_rows
@pytest.mark.parametrize("dims", [(7,), (5, 6), (257,)])
def test_norm(rows: int, dims: tuple[int, ...]) -> None:
    weight = table("w", dims[-1])[0]
    x = 30 * table("x", *dims)
    one = operation(Norm(1e-2), ("x", "w"), "y")
    ours, values, _ = run([one], tables={"x": x}, weights={"w": weight}, shown="y", rows=rows)
    mean = (values["x"] ** 2).mean(-1, keepdims=True)
    close(ours, values["x"] / np.sqrt(mean + 1e-2) * weight)


@each_number_of_rows
@pytest.mark.parametrize(("inner", "outer"), [((7,), (11,)), ((3, 5), (2, 9)), ((130,), (1,))])
def test_linear(rows: int, inner: tuple[int, ...], outer: tuple[int, ...]) -> None:
    weight = np.random.default_rng(1).standard_normal((*outer, *inner)).astype(np.float32)
    bias = np.random.default_rng(2).standard_normal(outer).astype(np.float32)
    one = operation(Linear(bias=True), ("x", "w", "b"), "y")
    weights = {"w": weight, "b": bias}
    ours, values, _ = run(
        [one], tables={"x": table("x", *inner)}, weights=weights, shown="y", rows=rows
    )
    exact = np.tensordot(values["x"], weight.astype(np.float64), (
        range(1, len(inner) + 1), range(len(outer), len(outer) + len(inner))
    ))  # fmt: skip
    close(ours, exact + bias)


@each_number_of_rows
@pytest.mark.parametrize("shown", ["a", "b", "c"])
def test_linear_with_splits(rows: int, shown: str) -> None:
    weight = np.random.default_rng(1).standard_normal((6, 2, 7)).astype(np.float32)
    one = operation(Linear(splits=(3, 1, 2)), ("x", "w"), "a", "b", "c")
    ours, values, _ = run(
        [one], tables={"x": table("x", 7)}, weights={"w": weight}, shown=shown, rows=rows
    )
    exact = np.einsum("tk,ndk->tnd", values["x"], weight.astype(np.float64))
    parts = {"a": exact[:, :3], "b": exact[:, 3:4], "c": exact[:, 4:]}
    close(ours, parts[shown])


@each_number_of_rows
@pytest.mark.parametrize("divisors", [(), (1.0, 1.5, 8.0)])
def test_rope(rows: int, divisors: tuple[float, ...]) -> None:
    angles = Angles(6, 10000.0, divisors)
    operations = [
        operation(angles, ("positions",), "cs"),
        operation(Rope(), ("cs", "q", "k"), "q2", "k2"),
        operation(Add(), ("q2", "other"), "y"),
    ]
    tables = {"q": table("q", 4, 6), "k": table("k", 2, 6), "other": table("other", 4, 6)}
    ours, values, positions = run(operations, tables=tables, weights={}, shown="y", rows=rows)
    frequencies = 10000.0 ** (-np.arange(0, 6, 2) / 6) / (divisors or 1.0)
    np.testing.assert_allclose(rotary_frequencies(angles), frequencies, rtol=3e-7)
    # The product is rounded to float32, as the models' own code does.
    turns = (positions[:, None].astype(np.float32) * rotary_frequencies(angles)).astype(float)
    cosines, sines = np.cos(turns)[:, None], np.sin(turns)[:, None]
    one, two = values["q"][..., :3], values["q"][..., 3:]
    exact = np.concatenate([one * cosines - two * sines, two * cosines + one * sines], axis=-1)
    close(ours, exact + values["other"])


def test_rope_rotates_every_tensor_that_it_is_given() -> None:
    weight = np.random.default_rng(1).standard_normal((5, 6, 7)).astype(np.float32)
    angles = operation(Angles(6, 10000.0), ("positions",), "cs")
    fused = operation(Linear(splits=(3, 1, 1)), ("x", "w"), "a", "b", "v")
    alone = [operation(Linear(), ("x", f"w{name}"), name) for name in "abv"]
    rope = operation(Rope(), ("cs", "a", "b"), "a2", "b2")
    weights = {"w": weight}
    parts = {"wa": weight[:3], "wb": weight[3:4], "wv": weight[4:]}
    for rows in (1, 3, 50):
        for shown in ("a2", "b2", "v"):
            tables = {"x": table("x", 7)}
            one, _, _ = run(
                [angles, fused, rope], tables=tables, weights=weights, shown=shown, rows=rows
            )
            other, _, _ = run(
                [angles, *alone, rope], tables=tables, weights=parts, shown=shown, rows=rows
            )
            close(one, other)


@each_number_of_rows
def test_glu(rows: int) -> None:
    gate, up = table("gate", 9), table("up", 9)
    gate[:, 0], gate[:, 1], gate[:, 2], gate[:, 3] = 200.0, -200.0, 0.0, -88.7
    one = operation(Glu(), ("gate", "up"), "y")
    ours, values, _ = run([one], tables={"gate": gate, "up": up}, weights={}, shown="y", rows=rows)
    close(ours, values["gate"] / (1 + np.exp(-values["gate"])) * values["up"])


@each_number_of_rows
def test_add_keeps_an_input_that_is_read_again(rows: int) -> None:
    operations = [
        operation(Add(), ("x", "y"), "once"),
        operation(Add(), ("once", "x"), "twice"),
        operation(Add(), ("once", "twice"), "z"),
    ]
    tables = {"x": table("x", 3, 4), "y": table("y", 3, 4)}
    ours, values, _ = run(operations, tables=tables, weights={}, shown="z", rows=rows)
    close(ours, 3 * values["x"] + 2 * values["y"])
