"""What a calibration says of itself: a table for people, the same as JSON."""

from collections.abc import Mapping

from tercet.quantization.calibrate import Calibrated
from tercet.quantization.config import CalibrationConfig

_WORST = 8


def table(calibrated: Calibrated) -> str:
    """What each step gained, line by line."""
    head = f"{'step':<20}{'output error':>13}{'perplexity':>12}{'to float32':>12}"
    lines = [
        f"{head}{'KL':>10}{'other token':>13}",
        f"{'float32':<20}{'':>13}{calibrated.perplexity:>12.4f}",
    ]
    for step in calibrated.steps:
        far = step.distance
        change = far.perplexity / calibrated.perplexity - 1
        lines.append(
            f"{step.name:<20}{step.error:>13.3%}{far.perplexity:>12.4f}{change:>+12.2%}"
            f"{far.divergence:>10.5f}{far.changed:>13.2%}"
        )
    return "\n".join(lines)


def as_json(
    calibrated: Calibrated, config: CalibrationConfig, *, model: str, text: str
) -> dict[str, object]:
    """All that was measured."""
    return {
        "model": model,
        "scheme": "int8",
        "calibration": text,
        "tokens": config.tokens,
        "held_out": config.held_out,
        "perplexity_float32": calibrated.perplexity,
        "steps": [
            {
                "name": step.name,
                "output_error": step.error,
                "perplexity": step.distance.perplexity,
                "kl": step.distance.divergence,
                "changed_tokens": step.distance.changed,
            }
            for step in calibrated.steps
        ],
        "inputs": {
            name: {"before": before, "after": after}
            for name, (before, after) in calibrated.errors.items()
        },
        "kept_in_bfloat16": list(calibrated.kept),
    }


def readme(report: Mapping[str, object], calibrated: Calibrated) -> str:
    """README.md of the folder."""
    worst = sorted(calibrated.errors.items(), key=lambda item: -item[1][1])[:_WORST]
    inputs = "\n".join(f"| {name} | {one:.2%} | {two:.2%} |" for name, (one, two) in worst)
    kept = ", ".join(calibrated.kept) or "none"
    return f"""# {report["model"]} in INT8

W8A8 in the conventions of compressed-tensors: symmetric weights with a scale for each output
channel, activations quantized for each token at run time. Embedding, head and norms are bfloat16.
Calibrated on {report["tokens"]} tokens of {report["calibration"]}; measured on {report["held_out"]}
others.

```
{table(calibrated)}
```

Matrices left in bfloat16: {kept}. The inputs that lose most (output error, before and after):

| input | rounded | calibrated |
|---|---|---|
{inputs}

Serve it: `tercet serve FOLDER`, or `vllm serve FOLDER`.
"""
