"""How a client's values are spelled in sentences."""

import msgspec


def show(value: object, *, chars_max: int = 60) -> str:
    """Spell a client's value for a sentence: as JSON, shortened, printable."""
    if isinstance(value, list | dict):
        return f"{kind_of(value)} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return "an integer of more than 40 digits"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= chars_max else f"{text[:chars_max]}..."


_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def kind_of(value: object) -> str:
    """Name the JSON type of a value."""
    return _KINDS[type(value)]
