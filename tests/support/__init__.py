"""Servers and builders that tests of several stages share."""
