import pytest
from msgspec.structs import replace
from small_programs import LLAMA

from tercet.base.errors import InvariantBroken
from tercet.models.families.build import build
from tercet.program.costs import LinearForm, Sizes, cost, folded, operation_cost
from tercet.program.fuse import fuse
from tercet.program.operations import Linear, Norm, Operation
from tercet.program.program import assemble
from tercet.program.recipes import Ckpt, Concat
from tercet.program.tensors import Axis, Kind, RowGroup, Tensor


def value(name: str, *dims: int) -> Tensor:
    axes = (Axis.HIDDEN,) * len(dims)
    return Tensor(name=name, kind=Kind.INPUT, dims=dims, axes=axes, group=RowGroup.STEP)


def weight(name: str, *dims: int) -> Tensor:
    recipe = Ckpt(name, dims)
    axes = (Axis.HIDDEN,) * len(dims)
    return Tensor(name=name, kind=Kind.WEIGHT, dims=dims, axes=axes, recipe=recipe)


def linear(*inputs: str, outputs: tuple[str, ...] = ("y",), **attributes) -> Operation:
    return Operation(
        attributes=Linear(**attributes), inputs=inputs, outputs=outputs, group=RowGroup.STEP
    )


def test_linear_contracts_trailing_dimensions() -> None:
    program = assemble("p", [value("x", 4, 3), weight("w", 7, 2, 4, 3)], [linear("x", "w")])
    assert program.tensors["y"].dims == (7, 2)
    assert program.tensors["y"].group is RowGroup.STEP


def test_linear_splits_its_first_output_dimension() -> None:
    one = linear("x", "w", outputs=("y", "z"), splits=(5, 2))
    program = assemble("p", [value("x", 3), weight("w", 7, 2, 3)], [one])
    assert (program.tensors["y"].dims, program.tensors["z"].dims) == ((5, 2), (2, 2))


@pytest.mark.parametrize(
    ("given", "operation"),
    [
        ([value("x", 3), weight("w", 7, 4)], linear("x", "w")),
        ([value("x", 3), weight("w", 3)], linear("x", "w")),
        ([value("x", 3), weight("w", 7, 3)], linear("x", "w", outputs=("y", "z"), splits=(5, 1))),
        ([value("x", 3), weight("w", 7, 3), weight("b", 6)], linear("x", "w", "b", bias=True)),
        ([value("x", 3)], linear("x", "w")),
        ([value("x", 3), weight("w", 7, 3)], linear("x", "w", outputs=("x",))),
        ([value("x", 3), value("x", 3), weight("w", 7, 3)], linear("x", "w")),
        (
            [value("x", 3), weight("w", 4)],
            Operation(
                attributes=Norm(1e-5), inputs=("x", "w"), outputs=("y",), group=RowGroup.STEP
            ),
        ),
        ([value("x", 3), replace(weight("w", 7, 3), recipe=Ckpt("w", (3, 7)))], linear("x", "w")),
    ],
)
def test_what_does_not_fit_stops_the_process(given, operation) -> None:
    with pytest.raises(InvariantBroken):
        assemble("p", given, [operation])


def test_a_decoder_reads_its_states_after_the_append_and_gives_tokens() -> None:
    program = build(LLAMA)
    names = [operation.name for operation in program.operations]
    assert names.count("attend") == names.count("append") == LLAMA.num_layers
    assert names.index("append") < names.index("attend")
    assert names[-2:] == ["linear", "sample"]
    assert program.tensors["logits"].group is RowGroup.LOGITS
    assert [state.dims for state in program.states] == [(2, 2, 6)] * 2


def test_fuse_joins_what_reads_the_same_input_and_keeps_the_order_of_parts() -> None:
    program, plain = fuse(build(LLAMA)), build(LLAMA)
    counts = [[one.name for one in p.operations].count("linear") for p in (plain, program)]
    assert counts == [2 * 7 + 1, 2 * 4 + 1]
    recipe = program.weights["layers.1.q_k_v"]
    parts = tuple(plain.weights[f"layers.1.{part}"] for part in "qkv")
    assert recipe == Concat(parts)
    assert recipe.shape == (8, 6, 12)
    assert program.weights["layers.0.gate_up"].shape == (40, 12)
    assert "layers.0.q" not in program.tensors
    assert fuse(program) == program


def test_fuse_joins_biases_too() -> None:
    program = fuse(build(replace(LLAMA, family="qwen2", attention_bias=True)))
    assert program.weights["layers.0.q_bias_k_bias_v_bias"].shape == (8, 6)


def test_tied_embeddings_are_one_weight() -> None:
    tied = build(replace(LLAMA, tied_embeddings=True))
    assert "head" in build(LLAMA).weights
    assert "head" not in tied.weights


def test_a_program_reads_as_text() -> None:
    text = str(fuse(build(LLAMA)))
    assert "program llama" in text
    assert "layers.0.x1: f32[T, 12] = add(embedded, layers.0.o_out)" in text
    assert "  append(layers.0.kv, layers.0.k_rope, layers.0.v_out)" in text
    assert "logits: f32[R, 33] = linear(normed, head)" in text
    assert len(text.splitlines()) == 1 + len(fuse(build(LLAMA)).operations)


def test_costs_are_linear_in_the_sizes_and_count_weights_once() -> None:
    program = build(LLAMA)
    total = cost(program)
    per_token = sum(
        2 * tensor.recipe.shape[0] * tensor.recipe.shape[1]
        for tensor in build(replace(LLAMA, num_heads=2, num_kv_heads=2)).of_kind(Kind.WEIGHT)
        if tensor.recipe is not None and len(tensor.recipe.shape) == 2 and "layers" in tensor.name
    )
    assert total.flops.t > per_token
    assert total.flops.one == 0
    sizes = Sizes(rows=3, logits_rows=2, attended_pairs=17, context_tokens=9)
    doubled = Sizes(rows=6, logits_rows=4, attended_pairs=34, context_tokens=18)
    assert total.flops.at(doubled) == 2 * total.flops.at(sizes)
    weights = sum(4 * _size(recipe.shape) for recipe in program.weights.values())
    table = 4 * 33 * 12
    assert total.bytes.one == weights - table  # of the embedding only the rows' lines are read


def test_cost_of_single_operations() -> None:
    program = build(LLAMA)
    by_name = {one.outputs[0]: one for one in program.operations if one.outputs}
    gate = operation_cost(by_name["layers.0.gate_out"], program.tensors)
    assert gate.flops == LinearForm(t=2.0 * 12 * 20)
    assert gate.bytes == LinearForm(one=4.0 * 12 * 20, t=4.0 * (12 + 20))
    logits = operation_cost(by_name["logits"], program.tensors)
    assert logits.flops == LinearForm(r=2.0 * 12 * 33)
    attend = operation_cost(by_name["layers.0.attended"], program.tensors)
    assert attend.flops == LinearForm(p=4.0 * 24 + 5 * 4)
    assert attend.bytes == LinearForm(t=4.0 * 48, c=4.0 * 2 * 12)


def test_folded_costs_do_not_grow_with_depth() -> None:
    shallow, deep = build(LLAMA), build(replace(LLAMA, num_layers=40))
    assert folded(shallow).keys() == folded(deep).keys()
    assert sum(folded(deep).values()) == len(deep.operations)


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for dim in shape:
        total *= dim
    return total
