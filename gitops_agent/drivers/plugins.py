"""The installed plugins, found by entry point, and their drivers, connected when they are first asked for."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from threading import Lock
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from gitops_agent.drivers.api import (
    BUILT_IN_KINDS,
    OBSERVE_TIMEOUT_SECONDS,
    Action,
    Catalog,
    CheckResult,
    Closing,
    Context,
    Driver,
    Executing,
    Hiding,
    Leasing,
    Locating,
    Logging,
    Notify,
    Plugin,
    Watching,
    Where,
    has,
)
from gitops_agent.errors import GitopsAgentError, ObserveError, UsageError
from gitops_agent.model.catalog import place_of, plugin_name
from gitops_agent.model.document import DOCUMENTS, AgentDocument, AgentSpec, Runtime
from gitops_agent.model.strict import Strict
from gitops_agent.support.secrets import Redactor
from gitops_agent.support.token_bucket import Rate

CHECKS_AT_ONCE = 8

GROUP = "gitops_agent.drivers"
"""The entry-point group through which packages add drivers."""


class Plugins:
    """Every plugin, by name. Knows what they add to documents and to the vocabulary; connects to nothing."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self._by_name = {plugin.name: plugin for plugin in sorted(plugins, key=lambda plugin: plugin.name)}

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Plugin | None:
        """The plugin of a name, with or without a place, if it is installed."""
        return self._by_name.get(plugin_name(name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all plugins, sorted."""
        return tuple(self._by_name)

    @property
    def runtimes(self) -> tuple[str, ...]:
        """What documents may name as ``runtime.driver``."""
        return tuple(plugin.name for plugin in self if plugin.is_runtime)

    @cached_property
    def catalog(self) -> Catalog:
        """The kinds and reason codes of core and of all plugins."""
        reasons = {(plugin.name, code): reason for plugin in self for code, reason in plugin.reasons.items()}
        kinds = {kind.name: kind for plugin in self for kind in plugin.kinds}
        instances = {plugin.name: plugin.instances for plugin in self if plugin.instances}
        return Catalog(reasons, {**{kind.name: kind for kind in BUILT_IN_KINDS}, **kinds}, instances)

    @cached_property
    def documents(self) -> Mapping[str, type[Strict]]:
        """The models of all kinds of documents, with the options and sections of the plugins in that of agents."""
        runtime = {plugin.name: plugin.options for plugin in self if plugin.is_runtime and plugin.options}
        sections = {name: plugin.options for plugin in self if (name := section_of(plugin)) and plugin.options}
        if not runtime and not sections:
            return DOCUMENTS
        spec = _extended(AgentSpec, sections)
        if runtime:
            spec = create_model("AgentSpec", __base__=spec, runtime=(_extended(Runtime, runtime), ...))
        return {**DOCUMENTS, "Agent": create_model("AgentDocument", __base__=AgentDocument, spec=(spec, ...))}

    def options(self, plugin: Plugin, document: AgentDocument) -> BaseModel | None:
        """What a document says to a plugin in its own block or section; None when it says nothing."""
        if plugin.options is None:
            return None
        section = section_of(plugin)
        place = document.spec if section else document.spec.runtime
        return cast("BaseModel | None", getattr(place, _attribute(section or plugin.name), None))


def load_plugins() -> Plugins:
    """Every installed plugin; UsageError names one that cannot be loaded."""
    return Plugins(map(_loaded, entry_points(group=GROUP)))


def _loaded(entry: EntryPoint) -> Plugin:
    driver, hint = f"driver {entry.name} ({entry.value})", "reinstall or remove the package that provides it"
    try:
        plugin = entry.load()
    except GitopsAgentError:
        raise
    except Exception as problem:
        raise UsageError(f"{driver} cannot be loaded: {problem}", hint=hint) from problem
    if not isinstance(plugin, Plugin) or plugin.name != entry.name:
        raise UsageError(f"{driver} is not a Plugin of that name", hint=hint)
    return plugin


def section_of(plugin: Plugin) -> str:
    """The name of the section below ``spec`` that a plugin adds to documents; "" when it adds none."""
    own = (kind.section for kind in plugin.kinds if kind not in BUILT_IN_KINDS and kind.section)
    return next((section[-1] for section in own if section[:-1] == ("spec",)), "")


def _attribute(name: str) -> str:
    return name.replace("-", "_")


def _extended(model: type[Strict], options: Mapping[str, type[BaseModel]]) -> Any:
    """The model with one more optional field for each name."""
    fields = {_attribute(name): (each | None, Field(default=None, alias=name)) for name, each in options.items()}
    return create_model(model.__name__, __base__=model, **cast("dict[str, Any]", fields)) if fields else model


class DriverSettings(BaseModel):
    """What core reads of ``drivers.<name>``: at most ``rate`` actions a second, ``burst`` of them at once."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    rate: float | None = Field(default=None, gt=0)
    burst: int = Field(default=1, ge=1)


def driver_settings(plugin: Plugin, given: Mapping[str, Any]) -> tuple[Rate | None, BaseModel | None]:
    """The rate limit and the plugin's own settings; UsageError says what is wrong with them."""
    try:
        core = DriverSettings.model_validate(given)
        rest = {name: value for name, value in given.items() if name not in DriverSettings.model_fields}
        if plugin.settings is None and rest:
            names = ", ".join(sorted(rest))
            raise UsageError(f"drivers.{plugin.name}: there is no such setting: {names}", hint="remove it")
        own = plugin.settings.model_validate(rest) if plugin.settings is not None else None
    except ValidationError as wrong:
        what = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in wrong.errors())
        raise UsageError(f"drivers.{plugin.name}: {what}", hint="see the documentation of the driver") from None
    return (Rate(core.rate, core.burst) if core.rate is not None else None), own


def known_settings(plugins: Plugins, given: Mapping[str, Mapping[str, Any]]) -> dict[str, BaseModel]:
    """The plugins' own settings by their names, of those that something is said of."""
    found = {each.name: driver_settings(each, given[each.name])[1] for each in plugins if each.name in given}
    return {name: own for name, own in found.items() if own is not None}


class Connections(Mapping[str, Driver]):
    """The connected drivers of one instance. ``connections[name]`` connects when it is first asked for.
    A driver that cannot connect is unreachable (ObserveError), and is tried again when it is next asked for. What
    ``wrap`` makes of a driver is what callers get. UsageError when some ``drivers.<name>`` of the settings is
    wrong, or is of a driver that is not installed."""

    def __init__(
        self,
        plugins: Plugins,
        context: Context,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        wrap: Callable[[Driver], Driver] = lambda driver: driver,
    ) -> None:
        self.plugins = plugins
        self._context = context
        self._settings = settings or {}
        self._wrap = wrap
        self._connected: dict[str, Driver] = {}
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._notify: Notify | None = None
        self._starting = Lock()
        self._in_use: frozenset[str] = frozenset()
        self.rates = {name: rate for name in self._settings if (rate := self._rate(name)) is not None}

    @property
    def redactor(self) -> Redactor:
        """What the drivers teach the secrets that they resolve."""
        return self._context.redactor

    def _rate(self, name: str) -> Rate | None:
        plugin = self.plugins.get(name)
        if plugin is None:
            installed = ", ".join(self.plugins.names) or "none"
            raise UsageError(f"drivers.{name}: there is no such driver", hint=f"installed: {installed}")
        return driver_settings(plugin, self._settings[name])[0]

    def __getitem__(self, name: str) -> Driver:
        known = self._connected.get(name)
        if known is not None:
            return known
        plugin = self.plugins.get(name)
        if plugin is None:
            installed = ", ".join(self.plugins.names) or "none"
            raise ObserveError(f"the driver {name} is not installed", hint=f"install it; there are: {installed}")
        with self._locks[name]:
            if name not in self._connected:
                self._add(name, self._connect(plugin, place_of(name)))
            return self._connected[name]

    def _add(self, name: str, driver: Driver) -> None:
        """Keep a connected driver, which begins to watch if the others do."""
        with self._starting:  # or a start in this very moment would miss it
            if self._notify is not None and has(driver, "start"):
                cast("Watching", driver).start(self._notify)
            self._connected[name] = driver

    def __iter__(self) -> Iterator[str]:
        return iter(self._connected)

    def __len__(self) -> int:
        return len(self._connected)

    def asked_for(self, names: Iterable[str], *, whole: bool = False) -> tuple[str, ...]:
        """The drivers to observe when these hold something desired or on record (``whole``: and no others do).
        The local ones are added, and those connected that hold something elsewhere, so that orphans are found. A
        place that nothing names any more is not asked: it may have been taken down after its last agent left."""
        self._in_use = frozenset(names) if whole else self._in_use.union(names)
        local = (plugin.name for plugin in self.plugins if plugin.local)
        return tuple(sorted({*names, *local, *self._in_use.intersection(self._connected)}))

    def observe_timeout(self, name: str) -> float:
        """Seconds that a driver has to say what is there."""
        plugin = self.plugins.get(name)
        return plugin.observe_timeout if plugin is not None else OBSERVE_TIMEOUT_SECONDS

    def context_of(self, plugin: Plugin, place: str = "") -> Context:
        """What a plugin is connected with, or checked."""
        _, own = driver_settings(plugin, self._settings.get(plugin.name, {}))
        return replace(self._context, settings=own, executing=self.executing, place=place)

    def require(self) -> None:
        """Return when all that the settings of drivers name is there; UsageError otherwise."""
        for name, own in known_settings(self.plugins, self._settings).items():
            plugin = self.plugins.get(name)
            if plugin is not None and plugin.require is not None:
                plugin.require(own)

    def checks(self) -> list[CheckResult]:
        """What ``doctor`` shows of the drivers, at every place that settings let documents name."""
        due = [
            (check, self.context_of(plugin, place))
            for plugin in self.plugins
            for check in plugin.checks
            for place in ("", *(plugin.places(self.context_of(plugin)) if plugin.places else ()))
        ]
        with ThreadPoolExecutor(CHECKS_AT_ONCE) as pool:  # one that does not answer costs its time once
            return list(pool.map(lambda each: each[0](each[1]), due))

    def where(self, action: Action) -> Where | None:
        """Where the object of an action is or will be; None where its driver does not say, or is not connected."""
        driver, fields = self._connected.get(action.driver), action.desired or action.live or action.base
        if driver is None or fields is None or not has(driver, "where"):
            return None
        return cast("Locating", driver).where(action.key.agent, fields)

    def executing(self, name: str) -> Executing | None:
        """The way of a driver to run commands as an agent, if it has one."""
        found = self._capable(name, "exec") if self.plugins.get(name) is not None else None
        return cast("Executing | None", found)

    def logging(self, name: str) -> Logging | None:
        """The logs of a driver, if it keeps any."""
        return cast("Logging | None", self._capable(name, "logs"))

    def hiding(self, name: str) -> Hiding | None:
        """What knows the secrets of a driver's agents, if it resolves any."""
        return cast("Hiding | None", self._capable(name, "knows_secrets"))

    def leasing(self, name: str) -> Leasing | None:
        """The leases of a driver, if it brings its own."""
        return cast("Leasing | None", self._capable(name, "claim"))

    def start(self, notify: Notify) -> None:
        """Begin to watch: the drivers that are connected now, and others when they are."""
        with self._starting:
            self._notify, watching = notify, self._watching()
        for watched in watching:
            watched.start(notify)

    def stop(self) -> None:
        """End watching."""
        with self._starting:
            self._notify, watching = None, self._watching()
        for watched in watching:
            watched.stop()

    def close(self) -> None:
        """End what drivers run for us: probes, and hooks that were waited for long enough."""
        for each in tuple(self._connected.values()):
            if has(each, "close"):
                cast("Closing", each).close()

    def _watching(self) -> list[Watching]:
        return [cast("Watching", each) for each in tuple(self._connected.values()) if has(each, "start")]

    def _capable(self, name: str, method: str) -> Driver | None:
        driver = self[name]
        return driver if has(driver, method) else None

    def _connect(self, plugin: Plugin, place: str) -> Driver:
        try:
            return self._wrap(plugin.connect(self.context_of(plugin, place)))
        except GitopsAgentError:
            raise
        except (Exception, SystemExit) as problem:  # a driver's bug must not stop its siblings, nor us
            what = f"the driver {plugin.name} cannot connect: unexpected {type(problem).__name__}: {problem}"
            raise ObserveError(what, hint=f"check drivers.{plugin.name} in the settings") from problem
