"""Leases: of all gitops-agents that could act on an agent, one at a time does.

``holder`` asks for the leases of what a plan would do; ``host_leases`` keeps them in one folder of the host, for
live systems that bring none of their own (``drivers.api.Leasing``).
"""
