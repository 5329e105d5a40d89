import gzip
import json
from collections import Counter
from pathlib import Path

from benchmarks.mooncake import Line, conversations, read_trace, skewed


def lines(count: int) -> list[Line]:
    """A system prompt, 0, before conversations of three turns that take turns."""
    return [
        Line(1000.0 * number, 1500 + number, 10, hash_ids=[0, *range(base, base + 1 + number % 3)])
        for number in range(count)
        for base in (1000 * (1 + number // 3),)
    ]


def test_a_trace_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [3, 4]}
    with gzip.open(path, "wt") as file:
        file.write("\n".join(json.dumps({**row, "timestamp": at}) for at in range(5)))
    read = read_trace(path, 3)
    assert [line.timestamp for line in read] == [0, 1, 2]
    assert read[0].hash_ids == [3, 4]


def test_conversations_are_kept_whole_and_one_of_so_many() -> None:
    every = lines(300)
    kept = conversations(every, 4)
    assert len(kept) == 75
    turns = Counter(line.hash_ids[1] for line in kept)
    assert set(turns.values()) == {3}
    assert conversations(every, 1) == every


def test_skew_keeps_times_and_lengths_and_makes_few_documents_popular() -> None:
    every = lines(300)
    made = skewed(every, documents=8)
    for one, other in zip(every, made, strict=True):
        assert (one.timestamp, one.input_length) == (other.timestamp, other.input_length)
        assert len(one.hash_ids) == len(other.hash_ids)
    firsts = Counter(line.hash_ids[0] for line in made if len(line.hash_ids) > 1)
    assert len(firsts) == 8
    assert firsts.most_common(1)[0][1] > 2 * sum(firsts.values()) / 8
    own = [part for line in made for part in line.hash_ids[len(line.hash_ids) // 2 :]]
    assert len(own) == len(set(own))
