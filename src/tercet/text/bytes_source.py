"""A vocabulary of single bytes: for made-up tokens and random test models.

Token 0-255 is that byte; four control tokens follow. The template is ChatML.
"""

from tercet.base.tokenizer import BYTES_END_IDS, BYTES_VOCAB
from tercet.text.bytelevel import ALPHABET
from tercet.text.definition import AddedToken, Definition, byte_level
from tercet.text.vocabulary import Vocabulary

_CONTROL = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")
_BOS = BYTES_VOCAB - len(_CONTROL)
_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def read_bytes() -> Vocabulary:
    """The vocabulary of 256 bytes and four control tokens; nothing is put around a text."""
    added = [
        AddedToken(id=index, content=text, special=True)
        for index, text in enumerate(_CONTROL, start=_BOS)
    ]
    vocab = {character: byte for byte, character in enumerate(ALPHABET)}
    definition = Definition(
        vocab=vocab | {token.content: token.id for token in added},
        merges=[],
        added=added,
        pre_tokenizers=[byte_level()],
    )
    return Vocabulary(
        definition=definition.to_json(),
        pieces=(*(bytes([byte]) for byte in range(256)), *(text.encode() for text in _CONTROL)),
        special_ids=frozenset(range(_BOS, BYTES_VOCAB)),
        end_ids=BYTES_END_IDS,
        bos_id=_BOS,
        eos_id=BYTES_END_IDS[0],
        templates={"default": _CHATML},
        named={"bos_token": _CONTROL[0], "eos_token": _CONTROL[1]},
    )
