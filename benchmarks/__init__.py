"""What the house weighs and how fast it is: the tables of `make bench`.

    python -m benchmarks [--data FOLDER] [--only NAME ...] [--write]

Is: one module a table, each with the command that gives it, the bar that it is held to, and a split
of where the time goes. Is not: a test; nothing here fails because a machine is slow.
"""
