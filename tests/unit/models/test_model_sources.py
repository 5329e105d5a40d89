"""What a person may name, and what is said when it is nothing."""

import sys
import types
from pathlib import Path

import pytest
from float32_models import open_float32
from small_models import TINY, tiny_tensors, write_folder, write_gguf

from tercet.base.errors import Invalid
from tercet.models import ModelCacheConfig, open_model
from tercet.models.registry import list_models
from tercet.models.sources import locate


@pytest.fixture
def cache(tmp_path: Path) -> ModelCacheConfig:
    return ModelCacheConfig(folder=tmp_path / "cache")


def test_paths(cache: ModelCacheConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "hf")
    (tmp_path / "own").mkdir()
    file = write_gguf(tmp_path / "own" / "m.Q8.gguf")
    monkeypatch.chdir(tmp_path)
    for source in (str(folder), "hf", "./hf", "hf/"):
        located = locate(source, cache)
        assert (located.name, located.location) == ("hf", str(folder))
    for source in (str(file), "own/m.Q8.gguf"):
        located = locate(source, cache)
        assert (located.name, located.location) == ("m.Q8", str(file))
    assert locate("own", cache).location == str(file), "a folder with one GGUF file in it"
    write_gguf(tmp_path / "own" / "n.gguf")
    with pytest.raises(Invalid, match="own holds 2 GGUF files; name one of them"):
        locate("own", cache)


def test_opening_by_location_gives_the_same_model(
    cache: ModelCacheConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "hf")
    monkeypatch.chdir(tmp_path)
    for source in ("hf", TINY, "cost:tiny"):
        model = open_float32(source, cache=cache)
        again = open_float32(model.location, cache=cache)
        assert again.fingerprint == model.fingerprint
        assert again.image_path == model.image_path
        assert again.program == model.program


def test_tokenizer_sources(cache: ModelCacheConfig, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "hf")
    file = write_gguf(tmp_path / "a.gguf")
    assert open_model(str(folder), cache=cache).tokenizer_source == folder
    metadata = open_model(str(file), cache=cache).tokenizer_source
    assert not isinstance(metadata, str | Path)
    assert metadata["tokenizer.ggml.model"] == "gpt2"
    assert open_model(TINY, cache=cache).tokenizer_source == "bytes"
    assert not cache.images.exists(), "text needs no image"


def test_a_cost_model_has_no_weights(cache: ModelCacheConfig) -> None:
    model = open_model("cost:8b", cache=cache)
    assert model.image_path is None
    assert not model.weights()
    assert model.tokenizer_source == "bytes"
    assert not cache.folder.exists()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("smolm2", "did you mean smollm2. Expected a name of the registry"),
        ("nothing-like-it", "no model of this name"),
        ("./none", "no such file or folder"),
        ("/none/at/all", "no such file or folder"),
        ("none.gguf", "no such file or folder"),
        ("", "no model of this name"),
        ("a/b/c", "no model of this name"),
        ("a\0b", "no model of this name"),
        ("~nobody-here/m", "no such file or folder"),
        ("x" * 300, "File name too long"),
    ],
)
def test_what_is_no_model_is_said(cache: ModelCacheConfig, source: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        locate(source, cache)
    assert caught.value.code == "model_not_found"


def test_a_file_that_is_no_model_is_said(cache: ModelCacheConfig, tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("once upon a time, there was a model")
    with pytest.raises(Invalid, match=r"model\.txt is no GGUF file"):
        open_model(str(tmp_path / "model.txt"), cache=cache)


def test_the_registry_lists_what_it_knows(cache: ModelCacheConfig) -> None:
    (entry,) = list_models(cache)
    assert (entry.name, entry.present, entry.size) == ("smollm2", False, 98_362_432)
    path = Path(entry.path)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(entry.size)
    assert list_models(cache)[0].present


class TestHub:
    """The client is not called: it is replaced at its own door."""

    def use(self, monkeypatch: pytest.MonkeyPatch, answer: object) -> list[dict[str, object]]:
        from huggingface_hub import errors

        calls: list[dict[str, object]] = []

        def snapshot_download(repository: str, **options: object) -> object:
            calls.append({"repository": repository} | options)
            if isinstance(answer, Exception):
                raise answer
            return answer

        fake = types.ModuleType("huggingface_hub")
        fake.__dict__.update(snapshot_download=snapshot_download, errors=errors)
        monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
        return calls

    def test_a_repository_is_opened_from_the_client_s_folder(
        self, cache: ModelCacheConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_folder(tmp_path / "snapshot")
        calls = self.use(monkeypatch, str(folder))
        model = open_float32("some-org/Some-Model@v1.0", cache=cache)
        assert model.name == "some-org/Some-Model@v1.0"
        assert model.location == str(folder)
        assert set(model.weights()) == set(model.program.weights)
        assert (calls[0]["repository"], calls[0]["revision"]) == ("some-org/Some-Model", "v1.0")
        assert "*.bin" not in calls[0]["allow_patterns"]  # type: ignore[operator]
        assert len(tiny_tensors()) > 0

    def test_errors_are_sentences(
        self, cache: ModelCacheConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from huggingface_hub.errors import LocalEntryNotFoundError

        for error, said in (
            (LocalEntryNotFoundError("not there"), r"not in the local cache \(HF_HOME\)"),
            (OSError("no space left.\nmore"), "no space left"),
            (ValueError("bad name"), "bad name"),
        ):
            self.use(monkeypatch, error)
            with pytest.raises(Invalid, match=said) as caught:
                locate("org/name", cache)
            assert caught.value.sentence.startswith("The model org/name cannot be fetched")
            assert "\n" not in caught.value.sentence
