"""A tokenizer that is written as a folder and read again is the same tokenizer."""

from pathlib import Path

import pytest
from recorded_tokenizers import NAMES, codec
from tokenizer_texts import TEXTS

from tercet.text.folder_writer import write_folder
from tercet.text.load import load_codec


@pytest.mark.parametrize("name", ["bytes", *NAMES])
def test_a_folder_says_all_of_a_codec(tmp_path: Path, name: str) -> None:
    ours = codec(name)
    write_folder(ours, tmp_path)
    theirs = load_codec(tmp_path)
    assert theirs.named_tokens == ours.named_tokens
    assert theirs.templates == ours.templates
    assert (theirs.bos_id, theirs.eos_id) == (ours.bos_id, ours.eos_id)
    assert theirs.strips_space == ours.strips_space
    for text in TEXTS:
        ids = ours.encode(text)
        assert theirs.encode(text) == ids, text
        assert theirs.encode(text, special=False, add_bos=False) == ours.encode(
            text, special=False, add_bos=False
        )
        assert theirs.decode(ids) == ours.decode(ids), text
        assert theirs.decode(ids, skip_special=False) == ours.decode(ids, skip_special=False)
