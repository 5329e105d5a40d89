"""What quantization costs: quantized models beside the same model in float32.

    python -m benchmarks.accuracy --data FOLDER [--config NAME ...] [--checkpoint FOLDER] [--write]

Is: perplexity (WikiText-2), the last word (LAMBADA), choices (PIQA) and the divergence of the
next-token distribution, all with bootstrap intervals, of executables as they serve.
Is not: a benchmark of models; the truth is what float32 says, not what is right.
"""
