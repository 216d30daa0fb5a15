"""The adapters to live systems, one module or folder each.

What belongs here: for every live system a plugin that an entry point in the group ``gitops_agent.drivers`` names:
a pure part (what a document asks of it), and a driver that observes and applies. ``api.py`` is all that a driver
imports, ``local/`` what those for things of this host share, ``plugins.py`` finds and connects them. What does
not: deciding what to do (``plan/``), retrying (``reconcile/``), knowledge of another driver. ``snapshot/`` calls
``compile``, ``observe/`` calls ``observe``, ``reconcile/`` calls ``apply``.
"""
