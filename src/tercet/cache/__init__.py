"""Which KV blocks hold which tokens, who uses them, and which may be used anew (the RTC).

Is: the identity of KV (`identity`), the lives of blocks (`blocks`), the index over full blocks
(`radix`), and the one door that the task executor uses (`cache.Cache`); names, copies in other
memories and the calls that bring them (`rtc`); what fetching costs (`economy`).
Is not: bytes of KV (`engine`), tiers and pools of other hosts (`pool`), or the choice of who runs
(`scheduling`). Partial tail blocks are never shared; nothing here copies a block.
May import: base.
"""
