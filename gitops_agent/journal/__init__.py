"""The journal: the durable record of everything observed, decided and done, and the lock of its directory.

What belongs here: the tables (``schema``) and their history (``migrations``), values to rows and back (``rows``
and its neighbours), reading and writing them (``store``, ``history``, ``retention``), the one file that knows it
is SQLite (``sqlite``), the rule that settles what a crash left open (``replay``), and the lock of the state
directory (``lock``). What does not: deciding what to do (``plan``), doing it (``reconcile``), rendering
(``report``).

Who calls it: ``wiring`` opens it, ``pipeline`` and ``reconcile`` write through ``ports.Journal``, and the reading
verbs of the command line open it read-only while a daemon writes.
"""
