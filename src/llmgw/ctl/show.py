"""Decides what an operator reads for each answer of the admin API.

Laws: pure; the unknown is `-`; a reason, an error or a progress stands on a line of its own beneath what
it is about; the last line of a long table says what in it needs a look.
"""

from collections.abc import Sequence
from datetime import datetime, tzinfo

from llmgw.core.text import printable
from llmgw.core.units import format_bytes, format_duration
from llmgw.ctl.table import Column, Look, Row, paint_state, render, wrap
from llmgw.wire.admin_v1 import (
    EventRow,
    Explanation,
    GpuRow,
    ModelRow,
    NodeRow,
    ProfileExplanation,
    ReplicaRow,
    RouterRow,
    ShardRow,
    Status,
)

BAR = 20  # columns of a bar
VERDICTS_SHOWN = 20  # nodes listed for a profile; beyond that they are counted by reason
NAMED = 5  # nodes named in a summary


def known(value: object) -> str:
    """A value, or `-` when it is unknown."""
    return "-" if value is None else str(value)


# ---------------------------------------------------------------- status


def status(answer: Status, look: Look) -> str:
    """The fleet in one screen."""
    role = "leading" if answer.leading else "standby"
    words = (
        f"llmgw {answer.version}, cluster {answer.cluster_id}, "
        f"{role} (term {answer.term}), revision {answer.revision}"
    )
    lines = wrap(words, look.width)
    if answer.settling_s is not None:
        lines.append(f"settling: nothing new is placed for {format_duration(answer.settling_s)} more")
    on = [model for model in answer.models if model.state != "off"]
    lines += [
        "",
        f"models    {sum(model.ready > 0 for model in on)} of {len(on)} ready",
        f"replicas  {_counts(answer.replicas)}",
        f"nodes     {_counts(answer.nodes)}",
        *_gpu_lines(answer),
        f"routers   {', '.join(known(router.address) for router in answer.routers) or 'none connected'}",
        f"database  {answer.store}",
    ]
    for problem in answer.problems:
        lines += ["", *wrap(problem, look.width, "! ", "  ")]
    return "\n".join([*map(_clean, lines)])


def _clean(line: str) -> str:
    return printable(line)


def _counts(by_state: object) -> str:
    assert isinstance(by_state, dict)
    return ", ".join(f"{count} {state}" for state, count in by_state.items() if count) or "none"


def _gpu_lines(answer: Status) -> list[str]:
    lines = []
    longest = max(map(len, answer.gpus), default=0)
    for kind, uses in sorted(answer.gpus.items()):
        total = sum(uses.values())
        used, unhealthy = uses.get("used", 0), uses.get("unhealthy", 0)
        broken = f", {unhealthy} unhealthy" if unhealthy else ""
        name = f"{kind:<{longest}}"
        lines.append(f"GPUs      {name}  {_bar(used, total)}  {used} of {total} used{broken}")
    return lines


def _bar(used: int, total: int) -> str:
    full = round(BAR * used / total) if total else 0
    return "#" * full + "." * (BAR - full)


# ---------------------------------------------------------------- tables


def nodes(rows: Sequence[NodeRow], look: Look) -> str:
    """Every node, and a summary naming those that take no work."""
    if not rows:
        return "no node has joined: start `llmgw agent` on one"
    columns = (
        Column("NODE"),
        Column("STATE", state=True),
        Column("GPUS USED"),
        Column("MEMORY CLAIMED", right=True),
        Column("DISK FREE", right=True, spare=1),
        Column("REPLICAS", right=True),
        Column("ENGINES", spare=3),
        Column("ADDRESS", spare=4),
        Column("HEARD", right=True, spare=2),
        Column("AGENT", spare=5),
    )
    return f"{render(columns, [_node(row) for row in rows], look)}\n\n{_node_summary(rows)}"


def _node(row: NodeRow) -> Row:
    disk = _of(row.disk_free_bytes, row.disk_total_bytes)
    claimed = (
        None if not row.memory_claimed_bytes and row.memory_total_bytes is None else row.memory_claimed_bytes
    )
    return Row(
        (
            row.id,
            _node_state(row),
            _gpus(row.gpus),
            _of(claimed, row.memory_total_bytes),
            disk,
            str(row.replicas),
            "-" if row.engines is None else " ".join(row.engines) or "none",
            known(row.address),
            "-" if row.heard_s is None else format_duration(row.heard_s),
            known(row.agent_version),
        ),
        row.reasons,
    )


def _node_state(row: NodeRow) -> str:
    if row.mark == "ready":
        return row.state
    return row.mark if row.state == "ready" else f"{row.state} ({row.mark})"


def _of(part: int | None, whole: int | None) -> str:
    if part is None and whole is None:
        return "-"
    return f"{format_bytes(part)} of {format_bytes(whole)}"


def _gpus(cards: Sequence[GpuRow] | None) -> str:
    if cards is None:
        return "-"
    if not cards:
        return "none"
    parts = []
    for kind in sorted({card.gpu_class or "unknown" for card in cards}):
        uses = [card.use for card in cards if (card.gpu_class or "unknown") == kind]
        broken = f", {uses.count('unhealthy')} unhealthy" if "unhealthy" in uses else ""
        parts.append(f"{uses.count('used')} of {len(uses)} {kind}{broken}")
    return "; ".join(parts)


def _node_summary(rows: Sequence[NodeRow]) -> str:
    by_state: dict[str, list[str]] = {}
    for row in rows:
        by_state.setdefault(_node_state(row), []).append(row.id)
    parts = []
    for state in sorted(by_state, key=lambda word: (word != "ready", word)):
        ids = by_state[state]
        parts.append(f"{len(ids)} {state}" + ("" if state == "ready" else f" ({_named(ids)})"))
    return printable(f"{_count(len(rows), 'node')}: {', '.join(parts)}")


def _named(ids: Sequence[str]) -> str:
    more = len(ids) - NAMED
    return ", ".join(ids[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def replicas(rows: Sequence[ReplicaRow], look: Look) -> str:
    """Every replica with its shards' progress and errors beneath."""
    if not rows:
        return "no replica runs; `llmgw ctl models` says why"
    columns = (
        Column("REPLICA"),
        Column("STATE", state=True),
        Column("MODEL"),
        Column("PROFILE", spare=3),
        Column("NODES"),
        Column("PID", right=True, spare=4),
        Column("URL", spare=2),
        Column("IN FLIGHT", right=True),
        Column("IDLE", right=True),
        Column("AGE", right=True, spare=1),
    )
    return render(columns, [_replica(row) for row in rows], look)


def _replica(row: ReplicaRow) -> Row:
    lines = [row.reason] if row.reason else []
    for shard in row.shards:
        lines += _shard_lines(shard, alone=len(row.shards) == 1, said=row.reason)
    return Row(
        (
            row.id,
            row.state + (" (stale)" if row.stale else ""),
            row.model,
            row.profile,
            " ".join(shard.node for shard in row.shards) or "-",
            " ".join(known(shard.pid) for shard in row.shards) or "-",
            known(row.url),
            known(row.in_flight),
            format_duration(row.idle_s),
            format_duration(row.age_s),
        ),
        tuple(lines),
    )


def _shard_lines(shard: ShardRow, *, alone: bool, said: str | None) -> list[str]:
    prefix = "" if alone else f"rank {shard.rank} on {shard.node}: "
    lines = []
    if shard.progress:
        lines.append(f"{prefix}{shard.phase}: {shard.progress}")
    if shard.error and shard.error != said:
        lines.append(f"{prefix}{shard.error}")
    return [*lines, *(f"{prefix}| {line}" for line in shard.log_tail)]


def models(rows: Sequence[ModelRow], look: Look) -> str:
    """Every model with the reason why not more of it runs."""
    if not rows:
        return "no model is configured: write one under `models:` in server.yaml"
    columns = (
        Column("MODEL"),
        Column("STATE", state=True),
        Column("READY", right=True),
        Column("STARTING", right=True),
        Column("MODE"),
        Column("PROFILES", spare=2),
        Column("FROM", spare=3),
    )
    return render(columns, [_model(row) for row in rows], look)


def _model(row: ModelRow) -> Row:
    lines = []
    if row.reason:
        again = f" (next try in {format_duration(row.retry_s)})" if row.retry_s is not None else ""
        lines.append(row.reason + again)
    if row.aliases:
        lines.append(f"also called {', '.join(row.aliases)}")
    cells = (
        row.name + (" (simulated)" if row.simulated else ""),
        row.state,
        f"{row.ready} of {row.wanted}",
        str(row.starting),
        row.mode,
        " ".join(row.profiles) or "-",
        row.origin,
    )
    return Row(cells, tuple(lines))


def routers(rows: Sequence[RouterRow], look: Look) -> str:
    """Every connected router."""
    if not rows:
        return "no router is connected"
    columns = (
        Column("ROUTER"),
        Column("ADDRESS"),
        Column("PID", right=True),
        Column("REVISION", right=True),
        Column("VERSION"),
    )
    cells = [(r.id, known(r.address), known(r.pid), known(r.revision), r.version) for r in rows]
    return render(columns, [Row(one) for one in cells], look)


def events(rows: Sequence[EventRow], look: Look, zone: tzinfo | None = None) -> str:
    """Events, the newest last as in a log; times in `zone` (None: the machine's)."""
    if not rows:
        return "no event is recorded"
    columns = (Column("WHEN"), Column("WHAT"), Column("ABOUT"), Column("WHY", sentence=True))
    shown = []
    for row in reversed(rows):
        when = datetime.fromtimestamp(row.at, zone).strftime("%m-%d %H:%M:%S")
        shown.append(Row((when, row.kind, row.replica or row.model or row.node or "-", row.text)))
    return render(columns, shown, look)


# ---------------------------------------------------------------- explanations


def explanation(answer: Explanation, look: Look, *, every: bool) -> str:
    """Why a model is where it is; `every` lists all nodes however many."""
    lines = wrap(f"{answer.model}: {answer.outcome}", look.width)
    for profile in answer.profiles:
        fits = paint_state("ready", look).replace("ready", "fits") if profile.fits else "fits nowhere"
        lines += ["", f"profile {printable(profile.profile)}: {fits}", *_verdicts(profile, look, every=every)]
    return "\n".join(lines)


def _verdicts(profile: ProfileExplanation, look: Look, *, every: bool) -> list[str]:
    nodes = profile.nodes if every else profile.nodes[:VERDICTS_SHOWN]
    columns = (Column("  NODE"), Column("VERDICT"), Column("WHY", sentence=True))
    rows = [Row((f"  {n.node}", n.verdict, n.text or n.code or "")) for n in nodes]
    lines = [render(columns, rows, look)] if rows else []
    left = len(profile.nodes) - len(nodes)
    if left:
        lines.append(f"  {left} more nodes (--all lists them)")
    if left and profile.counts:
        counts = ", ".join(f"{count} {code}" for code, count in profile.counts.items())
        lines.append(printable(f"  refused by reason: {counts}"))
    return lines
