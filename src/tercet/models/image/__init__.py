"""The model image: a program's weights as a device wants them in one file, mapped by all.

Is: the file's layout, its building (once, by one process, whole or not at all), its opening, and
the folder of all images with its limit.
Is not: the choice of weights (`program`), or packing for a device (a device packs its own).
May import: base, program.
"""
