"""The adapters to live systems, one folder each.

What belongs here: for every live system a plugin that an entry point in the group ``gitops_agent.drivers`` names,
with ``spec.py`` (pure: what a document asks of it), ``observe.py`` (reads) and ``apply.py`` (writes). ``api.py``
is all that a driver imports, ``local/`` what those for things of this host share, ``plugins.py`` finds and
connects them. What does not: deciding what to do (``plan/``), retrying (``reconcile/``), knowledge of another
driver. ``snapshot/`` calls ``compile``, ``observe/`` calls ``observe``, ``reconcile/`` calls ``apply``.
"""
