"""From a commit to a snapshot: read, split, parse, validate, overlay, compile, check across documents.

What belongs here: everything that decides what a commit says, and the findings that say why it says nothing
valid. What does not: fetching (``source/``), what a driver makes of a document (each driver's ``compile``, given
to the loader), comparing with live state (``plan/``). Pure but for reading blobs and its own cache. The
pipeline calls ``loader.Loader.load``; ``gitops-agent validate`` calls ``folder.validate_folder``.

The way through::

    tree ─► documents ─► schema ─► overlay ─► compile ─► index ─► Snapshot
    names    split,       pydantic   RFC 6902   resources   keys, dependencies,
    refused  yaml-rs      findings              demands     pools, policy
             positions: line and column, only when there is something to say
             cache: what compiled well is kept by blob id
"""
