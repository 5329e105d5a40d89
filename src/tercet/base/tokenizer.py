"""The vocabulary of models without a trained tokenizer: the bytes of UTF-8 and control tokens."""

BYTES_VOCAB = 260
"""Ids 0-255 are bytes, then come four control tokens; models may have more ids than meanings."""
BYTES_END_IDS = (257, 259)
"""The control tokens that end a text."""
