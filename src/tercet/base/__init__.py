"""The nouns that everything else is made of.

Is: ids, the machine contract, errors, chance as an object, the shape of a model.
Is not: anything that knows of a job, a process, a device or a file.
May import: nothing of ours.
"""
