"""What a model computes in one step, as data: operations over named tensors.

Is: tensors, operations, programs, weights as recipes over checkpoint tensors, costs as linear
forms, rewrites from program to program. Is not: the families that write programs (`models`), or
anything that runs one (`devices`).
May import: base.
"""
