"""Decides whether a set of model definitions is a valid catalog, and resolves it (C1-C4, C6, C15).

Laws: every problem is found and named with its path and value, not only the first; a catalog is
returned only when there is none.
"""

import math
from collections.abc import Mapping, Sequence

from llmgw.core import defaults
from llmgw.core.catalog import (
    CAPABILITIES,
    FALLBACK_CASES,
    RESCUE,
    Catalog,
    CatalogError,
    EngineTraits,
    Fallback,
    FallbackDefinition,
    Mode,
    Model,
    ModelDefinition,
    Profile,
    ScalingDefinition,
)
from llmgw.core.profile_build import NAME, NAME_TEXT, Notes, build_profile
from llmgw.core.units import slug

Aliases = Mapping[str, str | Mapping[str, float]]
Resolved = dict[str, tuple[tuple[str, float], ...]]

_SCHEMES = ("hf:", "https://", "file:", "mirror:")
SIMULATED_ENGINE = "sim"


def build_catalog(
    models: Sequence[ModelDefinition], aliases: Aliases, engines: Mapping[str, EngineTraits]
) -> Catalog | CatalogError:
    """The resolved catalog, or every problem with its path and value (C1)."""
    notes = Notes()
    _check_names(models, notes)
    resolved = _resolve_aliases(models, aliases, notes)
    names = {model.name for model in models}
    fallbacks = [
        _resolve_fallbacks(model, f"models[{index}]", names, resolved, notes)
        for index, model in enumerate(models)
    ]
    _check_circles(models, fallbacks, notes)
    drawn = _drawn_by(resolved)
    built = [
        _build_model(model, f"models[{index}]", engines, (drawn.get(model.name, ()), fallbacks[index]), notes)
        for index, model in enumerate(models)
    ]
    if notes.problems:
        return CatalogError(tuple(notes.problems))
    return Catalog({model.name: model for model in built}, resolved)


# ---------------------------------------------------------------- names


def _check_names(models: Sequence[ModelDefinition], notes: Notes) -> None:
    first: dict[str, int] = {}
    slugs: dict[str, str] = {}
    for index, model in enumerate(models):
        path = f"models[{index}].name"
        if NAME.fullmatch(model.name) is None:
            notes.add(path, model.name, NAME_TEXT)
        elif model.name in first:
            notes.add(
                path, model.name, f"is the name of models[{first[model.name]}] already; names are unique"
            )
        elif slug(model.name) in slugs:
            other = slugs[slug(model.name)]
            notes.add(path, model.name, f"cannot be told from {other} in ids and metrics; rename one of them")
        first.setdefault(model.name, index)
        slugs.setdefault(slug(model.name), model.name)


def _resolve_aliases(models: Sequence[ModelDefinition], aliases: Aliases, notes: Notes) -> Resolved:
    names = {model.name for model in models}
    resolved: Resolved = {}
    for index, model in enumerate(models):
        for place, alias in enumerate(model.aliases):
            path = f"models[{index}].aliases[{place}]"
            if _alias_is_free(alias, path, names, resolved, notes):
                resolved[alias] = ((model.name, 1.0),)
    for alias, target in aliases.items():
        path = f"aliases.{alias}"
        if _alias_is_free(alias, path, names, resolved, notes):
            resolved[alias] = _alias_targets(target, path, names, notes)
    return resolved


def _alias_is_free(alias: str, path: str, names: set[str], taken: Resolved, notes: Notes) -> bool:
    if NAME.fullmatch(alias) is None:
        notes.add(path, alias, NAME_TEXT)
    elif alias in names:
        notes.add(path, alias, "is a model's name; an alias must differ from every name")
    elif alias in taken:
        notes.add(path, alias, f"is an alias of {_listed(taken[alias])} already; an alias is written once")
    else:
        return True
    return False


def _listed(targets: tuple[tuple[str, float], ...]) -> str:
    return " and ".join(name for name, _ in targets) or "another model"


def _alias_targets(
    target: str | Mapping[str, float], path: str, names: set[str], notes: Notes
) -> tuple[tuple[str, float], ...]:
    weights = {target: 1.0} if isinstance(target, str) else target
    if not weights:
        notes.add(path, {}, "expected a model's name, or names with weights")
    good: dict[str, float] = {}
    for name, weight in weights.items():
        where = path if isinstance(target, str) else f"{path}.{name}"
        if name not in names:
            notes.add(where, name, "no such model; an alias stands for models, not for other aliases")
        elif not (weight > 0 and math.isfinite(weight)):
            notes.add(where, weight, "a weight must be more than 0")
        else:
            good[name] = float(weight)
    total = sum(good.values())
    return tuple((name, weight / total) for name, weight in good.items())


def _drawn_by(resolved: Resolved) -> dict[str, tuple[str, ...]]:
    drawn: dict[str, list[str]] = {}
    for alias in sorted(resolved):
        for name, _ in resolved[alias]:
            drawn.setdefault(name, []).append(alias)
    return {name: tuple(aliases) for name, aliases in drawn.items()}


# ---------------------------------------------------------------- fallbacks


def _resolve_fallbacks(
    model: ModelDefinition, path: str, names: set[str], aliases: Resolved, notes: Notes
) -> tuple[Fallback, ...]:
    found: dict[str, Fallback] = {}
    for place, written in enumerate(model.fallbacks):
        where = f"{path}.fallbacks[{place}]"
        plain = written if isinstance(written, FallbackDefinition) else FallbackDefinition(model=written)
        targets = aliases.get(plain.model, ())
        name = targets[0][0] if len(targets) == 1 else plain.model
        wrong = [case for case in plain.on if case not in FALLBACK_CASES]
        if wrong or not plain.on:
            notes.add(f"{where}.on", list(plain.on), f"accepted here: {', '.join(FALLBACK_CASES)}")
        if len(targets) > 1:
            notes.add(where, plain.model, "is an alias of several models; name one model")
        elif name not in names:
            notes.add(where, plain.model, "no such model")
        elif name == model.name:
            notes.add(where, plain.model, "a model cannot fall back to itself")
        elif name in found:
            notes.add(where, plain.model, "is in the list already")
        else:
            found[name] = Fallback(name, plain.on)
    return tuple(found.values())


def _check_circles(
    models: Sequence[ModelDefinition], fallbacks: Sequence[tuple[Fallback, ...]], notes: Notes
) -> None:
    """Each circle of fallbacks once, at the first of its models (names that are doubled keep the first)."""
    graph: dict[str, tuple[str, ...]] = {}
    where: dict[str, int] = {}
    for index, model in enumerate(models):
        if model.name not in graph:
            graph[model.name] = tuple(fallback.model for fallback in fallbacks[index])
            where[model.name] = index
    done: set[str] = set()
    for start, targets in graph.items():
        if start in done:
            continue
        trail, rests = [start], [iter(targets)]
        while trail:
            target = next(rests[-1], None)
            if target is None:
                done.add(trail.pop())
                rests.pop()
            elif target in trail:
                circle = [*trail[trail.index(target) :], target]
                text = f"{' → '.join(circle)} is a circle; remove one of these fallbacks"
                notes.add(f"models[{where[target]}].fallbacks", None, text)
            elif target not in done:
                trail.append(target)
                rests.append(iter(graph[target]))


# ---------------------------------------------------------------- one model


def _build_model(
    written: ModelDefinition,
    path: str,
    engines: Mapping[str, EngineTraits],
    links: tuple[tuple[str, ...], tuple[Fallback, ...]],
    notes: Notes,
) -> Model:
    aliases, fallbacks = links
    profiles = _build_profiles(written, path, engines, notes)
    _check_source(written, path, engines, notes)
    _check_claims(written, path, notes)
    mode, least, most = _scaling(written, path, notes)
    idle = written.scaling.idle_timeout if written.scaling is not None else None
    return Model(
        name=written.name,
        slug=slug(written.name),
        source=written.source,
        description=written.description,
        context_length=written.context_length,
        capabilities=written.capabilities,
        mode=mode,
        min_replicas=least,
        max_replicas=most,
        idle_timeout_s=notes.duration(f"{path}.scaling.idle_timeout", idle, defaults.IDLE_TIMEOUT_S),
        simulated=bool(profiles) and all(profile.engine == SIMULATED_ENGINE for profile in profiles),
        profiles=profiles,
        definition=written,
        aliases=aliases,
        fallbacks=fallbacks,
        priority=written.priority,
        timeouts=_timeouts(written, path, notes),
    )


def _build_profiles(
    written: ModelDefinition, path: str, engines: Mapping[str, EngineTraits], notes: Notes
) -> tuple[Profile, ...]:
    """Highest priority first; those of one priority in the order written."""
    built: list[Profile] = []
    seen: dict[str, int] = {}
    for index, profile in enumerate(written.profiles):
        where = f"{path}.profiles[{index}]"
        if NAME.fullmatch(profile.name) is None:
            notes.add(f"{where}.name", profile.name, NAME_TEXT)
        elif profile.name in seen:
            text = f"is the name of profiles[{seen[profile.name]}] already; names are unique in a model"
            notes.add(f"{where}.name", profile.name, text)
        seen.setdefault(profile.name, index)
        traits = engines.get(profile.engine)
        if traits is None:
            known = ", ".join(sorted(engines))
            notes.add(f"{where}.engine", profile.engine, f"no such engine; there are {known}")
            continue
        built.append(build_profile(written, profile, traits, where, notes))
    return tuple(sorted(built, key=lambda profile: -profile.priority))


def _check_source(
    written: ModelDefinition, path: str, engines: Mapping[str, EngineTraits], notes: Notes
) -> None:
    used = {profile.engine for profile in written.profiles if profile.engine in engines}
    if not used - {SIMULATED_ENGINE}:  # the simulated engine has no weights
        return
    if not written.source:
        notes.add(
            f"{path}.source", written.source, "is required for a model with profiles: where its weights are"
        )
    elif not written.source.startswith(("/", *_SCHEMES)):
        text = f"expected an absolute path, or one of {', '.join(_SCHEMES)} followed by where it is"
        notes.add(f"{path}.source", written.source, text)


def _check_claims(written: ModelDefinition, path: str, notes: Notes) -> None:
    for place, capability in enumerate(written.capabilities or ()):
        if capability not in CAPABILITIES:
            notes.add(
                f"{path}.capabilities[{place}]", capability, f"accepted here: {', '.join(CAPABILITIES)}"
            )
    if written.context_length is not None and written.context_length < 1:
        notes.add(f"{path}.context_length", written.context_length, "must be at least 1")
    if written.rescue is not None and written.rescue not in RESCUE:
        notes.add(f"{path}.rescue", written.rescue, f"accepted here: {', '.join(RESCUE)}")
    elif written.rescue == "on":
        notes.add(f"{path}.rescue", written.rescue, "not available in this version; leave it out")


def _scaling(written: ModelDefinition, path: str, notes: Notes) -> tuple[Mode, int, int]:
    """The mode with the fewest and the most replicas (C3); a max of nothing is never filled in for min 0."""
    scaling = written.scaling or ScalingDefinition()
    least, most = scaling.min, scaling.min if scaling.max is None else scaling.max
    if least < 0:
        notes.add(f"{path}.scaling.min", least, "must be at least 0")
    if scaling.max is not None and scaling.max < max(least, 0):
        notes.add(f"{path}.scaling.max", scaling.max, f"must be at least min, {max(least, 0)}")
    if least > 0 and not written.profiles:
        notes.add(f"{path}.scaling.min", least, "the model has no profiles, so nothing can run; add one")
    if least > 0:
        return Mode.ALWAYS, least, most
    return (Mode.ON_DEMAND if most > 0 else Mode.OFF), 0, most


def _timeouts(written: ModelDefinition, path: str, notes: Notes) -> dict[str, float]:
    times = written.timeouts
    if times is None:
        return {}
    return {
        name: notes.duration(f"{path}.timeouts.{name}", text, 0.0)
        for name in times.__struct_fields__
        if (text := getattr(times, name)) is not None
    }
