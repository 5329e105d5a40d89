"""The model image: a program's weights in float32 in one file, mapped by every process.

Is: the file's layout, its building (once, by one process, whole or not at all) and its opening.
Is not: the choice of weights (`program`), or packing for a device (a device packs its own).
May import: base, program.
"""
