"""DistFlow's decisions: what may be read of whom for how long, and where bytes have to go.

Is: leases and fetches as tables of states, the lender's books, layouts as data and the moves
between them.
Is not: bytes (`wires`), the pool's placement (`pool`), or who computes what (`scheduling`).
May import: base, messages.
"""
