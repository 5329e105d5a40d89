"""The Python API against its own private processes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tercet import LLM, SamplingParams
from tercet.base.errors import Invalid

TINY = "random:llama?layers=2&hidden=64&context=256"
GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder: Path = tmp_path_factory.mktemp("cache")
    with LLM(TINY, settings={"cache_folder": str(folder)}, show_progress=False) as opened:
        yield opened


def test_outputs_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [f"number {index}" for index in range(20)]
    many = llm.generate(prompts, GREEDY)
    assert [output.prompt for output in many] == prompts
    alone = [llm.generate(prompt, GREEDY)[0].outputs[0].token_ids for prompt in prompts[:3]]
    assert [output.outputs[0].token_ids for output in many[:3]] == alone
    assert all(len(output.outputs[0].token_ids) == 6 for output in many)


def test_token_ids_and_several_choices(llm: LLM) -> None:
    sampling = SamplingParams(max_tokens=4, n=3, seed=5, temperature=1.0, ignore_eos=True)
    [output] = llm.generate([1, 2, 3], sampling)
    assert output.prompt_token_ids == [1, 2, 3]
    assert [choice.index for choice in output.outputs] == [0, 1, 2]
    assert len({tuple(choice.token_ids) for choice in output.outputs}) == 3
    assert llm.generate([[1, 2, 3]], sampling)[0].outputs == output.outputs


def test_a_chat_and_several(llm: LLM) -> None:
    talk = [{"role": "user", "content": "hi"}]
    [one] = llm.chat(talk, GREEDY)
    two = llm.chat([talk, talk], GREEDY)
    assert [output.text for output in two] == [one.text, one.text]
    assert one.outputs[0].finish_reason == "length"


def test_a_stream_is_the_same_text_in_pieces(llm: LLM) -> None:
    async def collect() -> str:
        return "".join([piece async for piece in llm.stream("number 1", GREEDY)])

    assert asyncio.run(collect()) == llm.generate("number 1", GREEDY)[0].text


def test_it_works_inside_an_event_loop(llm: LLM) -> None:
    async def inside() -> int:
        return len(llm.generate(["a", "b"], GREEDY))

    assert asyncio.run(inside()) == 2


@pytest.mark.parametrize(
    ("prompt", "sampling", "parameter"),
    [
        ([999_999], GREEDY, "prompt"),
        ("", GREEDY, "prompt"),
        ("a", SamplingParams(temperature=-1), "temperature"),
        ("a", SamplingParams(top_p=7), "top_p"),
        ("a", SamplingParams(logit_bias={"999999": 1.0}), "logit_bias"),
    ],
)
def test_what_is_wrong_raises_invalid_with_the_parameter(
    llm: LLM, prompt: str | list[int], sampling: SamplingParams, parameter: str
) -> None:
    with pytest.raises(Invalid) as caught:
        llm.generate(prompt, sampling)
    assert caught.value.parameter == parameter
    assert llm.generate("still alive", GREEDY)[0].text


def test_nothing_is_left_after_close(tmp_path: Path) -> None:
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    opened = LLM("cost:tiny", settings={"cache_folder": str(tmp_path)}, show_progress=False)
    during = {child.pid for child in me.children(recursive=True)} - before
    assert len(during) >= 4
    opened.close()
    opened.close()
    assert not [pid for pid in during if psutil.pid_exists(pid)]
    with pytest.raises(Invalid, match="closed"):
        opened.generate("a")


def test_an_unknown_setting_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"runtime\.replicas"):
        LLM("cost:tiny", settings={"cache_folder": str(tmp_path), "runtime.replica": 2})
