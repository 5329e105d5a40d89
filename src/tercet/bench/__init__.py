"""Measure a server as its clients see it: load, one record a request, percentiles, goodput.

Is: an HTTP load generator for any OpenAI-compatible server, open loop (a rate) or closed loop
(so many at a time). Is not: a benchmark of the engine alone (`benchmarks/` in the repository).
May import: base, jobs, observe.
"""
