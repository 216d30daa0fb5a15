"""The signer of a commit, by the ssh allowed-signers file in settings and nothing else."""

from pathlib import Path

from gitops_agent.source.git_environment import config_variables
from gitops_agent.source.mirror import Mirror

_NONE = "false"
"""A program that verifies nothing: of the kinds of signature git knows, only ssh is asked about."""


class Signatures:
    """Asks git, which asks ssh-keygen. No user configuration, no keyring, no other kind of signature."""

    def __init__(self, mirror: Mirror, allowed_signers: str | None) -> None:
        self._mirror = mirror
        self._file = Path(allowed_signers).absolute() if allowed_signers else None

    @property
    def required(self) -> bool:
        """Whether only what is signed counts."""
        return self._file is not None

    @property
    def problem(self) -> str:
        """Why no signature at all can be verified; "" when they can."""
        if self._file is not None and not self._file.is_file():
            return f"allowedSigners names {self._file}, and there is no such file"
        return ""

    def principal(self, commit: str) -> str:
        """The name in the file with the key that made a good signature on a commit; "" otherwise."""
        if not commit or self._file is None or self.problem:
            return ""
        form = "--format=%G?%n%GS"
        answer = self._mirror.git.local(
            "log", "--no-walk", form, "--end-of-options", commit, env=self._rules()
        ).text
        verdict, _, name = answer.partition("\n")
        return name.strip() if verdict == "G" else ""

    def _rules(self) -> dict[str, str]:
        return config_variables(
            {
                "gpg.ssh.allowedSignersFile": str(self._file),
                "gpg.ssh.program": "ssh-keygen",
                "gpg.openpgp.program": _NONE,
                "gpg.x509.program": _NONE,
            }
        )
