from hashlib import blake2b

from tercet.cache.identity import (
    KEY_BYTES,
    blocks_for,
    child_key,
    keys_of,
    pack,
    root_key,
)


def test_tokens_are_packed_little_endian():
    assert pack([1, 258]) == b"\x01\x00\x00\x00\x02\x01\x00\x00"


def test_keys_are_a_chain_of_128_bit_hashes():
    root = root_key("tenant", "weights")
    first, second = keys_of(list(range(40)), root)
    assert len(root) == len(first) == KEY_BYTES == 16
    assert first == blake2b(root + pack(range(16)), digest_size=16).digest()
    assert second == child_key(first, pack(range(16, 32)))


def test_a_partial_block_has_no_key():
    root = root_key("", "weights")
    assert keys_of([1] * 15, root) == []
    assert len(keys_of([1] * 16, root)) == 1


def test_everything_is_in_the_key():
    keys = [
        root_key("", "w"),
        root_key("w", ""),
        root_key("a", "bc"),
        root_key("ab", "c"),
        root_key("\ud800", "w"),
    ]
    assert len(set(keys)) == len(keys)
    same = list(range(16, 32))
    one, other = keys_of([*range(16), *same], keys[0]), keys_of([0] * 16 + same, keys[0])
    assert one[1] != other[1], "the same tokens after others are other KV"


def test_blocks_for_rounds_up():
    assert [blocks_for(n) for n in (0, 1, 16, 17, 32)] == [0, 1, 1, 2, 2]
