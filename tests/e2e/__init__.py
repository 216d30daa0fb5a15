"""The promises of gitops-agent as its users see them: through the command line, on real git and real processes."""
