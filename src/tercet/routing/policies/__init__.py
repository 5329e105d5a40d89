"""Policies: each is one function of a read-only view that names an executor, or nobody."""
