"""The alphabet of byte-level vocabularies: each byte has one printable character.

Printable Latin-1 characters stand for themselves; the other 68 bytes are spelled with the
characters from U+0100 on (Radford et al., GPT-2, 2019), so a space is `Ġ` and a newline `Ċ`.
"""


def _alphabet() -> list[str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelled = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in spelled:
            spelled[byte] = chr(256 + len(spelled) - len(printable))
    return [spelled[byte] for byte in range(256)]


ALPHABET: tuple[str, ...] = tuple(_alphabet())
"""Byte -> its character."""
_TO_LATIN = {ord(character): byte for byte, character in enumerate(ALPHABET)}
_OUTSIDE = {
    ord(character): 0x110000 - 1
    for character in map(chr, range(256))
    if ord(character) not in _TO_LATIN
}
"""Latin-1 characters that spell no byte (a raw space, say) must not pass for one."""
_TABLE = _TO_LATIN | _OUTSIDE


def spell(data: bytes) -> str:
    """The byte-level spelling of `data`."""
    return "".join([ALPHABET[byte] for byte in data])


def unspell(token: str) -> bytes:
    """The bytes that a byte-level token stands for; a token in plain text stands for itself."""
    try:
        return token.translate(_TABLE).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()
