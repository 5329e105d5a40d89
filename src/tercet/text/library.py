"""The only place where the `tokenizers` library parses what it did not write itself."""

from tokenizers import Tokenizer

from tercet.base.errors import Invalid


def parse_tokenizer(definition: str, *, source: str) -> Tokenizer:
    """The tokenizer of that JSON text, or `Invalid` that names the source.

    It cuts and pads nothing, whatever was saved with it: a prompt is served whole or refused.
    """
    try:
        tokenizer = Tokenizer.from_str(definition)
    except Exception as error:  # the library raises no narrower class for bad definitions
        raise Invalid(
            f"{source}: not a tokenizer that can be used: {error}",
            code="invalid_tokenizer",
            parameter=source,
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
