"""What the cluster's events say of workloads and pods that are not well: asked for only where nothing else tells.

Asked in the background, at a bounded rate, and again only while it is still looked for: no pass waits for it, and
a fleet that is well costs no request. What cannot be read (no right, no answer) is no text, and nothing more; a
server that asks for patience is asked nothing until then.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gitops_agent.drivers.api import JSON, AgentKey
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.kinds import EVENT
from gitops_agent.drivers.kubernetes.pod_status import Warned
from gitops_agent.drivers.kubernetes.reading import Map, maps_at, moment_at, text_at

FIRST_SECONDS, AGAIN_SECONDS = 3.0, 30.0
"""For how long something is unexplained before it is asked about, and until it is asked about again."""
PER_SECOND = 5.0
MAX_KNOWN = 1000
MAX_LISTED = 500
CLOSE_SECONDS = 1.0

OnNews = Callable[[AgentKey], None]


@dataclass(slots=True)
class _Question:
    """What is asked of an agent. ``wanted``: it was looked for since it was last answered."""

    about: str
    namespace: str
    due: float
    wanted: bool = True
    answer: tuple[Warned, ...] = ()


class WarningEvents:
    """The Warning events of one object for each agent that needs it. ``on_news``: called from its own thread when
    there is something new about an agent."""

    def __init__(self, cluster: Cluster, on_news: OnNews) -> None:
        self._client = cluster.client
        self._on_news = on_news
        self._questions: OrderedDict[AgentKey, _Question] = OrderedDict()
        self._news = threading.Condition()
        self._quiet_until = 0.0
        self._ended = False
        self._thread: threading.Thread | None = None

    def __contains__(self, agent: AgentKey) -> bool:
        """Whether something about an agent is asked for."""
        return agent in self._questions

    def about(self, agent: AgentKey, namespace: str, uid: str) -> Sequence[Warned]:
        """What is known by now of the object that matters for an agent; more is asked for in a while."""
        with self._news:
            known = self._questions.get(agent)
            if known is None or known.about != uid:
                known = _Question(uid, namespace, time.monotonic() + FIRST_SECONDS)
                self._questions[agent] = known
                while len(self._questions) > MAX_KNOWN:
                    self._questions.popitem(last=False)
            known.wanted = True
            self._begin()
            self._news.notify()
            return known.answer

    def forget(self, agent: AgentKey) -> None:
        """Ask nothing about an agent."""
        if agent in self._questions:  # of nearly all there is nothing to forget
            with self._news:
                self._questions.pop(agent, None)

    def close(self) -> None:
        """Ask nothing more."""
        with self._news:
            self._ended = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _begin(self) -> None:
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._ask_all, name="kubernetes-warnings", daemon=True)
            self._thread.start()

    def _ask_all(self) -> None:
        pace = threading.Event()
        while (found := self._next()) is not None:
            agent, question = found
            answer = self._asked(question)
            with self._news:
                news = answer is not None and answer != question.answer
                question.answer = question.answer if answer is None else answer
                question.wanted, question.due = False, time.monotonic() + AGAIN_SECONDS
                current = self._questions.get(agent) is question
            if news and current:
                self._on_news(agent)
            pace.wait(1 / PER_SECOND)

    def _next(self) -> tuple[AgentKey, _Question] | None:
        """The question that is due first, once it is; None at the end."""
        with self._news:
            while not self._ended:
                wanted = [each for each in self._questions.items() if each[1].wanted]
                first = min(wanted, key=lambda each: each[1].due, default=None)
                left = None if first is None else max(first[1].due, self._quiet_until) - time.monotonic()
                if first is not None and left is not None and left <= 0:
                    return first
                self._news.wait(left)
        return None

    def _asked(self, question: _Question) -> tuple[Warned, ...] | None:
        selector = f"involvedObject.uid={question.about},type=Warning"
        try:
            found = self._client.get(EVENT.path(question.namespace), fieldSelector=selector, limit=MAX_LISTED)
        except Exception as problem:  # whatever it was, there is no text; a thread that dies would never ask again
            patience = problem.retry_after if isinstance(problem, ApiError) else None
            self._quiet_until = time.monotonic() + (patience or 0.0)
            return None
        return tuple(map(_warned, maps_at(found, "items")))


def _warned(event: Map) -> Warned:
    """What an event says, be it of the older form of the API or of the newer one."""
    began = (("firstTimestamp",), ("eventTime",), ("metadata", "creationTimestamp"))
    ended = (("lastTimestamp",), ("series", "lastObservedTime"), *began)
    moments = [_moment(event, *path) for path in ended]
    first = next((moment for path in began if (moment := _moment(event, *path))), 0.0)
    return Warned(text_at(event, "reason"), text_at(event, "message"), first, max(moments))


def _moment(event: JSON, *path: str) -> float:
    return moment_at(event, *path) or 0.0
