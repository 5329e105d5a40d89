"""The index over full blocks: tokens lead to the block that holds their KV.

    root (namespace, fingerprint)
      |-- [the 16 tokens 0..15]  --> node: key, block 7
      |        |-- [tokens 16..31] --> node: key, block 9
      |        `-- [other 16..31]  --> node: key, block 4
      `-- [other 0..15]          --> node: key, block 2

A radix tree whose letters are blocks: an edge is the exact content of one full block, so a match
compares every token (I3: content-verified) and no hash has to be trusted. A node carries the chain
key of its block as well, the name under which other hosts know the same KV. Runs of single
children are not merged into one edge: blocks are held, evicted and handed over one by one.

Each tenant's namespace has a root of its own. A root without children is forgotten, so the tree is
bounded by the number of blocks.
"""

from tercet.base.errors import must
from tercet.base.ids import BlockId
from tercet.cache.identity import BLOCK_BYTES, child_key, encoded, root_key

NO_BLOCK = BlockId(-1)


class Node:
    """One full block of tokens after all those of its ancestors."""

    __slots__ = ("block", "children", "content", "key", "parent")

    def __init__(self, *, key: bytes, content: bytes, parent: "Node | None", block: int) -> None:
        self.key = key
        self.content = content
        """The block's tokens, packed."""
        self.parent = parent
        """None for a root alone."""
        self.children: dict[bytes, Node] = {}
        self.block = BlockId(block)


class RadixTree:
    """Finds, inserts and removes one block at a time, O(1) each."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._roots: dict[str, Node] = {}
        self._nodes: dict[BlockId, Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, block: BlockId) -> bool:
        return block in self._nodes

    @property
    def num_namespaces(self) -> int:
        return len(self._roots)

    def node_of(self, block: BlockId) -> Node:
        """Give the node that names the block."""
        return self._nodes[block]

    def path_to(self, node: Node) -> tuple[str, list[Node]]:
        """Give the namespace of a node and the nodes from behind the root to it."""
        path: list[Node] = []
        while node.parent is not None:
            path.append(node)
            node = node.parent
        return _namespace_of(node), path[::-1]

    def match(self, namespace: str, packed: bytes, num_blocks_max: int) -> list[Node]:
        """Give the nodes of the longest indexed prefix of the packed tokens, first block first."""
        node = self._roots.get(namespace)
        path: list[Node] = []
        if node is None:
            return path
        for at in range(0, BLOCK_BYTES * num_blocks_max, BLOCK_BYTES):
            node = node.children.get(packed[at : at + BLOCK_BYTES])
            if node is None:
                break
            path.append(node)
        return path

    def child(self, namespace: str, parent: Node | None, content: bytes) -> Node | None:
        """Give the node of `content` after `parent` (None: at the root), if there is one."""
        above = self._roots.get(namespace) if parent is None else parent
        return None if above is None else above.children.get(content)

    def insert(
        self, namespace: str, parent: Node | None, content: bytes, *, block: BlockId
    ) -> Node:
        """Index a block whose content has no node there yet."""
        must(len(content) == BLOCK_BYTES, f"a block of {len(content)} bytes of tokens")
        must(block not in self._nodes, f"block {block} is indexed already")
        above = self._root(namespace) if parent is None else parent
        must(content not in above.children, f"block {block}: its content is indexed already")
        key = child_key(above.key, content)
        node = Node(key=key, content=content, parent=above, block=block)
        above.children[content] = node
        self._nodes[block] = node
        return node

    def remove(self, block: BlockId) -> None:
        """Forget a leaf."""
        node = self._nodes.pop(block)
        must(not node.children, f"block {block} has descendants in the index")
        above = node.parent
        must(above is not None, f"block {block} is a root")
        if above is None:
            return
        del above.children[node.content]
        if above.parent is None and not above.children:
            del self._roots[_namespace_of(above)]

    def root_key(self, namespace: str) -> bytes:
        """Give the parent key of a namespace's first blocks, indexed or not."""
        root = self._roots.get(namespace)
        return root_key(namespace, self._fingerprint) if root is None else root.key

    def _root(self, namespace: str) -> Node:
        root = self._roots.get(namespace)
        if root is None:
            key = root_key(namespace, self._fingerprint)
            root = Node(key=key, content=encoded(namespace), parent=None, block=NO_BLOCK)
            self._roots[namespace] = root
        return root

    def check(self) -> None:
        """Raise unless keys, links and the map of blocks agree; O(nodes)."""
        found = 0
        for namespace, root in self._roots.items():
            must(root.children, f"the root of {namespace!r} has no children")
            must(root.key == root_key(namespace, self._fingerprint), f"{namespace!r}: wrong root")
            stack = [root]
            while stack:
                node = stack.pop()
                for content, child in node.children.items():
                    found += 1
                    must(child.parent is node, f"block {child.block} has another parent")
                    must(child.content == content, f"block {child.block} holds other tokens")
                    key = child_key(node.key, content)
                    must(child.key == key, f"block {child.block} has another key")
                    named = self._nodes.get(child.block)
                    must(named is child, f"block {child.block} is mapped to another node")
                    stack.append(child)
        must(found == len(self._nodes), f"{len(self._nodes)} blocks mapped, {found} in the tree")


def _namespace_of(root: Node) -> str:
    return root.content.decode("utf-8", "surrogatepass")
