"""Text and tokens: tokenizers, chat templates, detokenizer, stop strings.

Is: reading tokenizers (GGUF metadata, Hugging Face folders, bytes), encoding, decoding of
streams, stop strings, rendering of chats.
Is not: sampling, stop ids (engine), HTTP, or where a file comes from (`models`).
May import: base (and the libraries tokenizers and jinja2).
"""

from tercet.text.chat import ChatTemplate, open_chat_template
from tercet.text.codec import Codec
from tercet.text.detokenizer import Detokenizer
from tercet.text.load import Source, load_codec
from tercet.text.stops import StopMatch, StopStrings, check_stops

__all__ = [
    "ChatTemplate",
    "Codec",
    "Detokenizer",
    "Source",
    "StopMatch",
    "StopStrings",
    "check_stops",
    "load_codec",
    "open_chat_template",
]
