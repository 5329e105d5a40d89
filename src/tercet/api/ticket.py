"""Who asks, as far as anybody needs to know."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ticket:
    """What the edge knows of a request."""

    request: str
    """The client's `x-request-id` made harmless, or one of ours."""
    nonce: str
    """Sets the ids of this process apart from those of its predecessors."""
    tenant: str
    """Whose prompts it may share a cache with: a name of its API key that gives no key away."""
