"""What runs inside a peer's own environment: the standard library and that peer, nothing of ours.

    python -m benchmarks.peers.drivers.openvino MODEL continuous

A driver says `{"ready": ...}` after its first token and then carries out `worker`'s commands.
"""
