"""How the numbers of a weight are stored, and with it how a linear takes its inputs."""

from enum import StrEnum


class Format(StrEnum):
    """What one stored weight is made of. The GGUF formats are block layouts along the last axis,
    exactly the numbers of the file.
    """

    F32 = "f32"
    BF16 = "bf16"
    INT8 = "int8"
    """Symmetric for each output channel, float32 scales."""
    Q4_0 = "q4_0"
    Q4_1 = "q4_1"
    Q4_K = "q4_k"
    Q6_K = "q6_k"
    Q8_0 = "q8_0"
