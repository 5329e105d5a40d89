"""Tercet serves language models from three pools of peers: prefill, decode and cache."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    """Bring in the Python API on first use, so that `import tercet` costs nothing."""
    if name in {"LLM", "SamplingParams"}:
        from tercet import llm

        return getattr(llm, name)
    raise AttributeError(f"module 'tercet' has no attribute {name!r}")
