"""Calibration: from a checkpoint and some tokens to a checkpoint in INT8 that lost little.

Is: where scales of activations can be taken up by neighbouring weights, the search for them on
observed activations, clipping and compensation of weights, the measure of what each step gained,
and the writing of the result in the conventions of compressed-tensors.
Is not: text (the command line has tokens made), or computing in INT8 (`devices`).
May import: base, program, models, devices.
"""
