"""Writes a tokenizer as the files of a folder in Hugging Face layout."""

import json
from pathlib import Path

from tercet.text.codec import Codec


def write_folder(codec: Codec, folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json of the codec are in the folder; `load_codec` and
    transformers read the same tokenizer from it.
    """
    definition = json.loads(codec.definition)
    definition["decoder"] = _decoder(definition, strips_space=codec.strips_space)
    _write(folder / "tokenizer.json", definition)
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **codec.named_tokens,
    }
    templates = codec.templates
    if set(templates) == {"default"}:
        config["chat_template"] = templates["default"]
    elif templates:
        config["chat_template"] = [
            {"name": name, "template": template} for name, template in templates.items()
        ]
    _write(folder / "tokenizer_config.json", config)


def _decoder(definition: dict[str, dict[str, object]], *, strips_space: bool) -> dict[str, object]:
    """How texts of tokens become text: byte level, or SentencePiece's spaces and byte tokens."""
    if not definition["model"].get("byte_fallback"):
        flags = ("add_prefix_space", "trim_offsets", "use_regex")
        return {"type": "ByteLevel"} | dict.fromkeys(flags, True)
    steps: list[dict[str, object]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if strips_space:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _write(path: Path, body: object) -> None:
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
