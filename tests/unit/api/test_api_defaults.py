"""What a request leaves open is what the model's makers recommend, and what it says wins."""

from dataclasses import replace

from api_client import MODEL, House

from tercet.base.model import SamplingDefaults

ADVICE = SamplingDefaults(temperature=0.6, top_k=20, top_p=0.9, min_p=0.1, repetition_penalty=1.1)


def _sampled(**fields):
    house = House()
    house.service.served = (replace(MODEL, defaults=ADVICE),)
    asked = []
    submit = house.service.submit
    house.service.submit = lambda job, sink: (asked.append(job.sampling), submit(job, sink))
    assert house.complete(**fields).status == 200
    return asked[0]


def test_silence_means_the_recommendation():
    sampling = _sampled()
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.6, 20, 0.9)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.1, 1.1)


def test_what_is_said_wins():
    sampling = _sampled(temperature=0, top_k=-1, top_p=1, min_p=0, repetition_penalty=1)
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0, 0, 1)
    assert (sampling.min_p, sampling.repetition_penalty) == (0, 1)


def test_every_end_token_of_model_and_tokenizer_ends_a_task():
    assert set(_sampled().stop_token_ids) == {257, 259}
    assert set(_sampled(stop_token_ids=[65]).stop_token_ids) == {65, 257, 259}
    assert _sampled(ignore_eos=True, stop_token_ids=[65]).stop_token_ids == (65,)
