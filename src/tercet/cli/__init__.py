"""The command line: the only reader of arguments, configuration files and the environment.

Is: composition of every package's configuration, commands that print for people.
Is not: anything a library user needs (`tercet.llm`), or logic of serving.
May import: everything (commands import late, so that `--help` is quick).
"""
