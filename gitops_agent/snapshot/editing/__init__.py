"""Editing: a changed value written into the author's YAML in place, with everything else left as it is.

``edit`` finds the value and checks the result by parsing it, ``scalars`` writes it in the style that stands there.
Used by ``proposals/`` to propose what live decided; what cannot be edited safely raises ``CannotEdit``.
"""
