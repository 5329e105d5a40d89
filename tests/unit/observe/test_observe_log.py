"""Log lines: one an event, in two forms."""

import json
import logging

import pytest

from tercet.messages.effects import Fact
from tercet.observe.config import ObserveConfig
from tercet.observe.log import Bridge, Log

ENDED = Fact(
    name="job.ended",
    values=(("duration_s", 0.1234567891), ("prompt_tokens", 7.0)),
    labels=(("finish", "stop"), ("request", "req-1"), ("empty", "")),
    cause="1.7",
)


def make(**options):
    lines = []
    log = Log("node agent", ObserveConfig(**options), write=lines.append, clock=lambda: 1.5)
    return log, lines


def test_a_fact_is_a_line_of_text():
    log, lines = make()
    log.on_fact(ENDED)
    (line,) = lines
    assert line == (
        "1970-01-01T00:00:01.500Z info node-agent job.ended cause=1.7 finish=stop request=req-1"
        " duration_s=0.123457 prompt_tokens=7\n"
    )


def test_a_fact_is_an_object_of_json():
    log, lines = make(log_format="json")
    log.on_fact(ENDED)
    assert json.loads(lines[0]) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "info",
        "process": "node agent",
        "event": "job.ended",
        "cause": "1.7",
        "finish": "stop",
        "request": "req-1",
        "duration_s": 0.123457,
        "prompt_tokens": 7,
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_event_is_one_line_whatever_is_in_it(form):
    log, lines = make(log_format=form)
    log.line("error", "start.failed", why='two\nlines and a "quote"', count=3, none=None, empty="")
    assert len(lines) == 1
    assert lines[0].count("\n") == 1
    if form == "text":
        assert r'why="two\nlines and a \"quote\"" count=3 none=null empty=""' in lines[0]


def test_levels():
    log, lines = make(log_level="warning")
    log.on_fact(ENDED)
    log.line("info", "x")
    log.on_fact(Fact(name="executor.lost"))
    log.line("error", "y")
    assert [line.split()[1] for line in lines] == ["warning", "error"]
    quiet, none = make()
    quiet.on_fact(Fact(name="task.preempted"))
    assert none == []


def test_libraries_speak_in_the_same_form():
    log, lines = make(log_format="json")
    logger = logging.getLogger("library.error")
    logger.addHandler(Bridge(log))
    logger.propagate = False
    try:
        {}["gone"]
    except KeyError:
        logger.exception("failed %d", 3)
    logger.critical("worse")
    first, second = map(json.loads, lines)
    assert first["message"] == "failed 3"
    assert first["logger"] == "library.error"
    assert "KeyError" in first["trace"]
    assert (first["level"], second["level"]) == ("error", "error")


@pytest.mark.parametrize("options", [{"log_format": "xml"}, {"log_level": "loud"}])
def test_configuration_is_checked(options):
    with pytest.raises(ValueError, match=r"xml|loud"):
        ObserveConfig(**options)
