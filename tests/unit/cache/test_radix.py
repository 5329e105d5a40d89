import pytest

from tercet.base.errors import InvariantBroken
from tercet.cache.identity import child_key, pack, root_key
from tercet.cache.radix import RadixTree

A, B, C = (pack([letter] * 16) for letter in (1, 2, 3))


def _tree():
    tree = RadixTree("weights")
    a = tree.insert("", None, A, block=0)
    tree.insert("", a, B, block=1)
    tree.insert("", a, C, block=2)
    return tree


def test_the_longest_prefix_is_found():
    tree = _tree()
    assert [n.block for n in tree.match("", A + B + C, 3)] == [0, 1]
    assert [n.block for n in tree.match("", A + C, 2)] == [0, 2]
    assert [n.block for n in tree.match("", A + C, 1)] == [0]
    assert tree.match("", B + A, 2) == []


def test_nodes_carry_the_chain_key():
    node = _tree().match("", A + B, 2)[-1]
    assert node.key == child_key(child_key(root_key("", "weights"), A), B)


def test_every_token_counts():
    """A hit is decided by the tokens, not by a hash of them."""
    tree = _tree()
    almost = pack([1] * 15 + [2])
    assert tree.match("", almost, 1) == []


def test_tenants_never_meet():
    tree = _tree()
    assert tree.match("tenant", A + B, 2) == []
    tree.insert("tenant", None, A, block=7)
    assert [n.block for n in tree.match("tenant", A + B, 2)] == [7]
    assert [n.block for n in tree.match("", A + B, 2)] == [0, 1]


def test_a_root_goes_with_its_last_child():
    tree = RadixTree("weights")
    for name in ("tenant", "\ud800", ""):
        tree.insert(name, None, A, block=9)
        assert tree.num_namespaces == 1
        tree.remove(9)
        assert tree.num_namespaces == len(tree) == 0


def test_only_leaves_leave():
    tree = _tree()
    with pytest.raises(InvariantBroken, match="descendants"):
        tree.remove(0)


def test_neither_content_nor_block_is_indexed_twice():
    tree = _tree()
    with pytest.raises(InvariantBroken, match="already"):
        tree.insert("", None, A, block=5)
    with pytest.raises(InvariantBroken, match="already"):
        tree.insert("", None, B, block=1)


@pytest.mark.parametrize("what", ["key", "content", "map", "parent"])
def test_a_wrong_link_is_caught(what):
    tree = _tree()
    node = tree.node_of(1)
    if what == "key":
        node.key = b"x" * 16
    elif what == "content":
        node.content = C
    elif what == "map":
        del tree._nodes[1]
    else:
        node.parent = None
    with pytest.raises(InvariantBroken):
        tree.check()
