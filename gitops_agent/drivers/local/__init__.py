"""What drivers for processes of this host share (process, tmux, later PM2).

What belongs here: the parent of each agent (``runner``, a program of its own), finding processes by it and by the
marks in their environment (``procfs``, ``marks``, ``process_tree``, ``lookalikes``), assessing them
(``observe``, ``assess``), ending and replacing them (``apply``, ``start``, ``stop``), their files
(``agent_dir``, ``log_files``, ``heartbeat_file``), their environment and secrets (``environment``), their control
groups and memory limits (``memory_limit``), events between observations (``watch``), and commands run as an agent
(``exec``). A driver may bring its own ``Launcher`` (``start``): how a program comes to life. What does not: any
knowledge of one driver, deciding whether to act (``plan/``) and how often (``reconcile/``).

Agents outlive us: they are found again by their runner, by the pid, start time and boot that our handle recorded,
or by their marks. ``registry`` is only a memory of this process.
"""
