"""The journal: the durable record of everything observed, decided and done, and the lock of its directory.

What belongs here: the tables (``schema``) and their history (``migrations``, ``version_5``), values to rows and
back (``rows``, ``tables``), the state in memory and how it is committed (``store``, ``changes``), questions about
the past (``history``), ``retention``, where it is (``place``), the two files that know which database it is
(``sqlite``, ``postgres``) behind one shape (``database``, ``portable``), and the lock of the state directory
(``lock``). What does not: deciding what to do (``plan``), doing it and settling what a crash left open
(``reconcile``), rendering (``report``).

Callers: ``wiring`` opens it, ``pipeline`` and ``reconcile`` write through ``store``, and the reading
verbs of the command line open it read-only while a daemon writes.
"""
