"""WikiText is detokenized, and questions become scored endings."""

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.accuracy.tasks import (
    WINDOW,
    Ending,
    Size,
    kl_rows,
    make_tasks,
    prefer,
    way_endings,
    word_ending,
)
from benchmarks.accuracy.texts import (
    FILES,
    LAMBADA,
    PIQA,
    PIQA_LABELS,
    WIKITEXT,
    Choice,
    Cloze,
    Texts,
    cloze,
    detokenized,
    read_texts,
)

from tercet.base.errors import Invalid


def encode(text: str) -> list[int]:
    return list(text.encode())


@pytest.mark.parametrize(
    ("tokenised", "written"),
    [
        ("a film , television and theatre actor .\n", "a film, television and theatre actor.\n"),
        ("a guest @-@ starring role", "a guest-starring role"),
        ("of 1 @,@ 000 @,@ 000 people and 3 @.@ 5", "of 1,000,000 people and 3.5"),
        ('a role as " Craig " in', 'a role as "Craig" in'),
        ("the house ( built in 1900 ) fell", "the house (built in 1900) fell"),
        ("the lyrics [ sic ] and { so }", "the lyrics [sic] and {so}"),
        ("Teddy 's Story", "Teddy's Story"),
        ("the actors ' guild", "the actors' guild"),
        ("he said 'yes ' to", "he said 'yes' to"),
        (" = Robert <unk> = \n \n Robert", "= Robert <unk> =\n\nRobert"),
        (" = = Career = = \n", "== Career ==\n"),
        ("is it so ? Yes ; it is : so ! ", "is it so? Yes; it is: so! "),
    ],
)
def test_wikitext_is_written_as_people_write(tokenised: str, written: str) -> None:
    assert detokenized(tokenised) == written


def test_a_quote_that_is_not_closed_reaches_no_other_line() -> None:
    assert detokenized('say " yes\nand " no " \n') == 'say " yes\nand "no"\n'


def test_the_last_word_is_what_follows_the_last_space() -> None:
    assert cloze("He looked at the door.\n\nIt was Shane\n") == Cloze(
        "He looked at the door.\n\nIt was", "Shane"
    )


def test_a_word_is_scored_with_the_space_before_it() -> None:
    assert word_ending(Cloze("It was", "Shane"), encode) == Ending(tuple(b"It was Shane"), 6, 6)


def test_both_ways_are_scored_as_answers() -> None:
    first, second = way_endings(Choice("Sit.", ("On a chair ", "Öl"), 0), encode)
    assert bytes(first.ids) == b"Question: Sit.\nAnswer: On a chair"
    assert first.count == first.num_bytes == len(" On a chair")
    assert second.num_bytes == len(" Öl".encode())


def test_the_likelier_way_is_the_one_with_more_for_each_byte() -> None:
    long, short = Ending((1,) * 30, 10, 40), Ending((1,) * 30, 2, 4)
    assert prefer((-20.0, -8.0), (long, short)) == 0
    assert prefer((-20.0, -1.0), (long, short)) == 1
    assert prefer((-40.0, -4.0), (long, short)) == 0  # alike: the first


def test_windows_are_spread_and_none_is_longer_than_the_text() -> None:
    texts = Texts("x" * (5 * WINDOW + 7), (), ())
    assert len(make_tasks(texts, encode, Size(windows=3)).windows) == 3
    tasks = make_tasks(texts, encode, Size(windows=99))
    assert [len(window) for window in tasks.windows] == [WINDOW] * 5
    assert kl_rows()[-1] < WINDOW - 1


def test_texts_are_read_from_a_folder(tmp_path: Path) -> None:
    question = {"goal": "g", "sol1": "a", "sol2": "b"}
    (tmp_path / WIKITEXT).write_bytes(gzip.compress(b" a , b \n"))
    (tmp_path / LAMBADA).write_bytes(gzip.compress(json.dumps({"text": "a b"}).encode()))
    (tmp_path / PIQA).write_bytes(gzip.compress(json.dumps(question).encode()))
    (tmp_path / PIQA_LABELS).write_text("1\n")
    texts = read_texts(tmp_path)
    assert texts.lambada == (Cloze("a", "b"),)
    assert texts.piqa == (Choice("g", ("a", "b"), 1),)
    assert texts.wikitext == " a, b\n"
    (tmp_path / FILES[1]).unlink()
    with pytest.raises(Invalid, match="lambada"):
        read_texts(tmp_path)
