"""Stop strings, whole and in pieces."""

import pytest

from tercet.base.errors import Invalid
from tercet.text.stops import StopStrings, check_stops


def run(stops, pieces, **options):
    """What was emitted after each piece, and the stop string that was found."""
    stream = StopStrings(stops, **options)
    emitted, found = [], None
    for piece in pieces:
        match = stream.push(piece)
        emitted.append(match.emit)
        found = found or match.found
    emitted.append(stream.flush())
    return emitted, found


def test_a_stop_string_spans_tokens():
    """vllm#2577: found when not streaming, missed when streaming."""
    assert run(["###"], ["a#", "#", "#b", "c"]) == (["a", "", "", "", ""], "###")
    assert run(["###"], ["a###bc"]) == (["a", ""], "###")


def test_only_what_may_begin_a_stop_is_held_back():
    assert run(["stop"], ["the st", "ar", " sto", "re s"]) == (
        ["the ", "star", " ", "store ", "s"],
        None,
    )


def test_the_first_to_end_wins_and_of_these_the_longest():
    assert run(["abcd", "bc"], ["xabcd"]) == (["xa", ""], "bc")
    assert run(["c", "bc", "abc"], ["xabc"]) == (["x", ""], "abc")


def test_overlapping_beginnings_are_kept():
    assert run(["aab"], list("aaab")) == (["", "", "a", "", ""], "aab")
    assert run(["ababc"], list("abababc"))[0] == ["", "", "", "", "ab", "", "", ""]


def test_the_stop_string_can_be_included():
    """vllm#57052: the stop text leaks, or include_stop_str_in_output is ignored."""
    assert run(["END"], ["xE", "NDy"], include_stop=True) == (["x", "END", ""], "END")
    assert run(["END"], ["xE", "NDy"]) == (["x", "", ""], "END")


def test_nothing_follows_a_stop():
    stream = StopStrings(["."])
    assert stream.push("a.b").emit == "a"
    assert stream.push("c").emit == ""
    assert stream.flush() == ""


def test_other_scripts_and_line_ends():
    assert run(["。", "\n\n"], ["你好", "。再见"]) == (["你好", "", ""], "。")
    assert run(["\n\n"], ["a\n", "b\n", "\nc"]) == (["a", "\nb", "", ""], "\n\n")
    assert run(["👍🏽"], ["ok 👍", "🏽"]) == (["ok ", "", ""], "👍🏽")


def test_without_stop_strings_everything_passes():
    assert run([], ["a", "b"]) == (["a", "b", ""], None)


def test_hostile_repetition_takes_linear_work():
    """Each character moves the state forward once, and back at most as often."""
    stops = ["a" * 8000 + "b", "a" * 4000 + "c"]
    stream = StopStrings(stops)
    emitted = "".join(stream.push("a" * 1000).emit for _ in range(200)) + stream.flush()
    assert emitted == "a" * 200_000


def test_stop_strings_are_checked_at_the_edge():
    check_stops(["a", "bc"])
    with pytest.raises(Invalid, match="empty"):
        check_stops(["a", ""])
    with pytest.raises(Invalid, match="20000 characters"):
        check_stops(["x" * 20_000])
