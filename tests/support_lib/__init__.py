"""Tests of gitops_agent/support."""
