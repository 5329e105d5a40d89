"""Tercet beside its peers on one machine: the tables of `make bench-peers`.

    python -m benchmarks.peers [--peers FOLDER] [--only SYSTEM ...] [--rows ROW ...] [--write]

Is: environments of the peers outside ours, one driver a peer (`drivers/`, each runs in its peer's
own environment), and the program that lets all systems do the same work in turn.
Is not: a test. The models of the peers are made here from our checkpoint.
"""
