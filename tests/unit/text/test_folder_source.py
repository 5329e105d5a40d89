"""Tokenizers of folders in Hugging Face layout: equal text, equal tokens, whatever the format."""

import json

import pytest
from recorded_tokenizers import RECORDED, metadata
from tokenizers import Tokenizer

from tercet.base.errors import Invalid
from tercet.text.gguf_source import read_gguf
from tercet.text.load import load_codec

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}
SENTENCEPIECE = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def write_folder(folder, name, *, decoder, config=None, **files):
    """The recorded tokenizer, written as a folder."""
    definition = json.loads(read_gguf(metadata(name)).definition)
    definition["decoder"] = decoder
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    (folder / "tokenizer_config.json").write_text(json.dumps(config or {}))
    for file, content in files.items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("name", "decoder"),
    [("qwen2", BYTE_LEVEL), ("llama-bpe", BYTE_LEVEL), ("llama-spm", SENTENCEPIECE)],
)
def test_a_folder_gives_the_tokens_and_texts_of_its_library(tmp_path, name, decoder):
    codec = load_codec(write_folder(tmp_path, name, decoder=decoder))
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for case in json.loads((RECORDED / f"{name}.json").read_text())["cases"]:
        ids = codec.encode(case["text"])
        assert ids == case["whole"]
        assert codec.encode(case["text"], special=False, add_bos=False) == case["plain"]
        assert codec.decode(ids) == library.decode(ids)
        assert codec.decode(ids, skip_special=False) == library.decode(
            ids, skip_special_tokens=False
        )


def test_metaspace_strips_the_first_space_only(tmp_path):
    codec = load_codec(write_folder(tmp_path, "llama-spm", decoder=METASPACE))
    assert codec.decode(codec.encode(" a  b")) == " a  b"


def test_roles_come_from_the_configuration(tmp_path):
    folder = write_folder(
        tmp_path,
        "qwen2",
        decoder=BYTE_LEVEL,
        config={"eos_token": {"content": "<|im_end|>"}, "bos_token": None, "pad_token": "[PAD0]"},
        generation_config={"eos_token_id": [803, 801]},
    )
    codec = load_codec(folder)
    assert codec.end_ids == (803, 801)
    assert codec.bos_id is None
    assert codec.named_tokens == {"eos_token": "<|im_end|>", "pad_token": "[PAD0]"}
    assert codec.is_special(codec.encode("[PAD0]")[0])


def test_tokens_that_only_the_configuration_lists_are_added(tmp_path):
    added = {"807": {"content": "<|new|>", "special": True}}
    folder = write_folder(
        tmp_path, "qwen2", decoder=BYTE_LEVEL, config={"added_tokens_decoder": added}
    )
    codec = load_codec(folder)
    assert codec.encode("a<|new|>")[-1] == 807
    assert codec.decode([807]) == ""
    assert codec.token_bytes(807) == b"<|new|>"


def test_a_listed_token_in_the_wrong_place_is_refused(tmp_path):
    added = {"900": {"content": "<|new|>", "special": True}}
    folder = write_folder(
        tmp_path, "qwen2", decoder=BYTE_LEVEL, config={"added_tokens_decoder": added}
    )
    with pytest.raises(Invalid, match="contradicts"):
        load_codec(folder)


@pytest.mark.parametrize("wanted", [True, False])
def test_llama_classes_follow_add_bos_token(tmp_path, wanted):
    config = {"add_bos_token": wanted, "tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>"}
    codec = load_codec(write_folder(tmp_path, "llama-spm", decoder=SENTENCEPIECE, config=config))
    assert (codec.encode("a")[0] == 1) is wanted
    assert codec.encode("a", add_bos=False)[0] != 1


def test_templates_come_from_the_file_then_the_configuration(tmp_path):
    config = {
        "chat_template": [
            {"name": "default", "template": "D"},
            {"name": "tool_use", "template": "T"},
        ]
    }
    folder = write_folder(tmp_path, "qwen2", decoder=BYTE_LEVEL, config=config)
    assert load_codec(folder).templates == {"default": "D", "tool_use": "T"}
    (folder / "chat_template.jinja").write_text("F")
    assert load_codec(folder).templates["default"] == "F"


def test_a_folder_without_tokenizer_json_is_refused_by_name(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a")
    with pytest.raises(Invalid, match=r"tokenizer\.json: the file is missing; tokenizer\.model"):
        load_codec(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": {}}', "\x00"])
def test_broken_files_are_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(Invalid) as refusal:
        load_codec(tmp_path)
    assert "tokenizer.json" in refusal.value.sentence


def test_a_broken_configuration_is_refused(tmp_path):
    folder = write_folder(tmp_path, "qwen2", decoder=BYTE_LEVEL)
    (folder / "tokenizer_config.json").write_text("{nope")
    with pytest.raises(Invalid, match="tokenizer_config"):
        load_codec(folder)


def test_a_decoder_without_bytes_is_refused(tmp_path):
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    with pytest.raises(Invalid, match="WordPiece"):
        load_codec(write_folder(tmp_path, "qwen2", decoder=decoder))


def test_a_saved_cut_or_padding_is_not_applied(tmp_path):
    """ollama#3839, vmlx#255: input is never silently cut."""
    folder = write_folder(tmp_path, "qwen2", decoder=BYTE_LEVEL)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.enable_truncation(max_length=4)
    library.enable_padding(length=64)
    library.save(str(folder / "tokenizer.json"))
    text = "one two three four five six seven"
    codec = load_codec(folder)
    for special in (True, False):
        assert codec.decode(codec.encode(text, special=special)) == text
