"""Checkpoints: named tensors as other people publish them, read as float32.

Is: one protocol, and what implements it: a folder in Hugging Face layout (safetensors), a GGUF
file, and tiny random models made from a few numbers. Every file is distrusted: sizes and offsets
are checked against the file before anything is allocated, and what is wrong is said in one
sentence with file and tensor.
Is not: the choice of a source by name (`models.sources`), nor what is done with the tensors.
May import: base, program.
"""
