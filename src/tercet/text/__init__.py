"""Text and tokens: tokenizers, chat templates, detokenizer, stop strings.

Is: reading tokenizers (GGUF metadata, Hugging Face folders, bytes), encoding, decoding of
streams, stop strings, rendering of chats.
Is not: sampling, stop ids (engine), HTTP, or where a file comes from (`models`).
May import: base (and the libraries tokenizers, jinja2 and NumPy).
"""
