"""Families of models: from the shape of a model to the program of its step.

Is: one function per family, and what a Hugging Face configuration or GGUF metadata says about the
shape. Is not: reading files or weights (`models`), running anything (`devices`).
May import: base, program.
"""
