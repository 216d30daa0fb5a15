"""From issues (a path inside a document) to findings (a line and column in a file)."""

from collections.abc import Iterable, Mapping

from gitops_agent.model.agent import Origin
from gitops_agent.model.finding import Finding
from gitops_agent.ports import BlobReader
from gitops_agent.snapshot import yaml_text_guard as texts
from gitops_agent.snapshot.codes import FilePosition, error
from gitops_agent.snapshot.compiled_file import Issue
from gitops_agent.snapshot.positions import Locator, Positions


def located(issues: Iterable[Issue], reader: BlobReader, locator: Locator) -> list[Finding]:
    """The findings of issues. The documents are read again: issues are rare, and keeping all texts is dear."""
    known = list(issues)
    contents = dict(reader.blobs(list(dict.fromkeys(issue.origin.blob for issue in known)))) if known else {}
    positions: dict[Origin, Positions] = {}
    findings: list[Finding] = []
    for issue in known:
        if issue.origin not in positions:
            positions[issue.origin] = locator.positions(_text(issue.origin, contents), issue.origin.line)
        look_up = positions[issue.origin].key if issue.at_key else positions[issue.origin].value
        place = FilePosition(issue.origin.path, *look_up(issue.loc))
        findings.append(error(issue.code, place, issue.summary, issue.detail))
    return findings


def _text(origin: Origin, contents: Mapping[str, bytes]) -> str:
    content = contents.get(origin.blob, b"").decode("utf-8", "replace").removeprefix(texts.BYTE_ORDER_MARK)
    documents = texts.split(content.replace("\r\n", "\n").replace("\r", "\n"))
    return next((document.text for document in documents if document.line == origin.line), "")
