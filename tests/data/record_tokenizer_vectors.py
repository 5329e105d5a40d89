"""Records what llama.cpp makes of texts, as vectors for the tests of `tercet.text`.

    python tests/data/record_tokenizer_vectors.py LIBRARY FOLDER [NAME=FILE.gguf ...]

Needs llama.cpp as a shared library that exports its C interface (`llama.h`): `libllama.so` of
llama-cpp-python, or the extension module of xllamacpp; and Linux on x86-64, since a structure
whose layout changes between versions is passed through unseen. Not a test, and not needed to run
them: FOLDER gets one small GGUF file for each kind of tokenizer (trained here on the texts of
`tokenizer_texts.py`, with the tensors of a model of no use), and one `NAME.json` of vectors for
each of them and for each further file named, whose vocabulary is kept beside it.
"""

import ctypes
import hashlib
import json
import lzma
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import gguf
import numpy as np
from tokenizer_texts import SPECIAL_TEXTS, TEXTS, training_texts
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BYTE_LEVEL_KINDS = ("default", "gpt-2", "smollm", "llama-bpe", "smaug-bpe", "tekken", "qwen2")
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
NORMAL, UNKNOWN, CONTROL_TYPE, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


class Llama:
    """One model's vocabulary in llama.cpp."""

    class _Params(ctypes.Structure):
        _fields_ = (("opaque", ctypes.c_char * 1024),)

    def __init__(self, library: Path, model: Path) -> None:
        sys.path.insert(0, str(library.parent.parent))
        __import__(library.parent.name) if library.name.endswith(".abi3.so") else None
        lib = ctypes.CDLL(str(library))
        lib.llama_model_default_params.restype = self._Params
        lib.llama_model_load_from_file.restype = ctypes.c_void_p
        lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, self._Params]
        lib.llama_model_get_vocab.restype = ctypes.c_void_p
        lib.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        lib.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
        lib.llama_vocab_is_eog.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        lib.llama_vocab_is_eog.restype = ctypes.c_bool
        pointer, integer = ctypes.c_void_p, ctypes.c_int32
        lib.llama_tokenize.argtypes = [
            pointer, ctypes.c_char_p, integer, pointer, integer, ctypes.c_bool, ctypes.c_bool,
        ]  # fmt: skip
        lib.llama_token_to_piece.argtypes = [
            pointer, integer, ctypes.c_char_p, integer, integer, ctypes.c_bool,
        ]  # fmt: skip
        self._lib = lib
        lib.llama_backend_init()
        self._model = lib.llama_model_load_from_file(
            str(model).encode(), lib.llama_model_default_params()
        )
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {model}")
        self._vocab = lib.llama_model_get_vocab(self._model)
        self.size = lib.llama_vocab_n_tokens(self._vocab)

    def tokenize(self, text: str, *, special: bool, around: bool) -> list[int]:
        data = text.encode()
        out = (ctypes.c_int32 * (2 * len(data) + 64))()
        count = self._lib.llama_tokenize(
            self._vocab, data, len(data), out, len(out), around, special
        )
        return list(out[:count])

    def piece(self, token: int, *, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(4096)
        count = self._lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[:count]

    def ends(self) -> list[int]:
        return [t for t in range(self.size) if self._lib.llama_vocab_is_eog(self._vocab, t)]


def byte_level_metadata(kind: str) -> dict[str, object]:
    """A byte-level vocabulary with tokens of every type.

    It is trained without cuts, so that it has merges across every border that a kind may draw.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(merge) for merge in model["merges"]]
    types = [NORMAL] * len(tokens)
    # A token that no merge makes: taken whole only where merges are ignored.
    tokens += ["Ġunmergeable", *CONTROL, "<tool_call>", "[PAD0]", "   <user>"]
    types += [NORMAL, CONTROL_TYPE, CONTROL_TYPE, CONTROL_TYPE, USER, UNUSED, USER]
    return {
        "model": "gpt2",
        "pre": kind,
        "tokens": tokens,
        "token_type": types,
        "merges": merges,
        "bos_token_id": tokens.index("<|im_start|>"),
        "eos_token_id": tokens.index("<|im_end|>"),
    }


def sentencepiece_metadata(*, prefix: bool) -> dict[str, object]:
    """A vocabulary with scores, byte fallback, and tokens of every type."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, limit_alphabet=120)
    tokenizer.train_from_iterator(training_texts(), trainer)
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    pieces = sorted(vocab, key=vocab.get)
    # Merges first, as SentencePiece has them; runs of spaces; single characters last.
    runs = ["▁" * n for n in (2, 4, 3, 8) if "▁" * n not in vocab]
    ordered = [p for p in pieces if len(p) > 1][:8] + runs
    ordered += [p for p in pieces if len(p) > 1][8:] + [p for p in pieces if len(p) == 1]
    control = ["<unk>", "<s>", "</s>"]
    tokens = [*control, *(f"<0x{byte:02X}>" for byte in range(256)), *ordered]
    types = [UNKNOWN, CONTROL_TYPE, CONTROL_TYPE, *[BYTE] * 256, *[NORMAL] * len(ordered)]
    scores = [*[0.0] * 259, *(float(-index) for index in range(len(ordered)))]
    tokens += ["<tool>", "[UNUSED0]"]
    types += [USER, UNUSED]
    scores += [0.0, -1000.0]
    return {
        "model": "llama",
        "tokens": tokens,
        "token_type": types,
        "scores": scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_space_prefix": prefix,
    }


def write_model(path: Path, metadata: dict[str, object]) -> None:
    """A complete, tiny Llama around the vocabulary: llama.cpp loads no less."""
    writer = gguf.GGUFWriter(path, "llama")
    width, rows = 4, len(metadata["tokens"])
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(rows)
    for key, value in metadata.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    square = np.zeros((width, width), np.float32)
    writer.add_tensor("token_embd.weight", np.zeros((rows, width), np.float16))
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for part in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{part}.weight", np.ones(width, np.float32))
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{part}.weight", square)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def record(library: Path, model: Path) -> dict[str, object]:
    llama = Llama(library, model)
    digest = hashlib.sha256()
    for token in range(llama.size):
        for special in (True, False):
            data = llama.piece(token, special=special)
            digest.update(len(data).to_bytes(4, "little") + data)
    return {
        "vocab_size": llama.size,
        "pieces_sha256": digest.hexdigest(),
        "end_ids": llama.ends(),
        "cases": [
            {
                "text": text,
                "whole": llama.tokenize(text, special=True, around=True),
                "plain": llama.tokenize(text, special=False, around=False),
            }
            for text in [*TEXTS, *SPECIAL_TEXTS]
        ],
    }


def small_models(folder: Path) -> Iterator[tuple[str, Path]]:
    made = {kind: byte_level_metadata(kind) for kind in BYTE_LEVEL_KINDS}
    made["llama-spm"] = sentencepiece_metadata(prefix=True)
    made["llama-spm-noprefix"] = sentencepiece_metadata(prefix=False)
    for name, metadata in made.items():
        path = folder / f"{name}.gguf"
        write_model(path, metadata)
        yield name, path


def keep_vocabulary(model: Path, path: Path) -> None:
    """The tokenizer's metadata of a file that is too big to keep."""
    fields = gguf.GGUFReader(model).fields
    metadata = {k: f.contents() for k, f in fields.items() if k.startswith("tokenizer.")}
    data = json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode()
    path.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def main(arguments: Sequence[str]) -> None:
    library, folder = Path(arguments[0]), Path(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    further = [argument.split("=", 1) for argument in arguments[2:]]
    named = [(name, Path(file)) for name, file in further]
    for name, path in named:
        keep_vocabulary(path, folder / f"{name}.vocabulary.json.xz")
    for name, path in [*small_models(folder), *named]:
        vectors = record(library, path)
        text = json.dumps(vectors, ensure_ascii=True, separators=(",", ":"))
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        print(name, vectors["vocab_size"], len(text))


if __name__ == "__main__":
    main(sys.argv[1:])
