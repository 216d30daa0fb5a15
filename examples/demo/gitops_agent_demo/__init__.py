"""``gitops-agent demo``: a fleet of six agents that comes up from Git, heals, follows, refuses and goes back.

Installed beside ``gitops_agent`` as a package of its own: ``play`` has the acts, ``stage`` the repository and the
daemon, ``obstacles`` what would spoil it, ``agents`` the programs that are managed, and
``desired-repo`` (``examples/desired-repo``) what Git says about them.
"""
