"""Small libraries without a word of our domain: clock, backoff, files, text, secrets, HTTP.

Each module could be a package of its own. They import each other and the standard library, nothing above them, and
raise built-in errors or their own; the caller translates these into its own.
"""
