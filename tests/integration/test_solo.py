"""One process answers as a tree does: the same text, the same refusals, nothing left behind."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tercet import LLM, SamplingParams
from tercet.base.errors import Invalid
from tercet.runtime.config import Fault, RuntimeConfig, TreeConfig
from tercet.runtime.faulty import InjectedFault
from tercet.runtime.replay import replay
from tercet.runtime.solo import Solo, open_solo

TINY = "random:llama?layers=2&hidden=64&context=256&seed=3"
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi, 你好!"}]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tree(cache: Path) -> Iterator[LLM]:
    with LLM(TINY, settings={"cache_folder": str(cache)}, show_progress=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def config(cache: Path) -> TreeConfig:
    return TreeConfig(model=TINY, cache_folder=str(cache))


@pytest.fixture(scope="module")
def solo(config: TreeConfig) -> Iterator[Solo]:
    opened = open_solo(config, chats=True)
    yield opened
    opened.close()


SAMPLINGS = [
    SamplingParams(max_tokens=24, temperature=0),
    SamplingParams(max_tokens=24, temperature=0, ignore_eos=True),
    SamplingParams(max_tokens=40, temperature=1.0, seed=5),
    SamplingParams(max_tokens=40, temperature=0.7, seed=-7, top_k=20, top_p=0.9, min_p=0.01),
    SamplingParams(max_tokens=30, temperature=1.5, seed=1, repetition_penalty=1.3),
    SamplingParams(max_tokens=30, temperature=1.0, seed=2, presence_penalty=1, frequency_penalty=1),
    SamplingParams(max_tokens=30, temperature=1.0, seed=3, stop=["e", "t"], min_tokens=5),
    SamplingParams(
        max_tokens=30, temperature=1.0, seed=3, stop="a", include_stop_str_in_output=True
    ),
    SamplingParams(max_tokens=30, temperature=1.0, seed=4, stop_token_ids=list(range(97, 110))),
    SamplingParams(max_tokens=20, temperature=0, logit_bias={"65": 100.0}),
    SamplingParams(max_tokens=20, temperature=1.0, seed=9, skip_special_tokens=False),
    SamplingParams(temperature=0),
]


def fields(sampling: SamplingParams, **more: object) -> dict[str, object]:
    return {**sampling.fields(chat="messages" in more), **more}


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_texts_are_those_of_a_server(tree: LLM, solo: Solo, sampling: SamplingParams) -> None:
    prompt = "the quick brown fox " * 3
    assert "".join(solo.answer(fields(sampling, prompt=prompt), chat=False)) == (
        tree.generate(prompt, sampling)[0].text
    )


@pytest.mark.parametrize("sampling", SAMPLINGS[:4])
def test_chats_are_those_of_a_server(tree: LLM, solo: Solo, sampling: SamplingParams) -> None:
    assert "".join(solo.answer(fields(sampling, messages=TALK), chat=True)) == (
        tree.chat(TALK, sampling)[0].text
    )


def test_a_prompt_of_many_steps(tree: LLM, config: TreeConfig) -> None:
    """Chunks of 8 rows give what one step gives on a device that keeps its promise; the reference
    device keeps it for tokens of this size.
    """
    prompt, sampling = "abcdefgh" * 12, SAMPLINGS[0]
    chunked = replace(config, scheduling=replace(config.scheduling, max_rows=8, max_slots=8))
    found = "".join(
        open_solo(chunked, chats=False).answer(fields(sampling, prompt=prompt), chat=False)
    )
    assert found == tree.generate(prompt, sampling)[0].text


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": ""},
        {"prompt": [999_999]},
        {"prompt": "a", "temperature": 3.0},
        {"prompt": "a", "max_tokens": 10_000},
        {"prompt": "a", "max_tokens": 0},
        {"prompt": "a" * 5000},
        {"prompt": "a" * 300},
        {"prompt": "a", "seed": 1 << 70},
        {"prompt": "a", "stop": [""]},
        {"prompt": "a", "logit_bias": {"x": 1}},
        {"prompt": "a", "suffix": "b"},
        {"prompt": "a", "temprature": 1},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": TALK, "tools": [{}]},
    ],
)
def test_what_the_api_refuses_is_refused_in_the_same_words(
    tree: LLM, solo: Solo, wrong: dict[str, object]
) -> None:
    chat = "messages" in wrong
    with pytest.raises(Invalid) as ours:
        list(solo.answer(wrong, chat=chat))
    with pytest.raises(Invalid) as theirs:
        tree._wait(tree._answer_all(f"/v1/{'chat/' * chat}completions", [wrong], SamplingParams()))
    assert ours.value.sentence == theirs.value.sentence
    assert (ours.value.code, ours.value.parameter) == (theirs.value.code, theirs.value.parameter)
    solo._driver.check()


def test_an_answer_that_is_left_does_not_disturb_the_next(solo: Solo) -> None:
    asked = fields(SAMPLINGS[2], prompt="again")
    whole = "".join(solo.answer(asked, chat=False))
    for pieces in (1, 3):
        left = solo.answer({**asked, "ignore_eos": True, "max_tokens": 200}, chat=False)
        for _ in range(pieces):
            next(left)
        left.close()  # type: ignore[attr-defined]
        solo._driver.check()
        assert "".join(solo.answer(asked, chat=False)) == whole


def test_pieces_come_one_after_the_other(solo: Solo) -> None:
    asked = {"prompt": "abc", "max_tokens": 50, "temperature": 0, "ignore_eos": True}
    pieces = list(solo.answer({**asked, "logit_bias": {"65": 100}}, chat=False))
    assert "".join(pieces) == "A" * 50
    assert len(pieces) > 50 // (1 + 8)  # of one token, or with some that were guessed


def test_its_machines_can_be_recorded_and_replayed(config: TreeConfig, tmp_path: Path) -> None:
    recorded = replace(config, runtime=RuntimeConfig(record=str(tmp_path)))
    solo = open_solo(recorded, chats=False)
    for sampling in SAMPLINGS[2:7]:
        list(solo.answer(fields(sampling, prompt="a b c"), chat=False))
    solo.close()
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 2
    for path in paths:
        again = replay(path)
        assert again.num_events > 10
        assert not again.difference


def test_a_context_without_memory_is_refused(config: TreeConfig) -> None:
    small = replace(config, runtime=RuntimeConfig(kv_cache_memory_bytes=1))
    with pytest.raises(Invalid, match="KV memory"):
        open_solo(small, chats=False)


def test_an_error_of_the_device_is_not_hidden(config: TreeConfig) -> None:
    faults = (Fault(kind="raise", step=2),)
    solo = open_solo(replace(config, runtime=RuntimeConfig(faults=faults)), chats=False)
    with pytest.raises(InjectedFault):
        list(solo.answer({"prompt": "a", "max_tokens": 9, "ignore_eos": True}, chat=False))


def test_a_model_without_weights_answers_too(cache: Path) -> None:
    solo = open_solo(TreeConfig(model="cost:tiny", cache_folder=str(cache)), chats=False)
    text = "".join(solo.answer({"prompt": "a", "max_tokens": 9, "ignore_eos": True}, chat=False))
    assert text
    assert json.dumps(text)
